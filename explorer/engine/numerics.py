"""What one configuration computes, brought to the host to be compared: the numbers, not their speed.

T tokens of the first sequence, D numbers a token, V logits a token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from explorer.engine.errors import Cancelled
from explorer.engine.generation import GenerationLoop
from explorer.engine.held_out import perplexity
from explorer.engine.reporting import Report
from explorer.engine.session import Session
from explorer.engine.training import TrainingLoop
from explorer.optimizations.base import Run
from explorer.optimizations.compiled import as_written, is_compiled
from explorer.results.parity import Arm, Breakdown

SMALLEST_SCALE = 2.0**-20
"""fp16: a gradient that overflows at this loss scale overflows at any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """One arm's numbers. All tensors are on the host, those of the exact arm in float64."""

    arm: Arm
    activation: str
    """The model's activation function, by transformers' name."""
    logits: Tensor
    """float32 (T, V): of the first batch's first sequence before any update, or of the prompt."""
    blocks: Mapping[str, Tensor]
    """float32 (T, D) by the block's name: its output in the same forward pass."""
    gradients: Mapping[str, Tensor] = field(default_factory=dict)
    """float32 by the parameter's name: of the first step, unscaled and unclipped."""
    tokens: tuple[int, ...] = ()
    """Greedy text after the prompt."""
    text_logits: Tensor | None = None
    """float32 (n, V), decoded token by token along the text that was given, or this arm's own."""


def of_training(session: Session, steps: int, report: Report, cancelled: Callable[[], bool]) -> Numerics:
    """Train for ``steps`` steps, with the toggles entered, and keep what the first one computed.

    A step whose gradient overflows in fp16 is done again with half the scale, as GradScaler sets it. A loss or a
    gradient that is not finite ends the arm.

    Raises:
        Cancelled: ``cancelled`` came true.
    """
    run, batches = session.run, session.batches
    losses: list[float] = []
    norms: list[float] = []
    scales: list[float] = []
    skipped: list[int] = []
    gradients: dict[str, Tensor] = {}
    breakdown = None
    tokens, _ = batches.next()
    logits, blocks = _forward(run, tokens)
    for step in range(steps):
        if step:
            tokens, _ = batches.next()
        try:
            loss, norm, scale, overflows = _step(session, tokens, cancelled)
        except FloatingPointError as error:
            breakdown = Breakdown(step=step, cause=str(error))
            break
        losses.append(loss)
        norms.append(norm)
        scales += [] if scale is None else [scale]
        skipped += [step] * overflows
        if not step:
            gradients = _gradients(run, norm)
        report("training", step + 1, steps, "steps")
    arm = Arm(
        losses=tuple(losses),
        grad_norms=tuple(norms),
        loss_scales=tuple(scales),
        skipped=tuple(skipped),
        breakdown=breakdown,
    )
    activation = run.model.config.activation_function
    return Numerics(arm=arm, activation=activation, logits=logits, blocks=blocks, gradients=gradients)


def _step(session: Session, tokens: Tensor, cancelled: Callable[[], bool]) -> tuple[float, float, float | None, int]:
    """Loss, gradient norm and loss scale of one training step, and how often it was skipped before it took place.

    Raises:
        FloatingPointError: the loss or the gradient is not finite.
    """
    run, loop = session.run, session.loop
    assert isinstance(loop, TrainingLoop)
    overflows = 0
    while True:
        if cancelled():
            raise Cancelled
        scale = None if run.scaler is None else run.scaler.get_scale()
        # A look at the loss would be compiled with the model, or recorded with the step, and neither can be.
        whole = loop.replays or is_compiled(run.model)
        try:
            with nullcontext() if whole else _loss_watched(run.model):
                loss, norm = (float(value) for value in loop.advance(tokens))
        except FloatingPointError as error:
            raise FloatingPointError(f"{error}: {_cause(run, tokens)}") from None
        if not math.isfinite(loss):
            # The update has taken place: what is not finite in the weights by now is no cause.
            raise FloatingPointError(f"the loss is {loss}, in a step that cannot be looked into: it runs as a whole")
        if math.isfinite(norm):
            return loss, norm, scale, overflows
        if scale is None or scale <= SMALLEST_SCALE:
            at = "" if scale is None else f" and a loss scale of {scale:g}"
            raise FloatingPointError(f"the gradient's norm is {norm}, at a loss of {loss:.4g}{at}")
        overflows += 1


@contextmanager
def _loss_watched(model: nn.Module) -> Iterator[None]:
    """Raise FloatingPointError at a loss that is not finite: before the backward pass, so before the update."""

    def look(module: nn.Module, inputs: Any, output: Any) -> None:
        loss = float(output.loss.detach())
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss}")

    handle = model.register_forward_hook(look)
    try:
        yield
    finally:
        handle.remove()


def _cause(run: Run, tokens: Tensor) -> str:
    """Where the first number that is not finite comes from: a weight, or a module's output."""
    for name, parameter in run.model.named_parameters():
        if not parameter.isfinite().all():
            return f"the weights are not finite, first in {name}"
    found: list[str] = []

    def look(name: str, output: Tensor) -> None:
        if not found and not output.isfinite().all():
            found.append(f"the output of {name} leaves the range of {str(output.dtype).removeprefix('torch.')}")

    with as_written(run.model), _outputs(dict(run.model.named_modules()), look), torch.no_grad(), run.autocast():
        run.model(input_ids=tokens, use_cache=False)
    return found[0] if found else "every output before it is finite"


def _forward(run: Run, tokens: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits and each block's output for the first row of ``tokens`` (B, T), in at least float32 on the host."""
    kept: dict[str, Tensor] = {}

    def keep(name: str, output: Tensor) -> None:
        kept[name] = _on_host(output[0])

    blocks = {f"transformer.h.{index}": block for index, block in enumerate(run.model.transformer.h)}
    with as_written(run.model) as compiled, _outputs(blocks, keep), torch.no_grad(), run.autocast():
        logits = run.model(input_ids=tokens, use_cache=False).logits
    if compiled:  # its blocks cannot be looked into, but its logits are those that count: as in a step, compiled once
        with run.autocast():
            in_step = run.model(input_ids=tokens, labels=tokens, use_cache=False).logits
        logits = logits if in_step is None else in_step  # a loss that takes the hidden state makes none in a step
    return _on_host(logits[0].detach()), kept


def _on_host(tensor: Tensor) -> Tensor:
    # Always a copy: on the CPU one sequence's view would keep the whole batch's logits.
    return tensor.to("cpu", torch.promote_types(tensor.dtype, torch.float32), copy=True)


@contextmanager
def _outputs(modules: Mapping[str, nn.Module], see: Callable[[str, Tensor], None]) -> Iterator[None]:
    """``see`` is called with each module's name and its output (the first one, of several), when it is computed."""
    with ExitStack() as hooks:
        for name, module in modules.items():

            def hook(module: nn.Module, inputs: Any, output: Any, name: str = name) -> None:
                first = output[0] if isinstance(output, tuple) else output
                if isinstance(first, Tensor):
                    see(name, first)

            hooks.callback(module.register_forward_hook(hook).remove)
        yield


def _gradients(run: Run, norm: float) -> dict[str, Tensor]:
    """What train_step left in ``grad``, with its clipping undone; of a padded vocabulary, its tokens' rows."""
    clip = run.config.grad_clip
    # Source: torch.nn.utils.clip_grads_with_norm_, which multiplies by min(1, clip / (norm + 1e-6)).
    shrunk = min(1.0, clip / (norm + 1e-6)) if clip else 1.0
    rows = {"transformer.wte.weight": run.model.config.vocab_size}
    named = run.model.named_parameters()
    return {name: p.grad.detach()[: rows.get(name)].float().cpu() / shrunk for name, p in named if p.grad is not None}


def exact_training(session: Session, cancelled: Callable[[], bool]) -> Numerics:
    """What ``of_training`` keeps of the first step, in float64. The session's model stays in float64.

    Sequence by sequence, so that it needs no more memory than the reference does; the batch's loss is the mean of
    theirs.

    Raises:
        Cancelled: ``cancelled`` came true.
    """
    model = session.run.model.double()
    tokens, _ = session.batches.next()
    logits, blocks = _forward(session.run, tokens[:1])
    for row in tokens:
        if cancelled():
            raise Cancelled
        # Not the model's own loss: that rounds the logits to float32.
        found = model(input_ids=row[None], use_cache=False).logits[0]
        (functional.cross_entropy(found[:-1], row[1:]) / len(tokens)).backward()
    gradients = {name: p.grad.cpu() for name, p in model.named_parameters() if p.grad is not None}
    return _exact(session, logits, blocks, gradients=gradients)


def exact_generation(session: Session, along: tuple[int, ...]) -> Numerics:
    """What ``of_generation`` keeps of the prompt and of the text ``along``, in float64, without a cache.

    The session's model stays in float64.
    """
    loop = session.loop
    assert isinstance(loop, GenerationLoop)
    model, prompt = session.run.model.double(), loop.tokens
    logits, blocks = _forward(session.run, prompt)
    text = torch.cat([prompt[0], prompt.new_tensor(along[:-1])])
    with torch.no_grad():
        text_logits = model(input_ids=text[None], use_cache=False).logits[0, prompt.shape[1] - 1 :]
    return _exact(session, logits, blocks, text_logits=_on_host(text_logits))


def _exact(session: Session, logits: Tensor, blocks: Mapping[str, Tensor], **more: Any) -> Numerics:
    activation = session.run.model.config.activation_function
    return Numerics(arm=Arm(), activation=activation, logits=logits, blocks=blocks, **more)


def of_generation(
    session: Session, along: tuple[int, ...] | None, report: Report, cancelled: Callable[[], bool]
) -> Numerics:
    """Write greedy text, with the toggles entered; then decode logits ``along`` a given text, or along its own, and
    foretell held-out text.

    Raises:
        Cancelled: ``cancelled`` came true.
    """
    run, loop = session.run, session.loop
    assert isinstance(loop, GenerationLoop)
    prompt = loop.tokens
    while not loop.finished:
        if cancelled():
            raise Cancelled
        loop.step()
        report("writing", loop.next_step, run.config.max_new_tokens, "tokens")
    loop.collect(all_of_them=True)
    text = loop.end_text()
    tokens = tuple(loop.tokens[0, prompt.shape[1] :].tolist())
    logits, blocks = _forward(run, prompt)
    text_logits = loop.logits_along(tokens if along is None else along)
    broken = text_logits.isfinite().all(-1).logical_not().nonzero()
    breakdown = None
    if len(broken):
        breakdown = Breakdown(step=int(broken[0]), cause=f"the logits are not finite: {_cause(run, loop.tokens)}")
    return Numerics(
        arm=Arm(
            text=text,
            breakdown=breakdown,
            perplexity=None if breakdown else perplexity(run, session.tokenizer),
        ),
        activation=run.model.config.activation_function,
        logits=logits,
        blocks=blocks,
        tokens=tokens,
        text_logits=text_logits,
    )
