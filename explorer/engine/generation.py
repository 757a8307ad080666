"""Text generation with GPT-2, one token a step, and the loop that measures it.

All sequences of a batch begin with the same prompt and part ways by sampling. Nothing is read from the device
to choose a token: the host learns of the text some steps later.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch
from transformers import DynamicCache, GPT2LMHeadModel

from explorer.engine.errors import BadRequest
from explorer.engine.memory import StepMemory
from explorer.engine.telemetry import Telemetry
from explorer.engine.timing import Completed, StepPipeline
from explorer.engine.tokenizer import StreamDecoder, Tokenizer
from explorer.optimizations.base import Run
from explorer.results.sample import Phase, Sample
from explorer.results.statistics import WarmUp


def next_logits(model: GPT2LMHeadModel, tokens: torch.Tensor, cache: DynamicCache) -> torch.Tensor:
    """Logits (B, V), in float32, of the token after ``tokens`` (B, n); ``cache`` holds what came before them."""
    output = model(input_ids=tokens, past_key_values=cache, use_cache=True, logits_to_keep=1)
    return output.logits[:, -1].float()


def choose(
    logits: torch.Tensor, *, temperature: float, top_k: int, top_p: float, generator: torch.Generator
) -> torch.Tensor:
    """Token ids (B, 1) drawn from ``logits`` (B, V), or the likeliest ones at temperature 0.

    ``top_k``: only the k likeliest (0: all). ``top_p``: only the likeliest ones that together reach this
    probability (1: all), after top-k, as transformers applies them.

    ``torch.multinomial`` would wait for the device to check its input; dividing by exponential noise and taking
    the largest draws from the same distribution. Source: Efraimidis and Spirakis 2006, and gpt-fast.
    """
    if temperature == 0:
        return logits.argmax(dim=-1, keepdim=True)
    logits = logits / temperature
    if 0 < top_k < logits.shape[-1]:
        least = logits.topk(top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -math.inf)
    probabilities = logits.softmax(dim=-1)
    if top_p < 1:
        ordered, order = probabilities.sort(dim=-1, descending=True)
        # A token stays while those likelier than it have not reached top_p; the likeliest one always stays.
        beyond = ordered.cumsum(dim=-1) - ordered >= top_p
        beyond[:, 0] = False
        probabilities = probabilities.masked_fill(beyond.scatter(-1, order, beyond), 0.0)
    noise = torch.empty_like(probabilities).exponential_(1.0, generator=generator)
    return (probabilities / noise).argmax(dim=-1, keepdim=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenNote:
    """What the host knows of a token when it submits it."""

    step: int
    prefill: bool
    host_ms: float
    peak_allocated_bytes: int
    reserved_bytes: int


class GenerationLoop:
    """Prefills the prompt, then decodes a token a step, until ``max_new_tokens``.

    A segment begins with a prefill of all tokens so far: a setting that changed may have changed how keys and
    values are held.

    Raises:
        BadRequest: prompt and new tokens together are longer than the model's context.
    """

    def __init__(self, run: Run, tokenizer: Tokenizer, positions: int, telemetry: Telemetry) -> None:
        prompt = tokenizer.encode(run.config.prompt) or [tokenizer.end_id]
        # A model can have more tokens than its tokenizer: random weights of a large vocabulary with the bundled one.
        self._nameless = slice(tokenizer.vocabulary, None)
        self._run = run
        self._telemetry = telemetry
        self._positions = positions
        self._decoder = StreamDecoder(tokenizer)
        self._generator = torch.Generator(device=run.device).manual_seed(run.config.seed)
        self._memory = StepMemory(run.device)
        self._pipeline: StepPipeline[TokenNote] = StepPipeline(run.device)
        self._warmup = WarmUp()
        self._segment = 0
        self._text: list[str] = []
        self._prompt_tokens = len(prompt)
        self.check_length(run.config.max_new_tokens)
        self._length = len(prompt)
        self._tokens = torch.zeros((1, positions), dtype=torch.int64, device=run.device)
        self._tokens[0, : self._length] = torch.tensor(prompt, device=run.device)
        self._cache: DynamicCache | None = None
        self.next_step = 0

    def check_length(self, max_new_tokens: int) -> None:
        """Raises BadRequest where prompt and ``max_new_tokens`` do not fit into the context together."""
        if self._prompt_tokens + max_new_tokens > self._positions:
            raise BadRequest(
                what="The text would be too long",
                why=f"the prompt has {self._prompt_tokens} tokens, {max_new_tokens} new ones are asked for, and the "
                f"model sees at most {self._positions}",
                remedy=f"Ask for at most {max(0, self._positions - self._prompt_tokens)} new tokens, or shorten the "
                "prompt.",
            )

    @property
    def tokens(self) -> torch.Tensor:
        """All tokens so far, the prompt's first: ids, int64 (B, n), on the device."""
        return self._tokens[:, : self._length]

    @property
    def finished(self) -> bool:
        """Whether all tokens asked for have been submitted."""
        return self.next_step >= self._run.config.max_new_tokens

    def begin_segment(self, index: int) -> None:
        """Time the next tokens as segment ``index``. All earlier ones must have been collected."""
        batch = self._run.config.batch
        if batch != self._tokens.shape[0]:  # a batch changed live goes on from the sequence that is shown
            self._tokens = self._tokens[:1].expand(batch, -1).clone()
        self._segment = index
        self._warmup = WarmUp()
        self._cache = None
        self._run.model.eval()
        self._pipeline.restart()

    @torch.inference_mode()
    def step(self) -> None:
        """Submit one token of every sequence."""
        run, config = self._run, self._run.config
        self._memory.begin()
        began = time.perf_counter()
        prefill = self._cache is None
        if self._cache is None:
            self._cache = DynamicCache(config=run.model.config)
            tokens = self._tokens[:, : self._length]
        else:
            tokens = self._tokens[:, self._length - 1 : self._length]
        with run.autocast():
            logits = next_logits(run.model, tokens, self._cache)
        logits[:, self._nameless] = -math.inf
        chosen = choose(
            logits,
            temperature=config.temperature,
            top_k=config.top_k,
            top_p=config.top_p,
            generator=self._generator,
        )
        self._tokens[:, self._length] = chosen[:, 0]
        self._length += 1
        host_ms = (time.perf_counter() - began) * 1e3
        peak, reserved = self._memory.read()
        note = TokenNote(
            step=self.next_step,
            prefill=prefill,
            host_ms=host_ms,
            peak_allocated_bytes=peak,
            reserved_bytes=reserved,
        )
        self._pipeline.submit([chosen[0]], note)
        self.next_step += 1

    def collect(self, *, all_of_them: bool = False) -> list[Sample]:
        """Samples of the tokens that are over and were not yet collected."""
        return [self._sample(step) for step in self._pipeline.collect(all_of_them=all_of_them)]

    def take_text(self) -> str:
        """The first sequence's new text of the tokens collected since the last call."""
        text = "".join(self._text)
        self._text.clear()
        return text

    def _sample(self, completed: Completed[TokenNote]) -> Sample:
        note, reading = completed.note, self._telemetry.latest()
        self._text.append(self._decoder.push([int(completed.values[0])]))
        phase: Phase = "prefill" if note.prefill else self._warmup.feed(completed.step_ms)
        return Sample(
            step=note.step,
            segment=self._segment,
            phase=phase,
            time_s=completed.time_s,
            tokens=self._run.config.batch,
            step_ms=completed.step_ms,
            host_ms=note.host_ms,
            peak_allocated_bytes=note.peak_allocated_bytes,
            reserved_bytes=note.reserved_bytes,
            device_used_bytes=reading.device_used_bytes,
            power_w=reading.power_w,
            temperature_c=reading.temperature_c,
            sm_clock_mhz=reading.sm_clock_mhz,
        )
