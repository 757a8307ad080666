"""Text generation with GPT-2, one token a step, and the loop that measures it.

The sequences of a batch begin with the prompt, or with several by turns; those that begin with the same one part ways
by sampling. Nothing is read from the device to choose a token: the host learns of the text some steps later. So it does
of a string that ends it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from explorer.engine.memory import StepMemory
from explorer.engine.parts import part
from explorer.engine.sampling import choose, penalised
from explorer.engine.step_graph import Pool, StepGraph, new_pool
from explorer.engine.stop_strings import StopStrings
from explorer.engine.telemetry import Telemetry
from explorer.engine.timing import DEPTH, Completed, StepPipeline
from explorer.engine.tokenizer import StreamDecoder, Tokenizer
from explorer.optimizations.base import ChoosingDecoder, Decoder, Run
from explorer.optimizations.hf_decoder import HfDecoder
from explorer.optimizations.rows import Rows
from explorer.results.sample import Phase, Sample
from explorer.results.statistics import WarmUp

CHUNK = 8
"""Tokens that the host submits and reads together where each is one call. Twice as many may be under way when Stop
comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenNote:
    """What the host knows of a token when it submits it."""

    step: int
    prefill: bool
    host_ms: float
    peak_allocated_bytes: int
    reserved_bytes: int


class TextRead:
    """The text of one sequence, as far as the host has read it."""

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str]) -> None:
        self.stops = StopStrings(stops)
        self._decoder = StreamDecoder(tokenizer)
        self._pieces: list[str] = []

    def push(self, ids: Sequence[int]) -> None:
        self._pieces.append(self.stops.push(self._decoder.push(ids)))

    def take(self) -> str:
        """What came since the last call."""
        text = "".join(self._pieces)
        self._pieces.clear()
        return text

    def end(self) -> str:
        """As ``take``, when nothing more comes."""
        self._pieces += [self.stops.push(self._decoder.finish()), self.stops.finish()]
        return self.take()


class GenerationLoop:
    """Prefills the prompt, then decodes a token a step, until ``max_new_tokens``.

    A segment begins with a prefill of all tokens so far: a setting that changed may have changed how keys and
    values are held. A text that has outgrown the model's positions goes on from the last half of them: its latest
    ``positions // 2`` tokens are prefilled as if they were the prompt, and the earlier ones are forgotten. So is the
    beginning of a prompt that is longer than the positions.

    Of each prompt the first sequence's text is read. It ends before the first of the run's stop strings, which the host
    looks for in what it has read, and the run with the last of these texts. What was submitted meanwhile, one batch of
    tokens at most beside the one that is being read (``CHUNK`` each, or ``DEPTH`` single tokens), is computed and
    counted, but not shown.
    """

    def __init__(self, run: Run, tokenizer: Tokenizer, positions: int, telemetry: Telemetry) -> None:
        # A model can have more tokens than its tokenizer: random weights of a large vocabulary with the bundled one.
        self._vocabulary = tokenizer.vocabulary
        self._run = run
        self._telemetry = telemetry
        self._positions = positions
        self._tokenizer = tokenizer
        self._texts = [TextRead(tokenizer, run.config.stop) for _ in run.config.prompts]
        self._generator = torch.Generator(device=run.device)
        self._memory = StepMemory(run.device)
        self._pipeline: StepPipeline[TokenNote] = StepPipeline(run.device)
        self._warmup = WarmUp()
        self._segment = 0
        self._began_s = 0.0
        self._decoder: Decoder | None = None
        self._graphs: dict[tuple[str, int], StepGraph] = {}
        self._pool: Pool | None = None
        self.replays = run.graphed
        """Whether tokens come from recorded graphs; may be set to False to run the same work launch by launch."""
        prompts = self._prompts()
        self._rows = Rows.empty(len(prompts), max(map(len, prompts)), run.device)
        self._begin_rows(prompts)
        self._generator.manual_seed(run.config.seed)
        self.next_step = 0

    def _prompts(self) -> list[torch.Tensor]:
        config = self._run.config
        encoded = [
            torch.tensor(self._tokenizer.encode(prompt) or [self._tokenizer.end_id], device=self._run.device)
            for prompt in config.prompts
        ]
        return [encoded[row % len(encoded)] for row in range(config.batch)]

    def begin_text(self) -> None:
        """Go back to the prompt within the segment; the next token is the first one. All must have been collected."""
        self._begin_rows(self._fitting(self._prompts()))
        self._generator.manual_seed(self._run.config.seed)
        self._texts = [TextRead(self._tokenizer, self._run.config.stop) for _ in self._texts]
        self.next_step = 0
        self._pipeline.restart()

    def go_on(self) -> None:
        """Time from here on: what came since the last token is part of none."""
        self._pipeline.restart()

    @property
    def tokens(self) -> torch.Tensor:
        """All tokens in the context, the prompt's first: ids, int64 (B, n), on the device."""
        return self._rows.tokens[:, : self._filled]

    @property
    def finished(self) -> bool:
        """Whether all tokens asked for have been submitted, or all texts have come to a stop string."""
        return all(text.stops.found for text in self._texts) or self.next_step >= self._run.config.max_new_tokens

    def begin_segment(self, index: int) -> None:
        """Time the next tokens as segment ``index``. All earlier ones must have been collected."""
        run = self._run
        self._segment = index
        self._warmup = WarmUp()
        run.model.eval()
        for read in self._texts:
            read.stops.look_for(run.config.stop)
        texts = self._contexts()
        if run.config.batch != len(texts):  # a batch changed live goes on from the sequence that is shown
            texts = texts[:1] * run.config.batch
        longest = max(map(len, texts))
        remaining = max(1, run.config.max_new_tokens - self.next_step)
        slots = min(longest + remaining, self._positions + 1)
        self._rows = Rows.empty(len(texts), slots, run.device)
        self._begin_rows(texts)
        self._decoder = (run.decoder or HfDecoder)(run, self._rows)
        self._graphs.clear()
        self.replays = run.graphed
        self._pipeline.depth = CHUNK + 1 if run.graphed else DEPTH
        if run.graphed:
            self._pool = new_pool()
            self._record("prefill", longest)
            for slot in range(longest, min(slots, self._positions + 1) - 1):
                self._record("decode", slot)
            self._begin_rows(texts)
        self._pipeline.restart()
        self._began_s = time.perf_counter()

    def _contexts(self) -> list[torch.Tensor]:
        """Each row's tokens without empty slots, int64 (n,): all of them, or the last half of the context's worth."""
        return self._fitting(
            [
                torch.cat([row[:length], row[self._rows.prompt : self._filled]])
                for row, length in zip(self._rows.tokens, self._lengths, strict=True)
            ]
        )

    def _fitting(self, texts: list[torch.Tensor]) -> list[torch.Tensor]:
        """``texts``, or the last half of the context's worth of each where the longest does not fit."""
        if max(map(len, texts)) <= self._positions:
            return texts
        return [text[-(self._positions // 2) :] for text in texts]

    def _begin_rows(self, texts: Sequence[torch.Tensor]) -> None:
        self._lengths = [len(text) for text in texts]
        self._rows.begin(texts)
        self._filled = self._rows.prompt
        self._prefilled = False

    @torch.inference_mode()
    def step(self) -> None:
        """Submit one token of every sequence; where tokens are graphs that are replayed, up to ``CHUNK`` of them."""
        self._memory.begin()
        if self._filled > self._positions:
            self._begin_rows(self._contexts())
        count = 1
        if self.replays and self._prefilled:
            room = self._positions + 1 - self._filled
            count = max(1, min(CHUNK, room, self._run.config.max_new_tokens - self.next_step))
        first = self._filled
        peak, reserved = self._memory.read() if self.replays else (0, 0)
        for index in range(count):
            began = time.perf_counter()
            prefill = not self._prefilled
            self._advance()
            host_ms = (time.perf_counter() - began) * 1e3
            if not self.replays:
                peak, reserved = self._memory.read()
            note = TokenNote(
                step=self.next_step,
                prefill=prefill,
                host_ms=host_ms,
                peak_allocated_bytes=peak,
                reserved_bytes=reserved,
            )
            # The host reads a chunk at once: copying each token would take the device as long as a kernel.
            last = index == count - 1
            self._pipeline.submit([self._rows.tokens[: len(self._texts), first : self._filled]] if last else [], note)
            self.next_step += 1

    def _advance(self) -> None:
        """Compute one token of every sequence, or have its graph do so."""
        if not self.replays:
            with part("decode" if self._prefilled else "prefill"), self._run.autocast():
                if self._prefilled:
                    self._decode(self._filled - 1)
                else:
                    self._prefill()
        elif self._prefilled:
            with part("decode"):
                self._record("decode", self._filled - 1).replay()
        else:
            with part("prefill"):
                self._record("prefill", self._rows.prompt).replay()
        self._prefilled = True
        self._filled += 1

    def _prefill(self) -> None:
        assert self._decoder is not None
        self._rows.append(self._choose(self._decoder.prefill()))

    def _decode(self, slot: int) -> None:
        assert self._decoder is not None
        config = self._run.config
        likeliest = config.temperature == 0 and config.repetition_penalty == 1
        if likeliest and isinstance(self._decoder, ChoosingDecoder):
            self._decoder.append_likeliest(slot, self._vocabulary)
        else:
            self._rows.append(self._choose(self._decoder.decode(slot)))

    @torch.inference_mode()
    def _record(self, kind: Literal["prefill", "decode"], slot: int) -> StepGraph:
        """The graph that decodes the token in ``slot``, or that prefills as many; recorded where there is none yet."""
        assert self._decoder is not None
        key = (kind, slot if kind == "prefill" else self._decoder.reach(slot))
        known = self._graphs.get(key)
        if known is not None:
            return known
        newest = slot - 1 if kind == "prefill" else slot
        decoder, rows, pool = self._decoder, self._rows, self._pool
        assert pool is not None

        def prepare() -> None:
            rows.newest.fill_(newest)
            decoder.rewind(slot)

        drawn = self._generator.get_state()
        graph = self._graphs[key] = StepGraph(
            self._prefill if kind == "prefill" else lambda: self._decode(slot),
            prepare=prepare,
            generator=self._generator,
            pool=pool,
        )
        self._generator.set_state(drawn)
        return graph

    def _choose(self, logits: torch.Tensor) -> torch.Tensor:
        with part("sampling"):
            return self._chosen(logits)

    def _chosen(self, logits: torch.Tensor) -> torch.Tensor:
        config = self._run.config
        logits = logits.float()
        logits[:, self._vocabulary :] = -math.inf
        if config.repetition_penalty != 1:
            logits = penalised(logits, self._rows.seen(), config.repetition_penalty)
        return choose(
            logits,
            temperature=config.temperature,
            top_k=config.top_k,
            top_p=config.top_p,
            generator=self._generator,
        )

    @torch.inference_mode()
    def logits_along(self, tokens: Sequence[int]) -> torch.Tensor:
        """Logits (n, V), float32 on the host, of each of n ``tokens`` after the prompt, given those before it.

        They come as a run would have them, from a prefill and then a token at a time. All rows have these tokens;
        the first row's logits are returned. The loop is at the end of ``tokens`` afterwards.
        """
        assert self._decoder is not None
        self.begin_text()
        found = []
        for token in tokens:
            with self._run.autocast():
                logits = self._decoder.decode(self._filled - 1) if self._prefilled else self._decoder.prefill()
            self._prefilled = True
            found.append(logits[0].to("cpu", torch.float32, copy=True))
            self._rows.append(torch.full((len(logits), 1), token, device=logits.device))
            self._filled += 1
        return torch.stack(found)

    def collect(self, *, all_of_them: bool = False) -> list[Sample]:
        """Samples of the tokens that are over and were not yet collected."""
        return [self._sample(step) for step in self._pipeline.collect(all_of_them=all_of_them)]

    def take_told(self) -> list[str]:
        """Tokens have nothing to tell."""
        return []

    @property
    def texts(self) -> int:
        """How many sequences are read: the first of each prompt, which are the first ones."""
        return len(self._texts)

    def take_text(self, row: int = 0) -> str:
        """Sequence ``row``'s new text of the tokens collected since the last call."""
        return self._texts[row].take()

    def end_text(self, row: int = 0) -> str:
        """As ``take_text``, at the end of the run: with U+FFFD where it ends within a character."""
        return self._texts[row].end()

    def _sample(self, completed: Completed[TokenNote]) -> Sample:
        note, reading = completed.note, self._telemetry.latest()
        count = len(completed.values) // len(self._texts)
        for row, text in enumerate(self._texts):
            text.push([int(token) for token in completed.values[row * count : (row + 1) * count]])
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
            **reading.sample_fields(since_s=self._began_s),
        )
