"""The state of a training run in a file: weights, optimizer, random numbers, how far it is.

Written where what comes next may cost the process, read by the process that takes its place. Only safetensors: no code.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from explorer.optimizations.base import Run

WEIGHT, STATE, RANDOM = "weight/", "state/", "random/"


def park(run: Run, path: Path, *, step: int, batch: int) -> None:
    """Write ``run``, which must be under no toggle, to ``path``; the file that was there stays until this is whole.

    Args:
        step: the number of the next step.
        batch: the number of the next batch.

    Raises:
        RuntimeError: the disk is full or fails.
    """
    assert run.optimizer is not None
    tensors = {f"{RANDOM}cpu": torch.get_rng_state()}
    if run.device.type == "cuda":
        tensors[f"{RANDOM}cuda"] = torch.cuda.get_rng_state(run.device)
    for name, parameter in run.model.named_parameters():
        tensors[f"{WEIGHT}{name}"] = parameter.detach().contiguous()
        for key, value in run.optimizer.state.get(parameter, {}).items():
            tensors[f"{STATE}{key}/{name}"] = value.contiguous()
    written = path.with_name(f"{path.name}.new")
    words = {"step": str(step), "batch": str(batch), "kept": json.dumps(run.kept)}
    try:
        save_file(tensors, written, metadata=words)
        os.replace(written, path)
    except Exception as error:  # safetensors raises an error of its own for the disk's
        written.unlink(missing_ok=True)
        raise RuntimeError(f"{path} cannot be written: {str(error).splitlines()[0]}") from error


def unpark(run: Run, path: Path) -> tuple[int, int]:
    """Make ``run``, of the same model and under no toggle, what was written; returns the next step and batch."""
    assert run.optimizer is not None
    with safe_open(path, framework="pt", device="cpu") as file:
        names = set(file.keys())
        for name, parameter in run.model.named_parameters():
            parameter.data.copy_(file.get_tensor(f"{WEIGHT}{name}"))
            ending = f"/{name}"
            for stored in [n for n in names if n.startswith(STATE) and n.endswith(ending)]:
                key = stored.removeprefix(STATE).removesuffix(ending)
                if "/" not in key:
                    run.optimizer.state[parameter][key] = _beside(file.get_tensor(stored), parameter)
        words = file.metadata()
        torch.set_rng_state(file.get_tensor(f"{RANDOM}cpu"))
        if run.device.type == "cuda":
            torch.cuda.set_rng_state(file.get_tensor(f"{RANDOM}cuda"), run.device)
    run.kept.update(json.loads(words["kept"]))
    return int(words["step"]), int(words["batch"])


def _beside(value: Tensor, parameter: Tensor) -> Tensor:
    """An average beside its weight; the step count, a scalar, on the host, where a plain optimizer has it."""
    return value.to(parameter.device) if value.shape == parameter.shape else value
