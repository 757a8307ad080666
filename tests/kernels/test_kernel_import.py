"""The folder kernels/ under its import name, beside Hugging Face's distribution ``kernels`` and without Triton."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "kernels").glob("*.py"))


def python(code: str, **environment: str) -> str:
    """Standard output of ``code`` in a new interpreter started in the checkout's root, the root first on its path."""
    result = subprocess.run(
        [sys.executable, *(["-S"] if environment else []), "-c", code],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


BOTH = """
import sys
assert sys.path[0] == ""
import transformers
from transformers import GPT2LMHeadModel
import explorer.kernels.gelu as ours
print(GPT2LMHeadModel.__name__, ours.__file__)
print(getattr(sys.modules.get("kernels"), "__file__", None))
"""


def test_that_transformers_and_our_kernels_import_beside_the_distribution_named_kernels():
    try:
        importlib.metadata.version("kernels")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("Hugging Face's distribution kernels is not installed (it comes with the extra test)")
    model, theirs = python(BOTH).splitlines()
    assert model == f"GPT2LMHeadModel {ROOT / 'kernels' / 'gelu.py'}"
    # transformers has imported the distribution, and not our folder.
    assert Path(theirs).name == "__init__.py"
    assert ROOT / "kernels" not in Path(theirs).parents


def test_that_transformers_and_our_kernels_import_without_the_distribution_named_kernels(tmp_path):
    # All installed packages but that one, seen through links from an otherwise empty folder.
    for folder in (Path(entry) for entry in sys.path if entry.endswith("-packages")):
        for entry in folder.iterdir():
            if not entry.name.startswith(("kernels", "__editable__")) and not (tmp_path / entry.name).exists():
                (tmp_path / entry.name).symlink_to(entry)
    # Run without the site module (-S), whose folder would bring it back.
    model, theirs = python(BOTH, PYTHONPATH=str(tmp_path)).splitlines()
    assert model == f"GPT2LMHeadModel {ROOT / 'kernels' / 'gelu.py'}"
    assert theirs == "None"


def test_that_without_triton_the_references_work_and_a_kernel_says_what_is_missing():
    said = python(
        """
import sys
sys.modules["triton"] = None
import torch, explorer.kernels
from explorer.kernels import reference
print(reference.gelu(torch.zeros(1)).item())
try:
    import explorer.kernels.gelu
except ImportError as error:
    print(error)
"""
    ).splitlines()
    assert said[0] == "0.0"
    assert said[1].startswith("these kernels need triton, which cannot be imported here:")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_that_a_kernel_file_imports_only_torch_triton_the_library_and_its_kind(path):
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative"
            imported.add(node.module)
    for name in imported:
        allowed = name.split(".")[0] in {"torch", "triton", *sys.stdlib_module_names}
        assert allowed or name.startswith("explorer.kernels"), name


def test_that_the_folder_is_no_package_of_its_own():
    # With an __init__.py it would hide Hugging Face's distribution from transformers.
    assert FILES
    assert not (ROOT / "kernels" / "__init__.py").exists()
