"""What files and texts of any content must come to: a clear error or the right result. For tests and the fuzz run.

Each check takes drawn values and a folder of its own, and raises where something else came of them.
"""

from __future__ import annotations

import ast
import csv
import functools
import io
import json
import pickle
import struct
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from bad_arguments import any_text, arguments, typed
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

from explorer.config import RunConfig
from explorer.engine import tokenizer
from explorer.engine.checkpoint import gpt2_config, read_weights
from explorer.engine.errors import BadRequest
from explorer.engine.model import parameter_shapes
from explorer.engine.text import file_source
from explorer.experiments.script import script
from explorer.optimizations.registry import baseline_levels
from explorer.results.bundle import read_bundle, write_bundle
from explorer.results.export import write_segments
from explorer.results.log import RunLog
from explorer.results.sample import Sample, Segment

encoded = st.tuples(any_text, st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"])).map(
    lambda of: of[0].encode(of[1], errors="ignore")
)
junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 70),
    st.sampled_from([10**12, -(2**70)]),
    st.floats(),
    st.text(max_size=8),
    st.just([1]),
    st.just({"a": 1}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    values: st.SearchStrategy[Any]
    holds: Callable[[Any, Path], None]


def seen(folder: Path) -> dict[str, bytes]:
    """Every file below ``folder`` with its content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def tried(work: Callable[[], Any], expected: type[Exception]) -> tuple[Any, Any]:
    """What ``work`` gives, or None and the error, which is of the ``expected`` kind."""
    try:
        return work(), None
    except expected as error:
        return None, error


# ---- changes of bytes: cut, overwritten, added to

edits = st.lists(
    st.one_of(
        st.tuples(st.just("cut"), st.floats(0, 1), st.just(b"")),
        st.tuples(st.just("put"), st.floats(0, 1), st.binary(min_size=1, max_size=8)),
        st.tuples(st.just("add"), st.just(1.0), st.binary(min_size=1, max_size=8)),
    ),
    min_size=1,
    max_size=3,
)


def edited(content: bytes, changes: list[tuple[str, float, bytes]]) -> bytes:
    for kind, where, what in changes:
        at = int(where * len(content))
        content = content[:at] if kind == "cut" else content[:at] + what + content[at + len(what) * (kind == "put") :]
    return content


# ---- text files and prompts


def text_file(content: bytes, folder: Path) -> None:
    path = folder / "text.txt"
    path.write_bytes(content)
    source, error = tried(lambda: file_source(path), BadRequest)
    if source is None:
        assert str(path) in error.what
        assert error.remedy
        return
    (document,) = source.documents()
    assert b"\0" not in content
    assert document == content.decode().removeprefix("\ufeff")
    assert _bundled().decode(_bundled().encode(document)) == document


def prompt(text: str, folder: Path) -> None:
    config = RunConfig(workload="generate", prompt=text)
    said = script(config)
    literals = {node.value for node in ast.walk(ast.parse(said)) if isinstance(node, ast.Constant)}
    assert text in literals, "the prompt stands in the script, as data"
    ids, error = tried(lambda: _bundled().encode(text), BadRequest)
    if ids is None:
        assert "surrogate" in error.why
        return
    assert _bundled().decode(ids) == text


@functools.cache
def _bundled() -> tokenizer.Tokenizer:
    return tokenizer.bundled()


# ---- model folders


@functools.cache
def _model_files() -> Mapping[str, bytes]:
    """A whole model folder: one layer of width 4."""
    with tempfile.TemporaryDirectory() as name, torch.random.fork_rng(devices=[]):
        shape = GPT2Config(
            n_layer=1,
            n_head=2,
            n_embd=4,
            n_positions=8,
            vocab_size=_bundled().vocabulary,
            bos_token_id=0,
            eos_token_id=0,
        )
        GPT2LMHeadModel(shape).save_pretrained(name)
        (Path(name) / "tokenizer.json").write_text(_bundled().to_json(), encoding="utf-8")
        return seen(Path(name))


CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
fields = st.sampled_from(
    [
        *(
            "n_layer",
            "n_head",
            "n_embd",
            "n_positions",
            "vocab_size",
            "model_type",
            "resid_pdrop",
            "layer_norm_epsilon",
        ),
        *("activation_function", "tie_word_embeddings", "auto_map", "n_inner", "add_cross_attention"),
    ]
)
model_changes = st.one_of(
    st.tuples(st.just("config"), st.dictionaries(fields, junk, min_size=1, max_size=3)),
    st.tuples(st.sampled_from([CONFIG, WEIGHTS, TOKENIZER]), edits),
    st.tuples(st.just("header"), st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([2**40, 2**63]))),
    st.tuples(
        st.just("tensor"), st.tuples(st.integers(0, 12), st.sampled_from(["nan", "inf", "shape", "int", "gone"]))
    ),
    st.tuples(st.just("name"), st.sampled_from(["../../evil", "/etc/passwd", "", "h.0", "a\nb", "transformer.wte"])),
    st.tuples(st.just("pickle"), st.sampled_from([WEIGHTS, "pytorch_model.bin", CONFIG])),
    st.tuples(st.just("index"), st.sampled_from(["../other.safetensors", "/etc/passwd", "nothere", "..", "", "a\0b"])),
)


class Armed:
    """Unpickled, it leaves a file behind."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.mark,))


def model_folder(change: tuple[str, Any], folder: Path) -> None:
    inside = folder / "model"
    inside.mkdir()
    for name, content in _model_files().items():
        (inside / name).write_bytes(content)
    _spoil(inside, *change)
    before = seen(folder)
    loaded, error = tried(lambda: _load(inside), BadRequest)
    if loaded is None:
        assert error.what
        assert error.why
    else:
        expected, state, text = loaded
        assert {name: tensor.shape for name, tensor in state.items()} == dict(expected)
        assert all(torch.isfinite(tensor).all() for tensor in state.values())
        text.encode("def f(x):")
    assert seen(folder) == before, "nothing is written, and no code is run"


def _load(inside: Path) -> tuple[Mapping[str, torch.Size], Mapping[str, torch.Tensor], tokenizer.Tokenizer]:
    expected = parameter_shapes(gpt2_config(inside))
    return expected, dict(read_weights(inside, expected)), tokenizer.for_model(inside)


def _spoil(inside: Path, kind: str, how: Any) -> None:
    weights = inside / WEIGHTS
    match kind:
        case "config":
            (inside / CONFIG).write_text(json.dumps(json.loads((inside / CONFIG).read_text()) | how))
        case "header":
            weights.write_bytes(struct.pack("<Q", how) + weights.read_bytes()[8:])
        case "tensor":
            tensors = load_file(weights)
            name = sorted(tensors)[how[0] % len(tensors)]
            match how[1]:
                case "nan" | "inf":
                    tensors[name].view(-1)[0] = float(how[1])
                case "shape":
                    tensors[name] = tensors[name][:1].clone()
                case "int":
                    tensors[name] = tensors[name].to(torch.int32)
                case "gone":
                    del tensors[name]
            save_file(tensors, weights)
        case "name":
            save_file(load_file(weights) | {how: torch.ones(1)}, weights)
        case "pickle":
            weights.unlink()
            (inside / how).write_bytes(pickle.dumps(Armed(inside.parent / "evil")))
        case "index":
            names = dict.fromkeys(load_file(weights), how)
            (inside / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
            weights.unlink()
        case _:
            (inside / kind).write_bytes(edited((inside / kind).read_bytes(), how))


# ---- bundles and CSV


def made_log(**settings: Any) -> RunLog:
    log = RunLog()
    config = RunConfig(device="cpu", **settings)
    log.begin_run(1, config)
    log.begin_segment(1, config, Segment(index=0, first_step=0, changes=(), started_at="2026-01-02T03:04:05Z"))
    made = [
        Sample(step=i, segment=0, phase="steady", time_s=i / 9, tokens=8, step_ms=3.0 + i, loss=1.0) for i in range(9)
    ]
    log.append(1, made)
    log.end(1, "completed")
    return log


@functools.cache
def _bundle() -> bytes:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "made.zip"
        write_bundle(path, made_log().runs, toggles=baseline_levels())
        return path.read_bytes()


bundle_changes = st.one_of(
    st.tuples(st.just("bytes"), edits),
    st.tuples(st.just("junk"), st.one_of(st.binary(max_size=400), st.binary(max_size=400).map(b"PK\x03\x04".__add__))),
    st.tuples(st.sampled_from(["runs.json", "samples.csv"]), edits),
    st.tuples(st.just("entry"), st.sampled_from(["../../evil", "/evil", "C:\\evil", "a/../../evil"])),
)


def bundle(change: tuple[str, Any], folder: Path) -> None:
    kind, how = change
    path = folder / "inside" / "bundle.zip"
    path.parent.mkdir()
    if kind in ("bytes", "junk"):
        path.write_bytes(edited(_bundle(), how) if kind == "bytes" else how)
    else:
        with zipfile.ZipFile(io.BytesIO(_bundle())) as old, zipfile.ZipFile(path, "w") as new:
            for name in old.namelist():
                new.writestr(name, edited(old.read(name), how) if name == kind else old.read(name))
            if kind == "entry":
                new.writestr(how, "evil")
    before = seen(folder)
    read, error = tried(lambda: read_bundle(path), ValueError)
    if read is None:
        assert str(path) in str(error)
    else:
        (record,) = read.runs
        assert record.config.device
        assert len(record.columns) <= 10
    assert seen(folder) == before


labels = st.one_of(
    st.text(max_size=20), st.tuples(st.sampled_from("=+-@\t\r\n\"',;|"), st.text(max_size=9)).map("".join)
)


def csv_cells(label: str, folder: Path) -> None:
    path = folder / "runs.csv"
    write_segments(path, made_log(model=label or "x", prompt=label, text=label or "x").runs, toggles=baseline_levels())
    assert [p.name for p in folder.iterdir()] == ["runs.csv"]
    with path.open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file, strict=True)
    assert row["model"].removeprefix("'") == (label or "x").removeprefix("'")
    for cell in row.values():
        try:
            float(cell)
        except ValueError:
            assert not cell.startswith(("=", "+", "-", "@", "\t", "\r")), "a spreadsheet would compute this"


CHECKS: Mapping[str, Check] = {
    "text file": Check(values=st.one_of(st.binary(max_size=200), encoded), holds=text_file),
    "prompt": Check(values=st.one_of(any_text, any_text.map(lambda t: t + "\udc80"), labels), holds=prompt),
    "model folder": Check(values=model_changes, holds=model_folder),
    "bundle": Check(values=bundle_changes, holds=bundle),
    "arguments": Check(values=typed(), holds=arguments),
    "CSV": Check(values=labels, holds=csv_cells),
}
