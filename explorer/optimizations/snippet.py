"""What a toggle adds to an exported script: plain PyTorch, as a person would write it there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """Pieces of source, each for its place in the script; lines without indentation. Empty: the place stays as it is.

    In scope: ``device`` (a torch.device), ``model`` (float32, on its device), and after it is made ``optimizer``.
    """

    imports: tuple[str, ...] = ()
    definitions: str = ""
    """Functions and classes that the other pieces use."""
    setup: str = ""
    """Once, when the model is ready."""
    around: tuple[str, ...] = ()
    """Context managers that all steps run in."""
    forward: tuple[str, ...] = ()
    """Context managers that each forward pass runs in."""
    optimizer: tuple[str, ...] = ()
    """Keyword arguments of AdamW, besides learning rate and weight decay."""
    before_steps: str = ""
    """Once, when the optimizer is made: training only."""
    batches: str = ""
    """In place of the function that gives the batches, ``batches(stream, device, steps)``: training only."""
    loss: str = ""
    """In place of ``loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss``."""
    backward: str = ""
    """In place of ``loss.backward()``."""
    after_backward: str = ""
    """Once a step, when all gradients are there."""
    clip: str = ""
    """In place of the line that clips the gradients."""
    micro_batches: int = 1
    """Parts of a batch, each with a loss and a backward pass of its own."""
    update: str = ""
    """In place of ``optimizer.step()``."""
    after_step: str = ""
    """Once a step, when all of it is under way and ``loss`` is there."""
    step: str = ""
    """Expression for what is called in place of ``train_step``, which takes ``tokens`` and returns the loss."""
    cache: str = ""
    """In place of the line that makes generation's cache."""
    prefill: str = ""
    """In place of the line that takes the first token's ``logits`` from the prompt, ``tokens`` (B, n)."""
    before_decoding: str = ""
    """Once, when the prompt's ``logits`` are there: generation only."""
    decode: str = ""
    """In place of the line that takes the next token's ``logits`` from ``token`` and ``cache``, or ``tokens``."""
