"""How much of the device's memory a training step will take, by part, before it runs.

n = B T tokens, d width, V vocabulary, L blocks, N parameters; S = B H T T scores. A step is fullest at one of three
moments, and the largest of them is the peak:

    loss      the backward pass of the loss begins: all activations are there, and three copies of the logits
    backward  a block's backward pass: activations of the blocks below it, gradients of those above
    update    the optimizer's: no activations, all gradients

Weights, gradients and AdamW's two averages are float32 throughout; autocast keeps 16-bit copies of the weights besides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal

from explorer.models import ModelShape

Moment = Literal["loss", "backward", "update"]

WORKSPACE_BYTES = 64 * 2**20
"""cuBLAS and cuBLASLt keep 32 MiB each on Hopper, less on older cards. Source: torch's CUDABlas.cpp."""
PLAIN_LOGITS_BYTES = 12
"""For each logit, in float32: its logarithm, and the gradients after and before the softmax."""
CONTEXT_BYTES = 770 * 2**20
"""What a process takes of an H200 beyond torch's allocator: 529 MiB of context, about 240 of libraries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Formats:
    """What the size of an activation depends on."""

    product_bytes: int
    """Of a number in matrix products: 4 or 2."""
    drops: bool
    """Whether dropout draws masks."""


PerElement = Callable[[Formats], float]
"""Bytes for each element of a tensor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTerms:
    """What one level of a toggle says of a step's memory; None: nothing. No two toggles may say the same.

    Together all toggles must say everything but ``logits``: their first levels say what plain training takes.
    """

    product_bytes: int | None = None
    drops: bool | None = None
    attention: PerElement | None = None
    """Kept for the backward pass of a block's attention, for each of B T d elements: queries, keys, values, output."""
    scores: PerElement | None = None
    """The same for each of the B H T T scores."""
    gelu: PerElement | None = None
    """The same of a block's GeLU for each of its B T 4d elements, its output included."""
    stream_bytes: int | None = None
    """Of a number in the residual stream."""
    kept_every: int | None = None
    """Every so many blocks one keeps only its input; 0: none does."""
    update_bytes: int | None = None
    """Temporary, for each parameter, while the optimizer updates."""
    micro_batches: int | None = None
    """Parts of a batch of which one at a time has activations and logits; with several all gradients are there."""
    logits: PerElement | None = None
    """At the loss's fullest moment, for each of B T V elements; None: as transformers' loss has it."""
    logits_most_bytes: int | None = None
    """What they take at most, however many there are; None: there is no limit."""

    def __or__(self, other: MemoryTerms) -> MemoryTerms:
        """Both together."""
        said = {field.name: (getattr(self, field.name), getattr(other, field.name)) for field in fields(self)}
        for name, (own, others) in said.items():
            assert own is None or others is None, f"two toggles state {name}"
        return MemoryTerms(**{name: others if own is None else own for name, (own, others) in said.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """A step's memory at its fullest ``moment``, by part, in bytes."""

    moment: Moment
    weights_bytes: int
    """Autocast's copies included."""
    gradients_bytes: int
    """None of them is there yet when the loss is fullest."""
    optimizer_bytes: int
    activations_bytes: int
    logits_bytes: int
    workspace_bytes: int = WORKSPACE_BYTES

    @property
    def peak_bytes(self) -> int:
        """What the allocator's peak within the step will be."""
        return sum(size for _, size in self.parts())

    @property
    def needed_bytes(self) -> int:
        """What must be free on the device before the process begins: the peak, and CUDA's context."""
        return self.peak_bytes + CONTEXT_BYTES

    def parts(self) -> list[tuple[str, int]]:
        """(name, bytes) of each part, from the ground up."""
        names = ("weights", "gradients", "optimizer", "activations", "logits", "workspace")
        return [(name, getattr(self, f"{name}_bytes")) for name in names]


def step_memory(shape: ModelShape, *, batch: int, seq: int, terms: MemoryTerms) -> Forecast:
    """The memory of a training step of ``shape`` on ``batch`` sequences of ``seq`` tokens.

    Args:
        shape: the model.
        batch: B.
        seq: T.
        terms: what all toggles say; complete.
    """
    step = _Step(shape, batch, seq, terms)
    moments = [step.at_loss(), step.at_backward(of_first_block=False), step.at_backward(of_first_block=True)]
    return max([*moments, step.at_update()], key=lambda forecast: forecast.peak_bytes)


def largest_batch(fits: Callable[[int], bool], most: int) -> int:
    """The largest batch from 1 to ``most`` that ``fits``; 0 where none does. Memory grows with the batch."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


class _Step:
    def __init__(self, shape: ModelShape, batch: int, seq: int, terms: MemoryTerms) -> None:
        assert terms.product_bytes is not None
        assert terms.drops is not None
        assert terms.attention is not None
        assert terms.scores is not None
        assert terms.gelu is not None
        assert terms.stream_bytes is not None
        assert terms.kept_every is not None
        assert terms.micro_batches is not None
        batch = max(1, batch // terms.micro_batches)
        assert terms.update_bytes is not None
        formats = Formats(product_bytes=terms.product_bytes, drops=terms.drops)
        product, masks = terms.product_bytes, int(terms.drops)
        self._layers = shape.layers
        self._checkpointed = len(range(0, shape.layers, terms.kept_every)) if terms.kept_every else 0
        self._parameters = shape.parameters
        self._update_bytes = terms.update_bytes
        self._held = 4 * shape.parameters if terms.micro_batches > 1 else 0
        d = shape.width
        embedding, block = shape.vocabulary * d, 12 * d * d + 13 * d
        self._embedding = embedding
        # Autocast's cache ends with the forward pass; what is left is held by the operations that need it backward, and
        # a checkpointed block has none yet.
        copied = 0 if product == 4 else product
        self._copies = copied * (embedding + (shape.layers - self._checkpointed) * block)
        self._block_copies = copied * block

        hidden = batch * seq * d
        scores = batch * shape.heads * seq * seq
        # The residual stream twice; what each norm gives to a product; a mask after each half of the block.
        stream = hidden * (2 * terms.stream_bytes + 2 * product + 2 * masks)
        kept_scores = round(scores * terms.scores(formats))
        kept = hidden * terms.attention(formats) + 4 * hidden * terms.gelu(formats)
        self._block = round(stream + kept) + kept_scores
        self._block_input = terms.stream_bytes * hidden
        # Before the blocks a mask, after them the last norm's input and output.
        self._around = hidden * (terms.stream_bytes + product + masks)
        # Gradients on their way through a block: of the scores before and after the softmax, of the GeLU's parts.
        self._passing = 2 * 4 * (scores if kept_scores else 0) + 3 * 4 * 4 * hidden
        logits = PLAIN_LOGITS_BYTES if terms.logits is None else terms.logits(formats)
        self._logits = round(batch * seq * shape.vocabulary * logits)
        if terms.logits_most_bytes is not None:
            self._logits = min(self._logits, terms.logits_most_bytes)

    def at_loss(self) -> Forecast:
        return self._forecast(
            "loss", gradients=self._held, activations=self._activations(self._layers), logits=self._logits
        )

    def at_backward(self, *, of_first_block: bool) -> Forecast:
        left = 1 if of_first_block else self._layers
        passing = self._passing + (self._block - self._block_input + self._block_copies if self._checkpointed else 0)
        gradients = max(self._held, 4 * (self._parameters if of_first_block else self._embedding))
        return self._forecast("backward", activations=self._activations(left) + passing, gradients=gradients)

    def at_update(self) -> Forecast:
        temporary = self._update_bytes * self._parameters
        return self._forecast("update", gradients=4 * self._parameters, temporary=temporary, copies=0)

    def _activations(self, blocks: int) -> int:
        """Kept for the backward pass of the lowest ``blocks`` blocks and of what is around them."""
        checkpointed = round(self._checkpointed * blocks / self._layers)
        return self._around + checkpointed * self._block_input + (blocks - checkpointed) * self._block

    def _forecast(
        self,
        moment: Moment,
        *,
        activations: int = 0,
        gradients: int = 0,
        logits: int = 0,
        temporary: int = 0,
        copies: int | None = None,
    ) -> Forecast:
        return Forecast(
            moment=moment,
            weights_bytes=4 * self._parameters + (self._copies if copies is None else copies),
            gradients_bytes=gradients,
            optimizer_bytes=8 * self._parameters + temporary,
            activations_bytes=activations,
            logits_bytes=logits,
        )
