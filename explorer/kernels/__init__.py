"""Triton kernels and their plain references; in a checkout the files lie in the top-level folder ``kernels/``.

The folder has no ``__init__.py`` and is never imported as ``kernels``: that name belongs to Hugging Face's
distribution, which transformers imports. An installed copy has the files here and no need of this module.
"""

from pathlib import Path

__path__ = [str(Path(__file__).resolve().parents[2] / "kernels")]
