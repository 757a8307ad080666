"""A model as one file for serving: torch.export's (.pt2) or ONNX's, held against the model before it is written.

The graph takes token ids, int64 [batch, sequence], and returns logits, float32 [batch, sequence, vocabulary]; both
sizes are free, the sequence up to the model's positions. It keeps no cache of keys and values.
"""

from __future__ import annotations

import importlib.util
import io
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from transformers import GPT2LMHeadModel

from explorer.engine.errors import BadRequest, Cancelled
from explorer.engine.reporting import Report
from explorer.results.atomic import check_target, replaced

TORCH, ONNX = ".pt2", ".onnx"
NEEDED = ("onnx", "onnxscript", "onnxruntime")
ONNX_MOST_BYTES = 2**31 - 2**24
"""Source: a protocol buffer holds 2 GiB at most (protobuf.dev, "Total Message Size"); less what is not weights."""
ROUNDING = 4.0
"""As many times as far from float64 as the model itself may the file be: its kernels add up in another order."""
LONG = 128
"""Tokens of the longer text that the file is checked with: in float64 1024 took a CPU half a minute."""
TRACED = (2, 8)
"""Batch and sequence of the tokens that the model is traced with."""


class _Logits(nn.Module):
    """The model from token ids to logits."""

    def __init__(self, model: GPT2LMHeadModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=input_ids, use_cache=False).logits
        return logits


def check(target: Path) -> None:
    """See before anything is loaded whether a model can be written to ``target``.

    Raises:
        BadRequest: its name ends neither in .pt2 nor in .onnx, it cannot be written, or what ONNX needs is not here.
    """
    if target.suffix not in (TORCH, ONNX):
        raise BadRequest("Not exported", f"{target.name} is no {TORCH} and no {ONNX} file", "Let its name end in one.")
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if target.suffix == ONNX and missing:
        why = f"ONNX needs {', '.join(missing)}, not installed here"
        raise BadRequest("Not exported", why, f"pip install {' '.join(NEEDED)}, or export a {TORCH} file.")
    try:
        check_target(target)
    except ValueError as error:
        raise BadRequest("Not exported", str(error)) from error


def export(model: GPT2LMHeadModel, target: Path, *, report: Report, cancelled: Callable[[], bool]) -> tuple[float, int]:
    """Write ``model``, float32 on the host, to ``target``; whole or not at all. Its attention becomes SDPA's.

    Returns:
        the largest difference of a logit from the model's, and the file's size in bytes.

    Raises:
        BadRequest: as ``check``, or the model is too large for the format.
        Cancelled: ``cancelled`` came true; a trace that has begun is brought to its end first.
        RuntimeError: the file does not compute what the model does, or the disk fails.
    """
    check(target)
    size_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
    if target.suffix == ONNX and size_bytes > ONNX_MOST_BYTES:
        why = f"its weights take {size_bytes / 2**30:.1f} GiB, and one ONNX file holds 2"
        raise BadRequest("Not exported", why, f"Export a {TORCH} file.")

    def begin(activity: str) -> None:
        if cancelled():
            raise Cancelled
        report(activity, None, None, "")

    model.eval()
    model.set_attn_implementation("sdpa")
    original = _Logits(model)
    positions = model.config.n_positions
    with torch.no_grad(), warnings.catch_warnings():
        # torch 2.13 warns of its own calls while it traces.
        warnings.simplefilter("ignore")
        begin("tracing the model")
        traced = torch.export.export(
            original,
            (_tokens(model, (TRACED[0], min(TRACED[1], positions))),),
            dynamic_shapes=({0: Dim("batch", min=1), 1: Dim("sequence", min=1, max=positions)},),
            strict=False,
        )
        if target.suffix == ONNX:
            begin("translating it to ONNX")
            content = _onnx(traced)
            begin("checking the file against the model")
            run = _onnx_session(content)
        else:
            content = _torch(traced)
            begin("checking the file against the model")
            run = torch.export.load(io.BytesIO(content)).module()
        error = _checked(original, run, [(1, min(5, positions)), (3, min(LONG, positions))])
    begin("writing the file")
    with replaced(target) as file:
        file.write(content)
    return error, len(content)


def _tokens(model: GPT2LMHeadModel, size: tuple[int, int]) -> Tensor:
    return torch.randint(0, model.config.vocab_size, size, generator=torch.Generator().manual_seed(0))


def _torch(traced: ExportedProgram) -> bytes:
    buffer = io.BytesIO()
    torch.export.save(traced, buffer)
    return buffer.getvalue()


def _onnx(traced: ExportedProgram) -> bytes:
    program: Any = torch.onnx.export(
        traced, dynamo=True, input_names=["input_ids"], output_names=["logits"], verbose=False
    )
    content: bytes = program.model_proto.SerializeToString()
    return content


def _onnx_session(content: bytes) -> Callable[[Tensor], Tensor]:
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return lambda tokens: torch.from_numpy(session.run(None, {"input_ids": tokens.numpy()})[0])


def _checked(original: _Logits, run: Callable[[Tensor], Tensor], sizes: Iterable[tuple[int, int]]) -> float:
    """The largest difference of a logit of ``run`` from the model's.

    Raises:
        RuntimeError: it is more than rounding in float32 explains, by a pass of the model in float64.
    """
    largest = 0.0
    for size in sizes:
        tokens = _tokens(original.model, size)
        found, own = run(tokens), original(tokens)
        exact = original.double()(tokens)
        original.float()
        least = torch.finfo(torch.float32).eps * float(exact.abs().max())
        allowed = ROUNDING * max(float((own - exact).abs().max()), least)
        off = float((found - exact).abs().max())
        if not off <= allowed:
            raise RuntimeError(
                f"the file's logits for {size[0]} x {size[1]} tokens are off by {off:.2g}, where rounding explains "
                f"{allowed:.2g}; it was not written"
            )
        largest = max(largest, float((found - own).abs().max()))
    return largest
