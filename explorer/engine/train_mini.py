"""The recipe of the bundled model: ``python main.py train-mini --out FOLDER`` makes ``mini.safetensors``.

GPT-2's own training step under this project's own toggles, with a learning rate that warms up and decays. It keeps a
checkpoint every minute: the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import math
import platform
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import GPT2LMHeadModel

from explorer.arguments import above_zero, at_least, folder
from explorer.config import RunConfig
from explorer.ctrl_c import ctrl_c_asks
from explorer.engine import model, tokenizer
from explorer.engine.cache import write_atomically
from explorer.engine.checkpoint import EMBEDDING, LM_HEAD
from explorer.engine.data import Batches
from explorer.engine.errors import Cancelled
from explorer.engine.mini_corpus import PACKAGES, Corpus, collect
from explorer.engine.mini_judgement import Judgement, judge
from explorer.engine.token_cache import tokenize
from explorer.engine.tokenizer import Tokenizer
from explorer.engine.training import train_step
from explorer.optimizations import registry
from explorer.optimizations.base import Run

PEAK_LR = 1e-2
WARMUP_SHARE = 0.02
"""Of all steps, those over which the learning rate rises."""
DECAY_SHARE = 0.6
"""Of all steps, the last ones, over which it falls to 0. Source: Haegele et al. 2024, arxiv.org/abs/2405.18392."""
WEIGHT_DECAY = 0.05
BETAS = (0.9, 0.95)
"""Of AdamW. Source: Brown et al. 2020 (GPT-3), appendix B."""
TIMED_STEPS = 30
CURVE_POINTS = 200
CHECKPOINT_EVERY_S = 60.0
OVERTIME = 1.1
"""Training stops when its time is over by this factor: the number of steps was found by timing a few."""
LARGEST_FILE_BYTES = 16_000_000

Say = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class State:
    """What a checkpoint holds besides weights and optimizer."""

    corpus: str
    """Hash of the tokens: a checkpoint goes on only with the corpus that it began with."""
    batch: int
    seq: int
    seed: int
    steps: int
    """In all; 0 until they have been timed."""
    step: int = 0
    seconds: float = 0.0
    """Spent in training steps."""
    curve: list[tuple[int, float]] = field(default_factory=list)
    """Step and training loss, in nats a token."""


def learning_rate(step: int, steps: int) -> float:
    """Linear from 0 to ``PEAK_LR``, then level, then linear towards 0."""
    return PEAK_LR * min(1.0, (step + 1) / (WARMUP_SHARE * steps), (steps - step) / (DECAY_SHARE * steps))


def train(
    out: Path,
    *,
    minutes: float,
    device: torch.device,
    say: Say,
    steps: int | None = None,
    batch: int = 64,
    seq: int = 1024,
    seed: int = 0,
    compiled: bool = False,
    packages: Sequence[str] = PACKAGES,
    limit_bytes: int | None = None,
    samples: int = 50,
    sampled_tokens: int = 128,
    command: str = "",
    asked_to_stop: Callable[[], bool] = lambda: False,
) -> Path | None:
    """Train ``mini`` and write weights, manifest and samples to ``out``.

    Args:
        minutes: how long the training steps of this call may take, a tenth more or less.
        steps: of the whole training; None: as many as fit into ``minutes``, found by timing the first ones.
        limit_bytes: of each package's sources at most this much, to try the recipe out.
        samples: how many texts of ``sampled_tokens`` tokens the model is judged by.
        command: what to state in the manifest as having made the model.
        asked_to_stop: whether to end after this step, with a checkpoint of it.

    Returns:
        The weights' file, or None where time ran out or a stop was asked for: the same call goes on from the
        checkpoint.

    Raises:
        Cancelled: a stop was asked for before the first step.
        ValueError: the checkpoint in ``out`` is of another corpus or other settings, or the corpus is too small.
    """
    out.mkdir(parents=True, exist_ok=True)
    text = tokenizer.bundled()
    corpus = collect(packages, limit_bytes=limit_bytes)
    say(f"corpus: {len(corpus.train)} files to train on, {len(corpus.held_out)} held out")
    tokens = _tokens(corpus.train, text, say, asked_to_stop)
    state = State(
        corpus=hashlib.sha256(tokens.tobytes()).hexdigest(), batch=batch, seq=seq, seed=seed, steps=steps or 0
    )
    # bf16 and the fused kernels are for CUDA; on the CPU the recipe can be tried out, no more.
    levels = {"dropout": "off", "attention": "sdpa", "gelu": "torch"}
    if device.type == "cuda":
        levels["precision"] = "bf16"
    config = RunConfig(
        model="mini",
        device=str(device),
        batch=batch,
        seq=seq,
        seed=seed,
        lr=PEAK_LR,
        weight_decay=WEIGHT_DECAY,
        levels=tuple(levels.items()),
    )
    loaded = model.load(config, device, download=False, progress=lambda *_: None, cancelled=lambda: False)
    optimizer: torch.optim.Optimizer
    if device.type == "cuda":
        optimizer = cast(torch.optim.Optimizer, MuonAndAdamW(loaded.model, device))
    else:  # Muon's products in bfloat16 take 20 s a step there
        optimizer = torch.optim.AdamW(_groups(loaded.model.parameters()), lr=PEAK_LR, betas=BETAS)
    run = Run(config=config, device=device, model=loaded.model, optimizer=optimizer)
    checkpoint = out / "checkpoint.pt"
    _resume(checkpoint, run, state, say)
    with ExitStack() as stack:
        registry.enter(stack, run)
        if compiled:
            run.model.compile()
            stack.callback(setattr, run.model, "_compiled_call_impl", None)  # judging has other shapes
        source = Batches(tokens, batch=batch, seq=seq, seed=seed, device=device, first=state.step)
        _run_steps(run, stack.enter_context(source), state, minutes * 60, checkpoint, say, asked_to_stop)
    if state.steps == 0 or state.step < state.steps:
        say(f"stopped at step {state.step} of {state.steps or 'some'}; the same command goes on from {checkpoint}")
        return None
    path = _ship(out, run.model)
    say("judging on held-out text")
    found = judge(
        run.model,
        text,
        corpus.held_out,
        _tokens(corpus.held_out, text, say),
        _tokens(corpus.original, text, say),
        device,
        samples=samples,
        new_tokens=sampled_tokens,
    )
    say(
        f"{found.bits_per_byte:.3f} bits a byte (xz -9: {found.xz_bits_per_byte:.3f}); {found.parse_share:.0%} of "
        f"{found.samples} samples parse; {found.copied_samples} copy"
    )
    _write_manifest(path, state, corpus, found, len(tokens), text, device, command)
    return path


def _tokens(
    documents: Sequence[str], text: Tokenizer, say: Say, asked_to_stop: Callable[[], bool] = lambda: False
) -> np.ndarray:
    began = time.perf_counter()
    tokens = tokenize(documents, text, lambda *_: None, asked_to_stop)
    characters = sum(map(len, documents))
    say(f"{len(tokens):,} tokens of {characters:,} characters in {time.perf_counter() - began:.1f} s")
    return tokens


def _groups(parameters: Iterable[torch.nn.Parameter]) -> list[dict[str, Any]]:
    """For AdamW: biases and layer norms are not drawn to zero."""
    parameters = list(parameters)
    return [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]


class MuonAndAdamW:
    """Muon for the blocks' matrices, AdamW for embeddings, biases and norms, with what a step asks of an optimizer.

    After 49 million tokens on an H200 the held-out text took 0.64 bits a byte, against 0.75 with AdamW alone.
    Source: Jordan 2024, kellerjordan.github.io/posts/muon; the scaled rate: Liu et al. 2025, arxiv.org/abs/2502.16982.
    """

    def __init__(self, gpt2: GPT2LMHeadModel, device: torch.device) -> None:
        matrices = {name: p for name, p in gpt2.named_parameters() if ".h." in name and p.dim() >= 2}
        others = (p for name, p in gpt2.named_parameters() if name not in matrices)
        self._both: tuple[torch.optim.Optimizer, torch.optim.Optimizer] = (
            torch.optim.Muon(matrices.values(), lr=PEAK_LR, weight_decay=WEIGHT_DECAY, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(_groups(others), lr=PEAK_LR, betas=BETAS, fused=device.type == "cuda"),
        )
        self.param_groups = [group for optimizer in self._both for group in optimizer.param_groups]

    def zero_grad(self, set_to_none: bool = True) -> None:
        for optimizer in self._both:
            optimizer.zero_grad(set_to_none=set_to_none)

    def step(self) -> None:
        for optimizer in self._both:
            optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        return {"muon": self._both[0].state_dict(), "adamw": self._both[1].state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._both[0].load_state_dict(state["muon"])
        self._both[1].load_state_dict(state["adamw"])
        self.param_groups[:] = [group for optimizer in self._both for group in optimizer.param_groups]


def _run_steps(
    run: Run,
    batches: Batches,
    state: State,
    limit_s: float,
    checkpoint: Path,
    say: Say,
    asked_to_stop: Callable[[], bool],
) -> None:
    """Train until ``state.steps``, until ``limit_s`` seconds have gone, or until a stop is asked for."""
    run.model.train()
    losses: list[torch.Tensor] = []
    before_s, first_step = state.seconds, state.step
    began = saved = time.perf_counter()
    timed_from: tuple[int, float] | None = None
    noted = first_step, began
    while (state.steps == 0 or state.step < state.steps) and not asked_to_stop():
        assert run.optimizer is not None
        for group in run.optimizer.param_groups:
            # Until the steps have been timed their number is unknown, but this is the warm-up's beginning anyway.
            group["lr"] = learning_rate(state.step, state.steps or 5000)
        loss, _ = train_step(run, batches.next()[0])
        losses.append(loss)
        state.step += 1
        if state.steps == 0 and state.step in (first_step + TIMED_STEPS, first_step + 2 * TIMED_STEPS):
            float(loss)  # waits for the device
            now = time.perf_counter()
            if timed_from is None:  # the first ones compiled, and found their memory
                timed_from = (state.step, now)
            else:
                step_s = (now - timed_from[1]) / TIMED_STEPS
                state.steps = max(state.step + 1, int((limit_s - (now - began)) / step_s) + state.step)
                say(f"{step_s * 1e3:.1f} ms a step: {state.steps} steps")
        every = max(1, state.steps // CURVE_POINTS)
        if len(losses) >= every and state.steps:
            mean = float(torch.stack(losses).mean())  # waits for the device, some 200 times in all
            losses.clear()
            now = time.perf_counter()
            state.seconds = before_s + now - began
            state.curve.append((state.step, mean))
            rate = (state.step - noted[0]) * state.batch * state.seq / (now - noted[1])
            noted = state.step, now
            say(f"step {state.step}/{state.steps}  loss {mean:.4f}  {rate:,.0f} tokens/s  {state.seconds:.0f} s")
            if not math.isfinite(mean):
                raise RuntimeError(f"the loss is {mean} at step {state.step}: training has diverged")
            if now - saved > CHECKPOINT_EVERY_S or now - began > limit_s * OVERTIME:
                _save(checkpoint, run, state)
                saved = time.perf_counter()
            if now - began > limit_s * OVERTIME:
                return
    state.seconds = before_s + time.perf_counter() - began
    _save(checkpoint, run, state)


def _save(path: Path, run: Run, state: State) -> None:
    assert run.optimizer is not None
    content = {
        "state": dataclasses.asdict(state),
        "model": run.model.state_dict(),
        "optimizer": run.optimizer.state_dict(),
    }
    write_atomically(path, lambda file: torch.save(content, file))


def _resume(path: Path, run: Run, state: State, say: Say) -> None:
    if not path.exists():
        return
    # weights_only: nothing but tensors and plain values is read.
    content = torch.load(path, map_location=run.device, weights_only=True)
    kept = State(**content["state"])
    for name in ("corpus", "batch", "seq", "seed"):
        if getattr(kept, name) != getattr(state, name):
            raise ValueError(f"{path} was made with another {name}; use another folder, or delete it to begin again")
    if state.steps not in (0, kept.steps):
        raise ValueError(f"{path} is of a training of {kept.steps} steps, not {state.steps}; leave --steps away")
    for item in dataclasses.fields(State):
        setattr(state, item.name, getattr(kept, item.name))
    run.model.load_state_dict(content["model"])
    assert run.optimizer is not None
    run.optimizer.load_state_dict(content["optimizer"])
    say(f"going on from step {state.step} of {state.steps}")


def _ship(out: Path, trained: GPT2LMHeadModel) -> Path:
    """Write the weights in bfloat16, and leave ``trained`` with exactly those, to be judged."""
    shipped = {
        name: tensor.to(torch.bfloat16).cpu().contiguous()
        for name, tensor in trained.state_dict().items()
        if name != LM_HEAD
    }
    path = out / "mini.safetensors"
    save_file(shipped, path, metadata={"format": "pt"})
    if path.stat().st_size > LARGEST_FILE_BYTES:
        raise RuntimeError(f"{path} has {path.stat().st_size} bytes; at most {LARGEST_FILE_BYTES} are allowed")
    trained.load_state_dict({**shipped, LM_HEAD: shipped[EMBEDDING]})
    return path


def _write_manifest(
    path: Path,
    state: State,
    corpus: Corpus,
    found: Judgement,
    corpus_tokens: int,
    text: Tokenizer,
    device: torch.device,
    command: str,
) -> None:
    judgement = dataclasses.asdict(found)
    samples = judgement.pop("texts")
    manifest = {
        "command": command,
        "made": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "CPU",
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
        "sha256": {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest(),
            "tokenizer": hashlib.sha256(text.to_json().encode()).hexdigest(),
            "training tokens": state.corpus,
        },
        "corpus": [dataclasses.asdict(origin) for origin in corpus.origins],
        "corpus_tokens": corpus_tokens,
        "training": {
            "steps": state.steps,
            "batch": state.batch,
            "seq": state.seq,
            "seed": state.seed,
            "tokens": state.steps * state.batch * state.seq,
            "seconds": round(state.seconds, 1),
            "peak_lr": PEAK_LR,
            "optimizer": "Muon for the blocks' matrices, AdamW for the rest",
            "weight_decay": WEIGHT_DECAY,
        },
        "held_out": judgement,
        "loss_curve": state.curve,
    }
    _write_json(path.with_suffix(".json"), manifest)
    _write_json(path.with_suffix(".samples.json"), samples)


def _write_json(path: Path, content: Any) -> None:
    written = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    write_atomically(path, lambda file: file.write(written.encode("utf-8", errors="replace")))


def _to_terminal(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(argv: Sequence[str], say: Say = _to_terminal) -> int:
    """Run the recipe with command-line arguments ``argv``; ``say`` is called with each line to show.

    Returns:
        0 where the model is made, 3 where time ran out and the same command goes on, 130 where Ctrl-C ended it: the
        same command goes on, too.

    Raises:
        ValueError: as ``train``.
    """
    args = _parser().parse_args(argv)
    above_zero("--minutes", args.minutes)
    if args.limit_mb is not None:
        above_zero("--limit-mb", args.limit_mb)
    if args.steps is not None:
        at_least("--steps", args.steps, 1)
    device = _device(args.device)
    RunConfig(batch=args.batch, seq=args.seq, seed=args.seed)  # within the limits, or ValueError
    folder("--out", args.out)
    with ctrl_c_asks() as asked_to_stop:
        try:
            made = train(
                args.out,
                minutes=args.minutes,
                device=device,
                say=say,
                steps=args.steps,
                batch=args.batch,
                seq=args.seq,
                seed=args.seed,
                compiled=args.compile,
                limit_bytes=None if args.limit_mb is None else int(args.limit_mb * 1e6),
                command=" ".join(["python main.py train-mini", *argv]),
                asked_to_stop=asked_to_stop,
            )
        except Cancelled:
            return 130
        if made is None and asked_to_stop():
            return 130
    return 0 if made is not None else 3


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python main.py train-mini", description="Train the bundled model.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the model, its manifest and the checkpoint")
    parser.add_argument("--minutes", type=float, default=6.0, help="of training steps in this call (default: 6)")
    parser.add_argument("--steps", type=int, help="of the whole training (default: as many as fit into --minutes)")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action="store_true", help="compile the model (a minute once, then faster steps)")
    parser.add_argument("--limit-mb", type=float, help="read this much of each package only, to try the recipe out")
    return parser


def _device(name: str) -> torch.device:
    """The device of that name.

    Raises:
        ValueError: it is not here.
    """
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:  # AssertionError: this torch has no CUDA
        raise ValueError(f"--device is {name!r}; it is not here: {str(error).splitlines()[0]}") from error
