"""How fast text is written, end to end: from a prompt to the last character of its continuation.

Measured by the host's clock around everything that a caller waits for: tokenizing the prompt, its prefill, each token,
and the text made of them as it comes. ``transformers`` own ``generate`` is measured the same way.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GPT2LMHeadModel
from transformers.generation.streamers import BaseStreamer

from explorer.engine.generation import GenerationLoop
from explorer.engine.proof import own_kernels, traced
from explorer.engine.tokenizer import StreamDecoder, Tokenizer
from explorer.engine.trace import executions, read_profile
from explorer.results.proof import Profile
from explorer.results.token_account import Execution

PROFILED_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Some rounds of the same text, after warm-up."""

    batch: int
    new_tokens: int
    first_s: float
    """The first round's seconds: kernels load, graphs are recorded, compilers compile."""
    wall_s: tuple[float, ...]
    """Seconds from the prompt to the end of the text, a round each."""
    first_token_s: tuple[float, ...]
    """Seconds from the prompt to the first piece of text, a round each."""
    token_ms: tuple[float, ...] = ()
    """Device milliseconds of each decoded token, where that is known."""
    tokens: tuple[int, ...]
    """The first row's new tokens, of the last round."""
    profile: Profile | None = None
    """Of ``PROFILED_TOKENS`` decoded tokens, where one was asked for; ``steps`` counts them."""
    executions: tuple[Execution, ...] = ()
    """Kernels of those tokens one by one, where they ran on a GPU."""

    @property
    def tokens_per_s(self) -> float:
        """Of all rows together, in the median round."""
        return self.batch * self.new_tokens / statistics.median(self.wall_s)


def of_loop(
    loop: GenerationLoop,
    *,
    batch: int,
    new_tokens: int,
    rounds: int,
    most_s: float,
    begin: Callable[[], None],
    profiled: bool,
) -> Speed:
    """The speed of ``loop``, whose segment ``begin`` begins: of ``rounds``, or fewer once they took ``most_s``."""
    began = time.perf_counter()
    begin()
    _round(loop)
    first_s = time.perf_counter() - began
    walls: list[float] = []
    firsts, token_ms = [], []
    while _more(walls, rounds, most_s):
        wall_s, first_token_s, times = _round(loop)
        walls.append(wall_s)
        firsts.append(first_token_s)
        token_ms += times
    profile, found = _profile(loop, statistics.median(token_ms)) if profiled else (None, ())
    return Speed(
        batch=batch,
        new_tokens=new_tokens,
        first_s=first_s,
        wall_s=tuple(walls),
        first_token_s=tuple(firsts),
        token_ms=tuple(token_ms),
        tokens=tuple(loop.tokens[0, -new_tokens:].tolist()),
        profile=profile,
        executions=found,
    )


def _more(walls: Sequence[float], rounds: int, most_s: float) -> bool:
    """Whether another round is due after those that took ``walls`` seconds: there is one at least."""
    return not walls or (len(walls) < rounds and sum(walls) < most_s)


def _round(loop: GenerationLoop) -> tuple[float, float, list[float]]:
    """Seconds of a whole text, seconds to its first piece, and ms of each token after the prefill."""
    began = time.perf_counter()
    first_s = 0.0
    token_ms: list[float] = []
    loop.begin_text()
    while True:
        at_the_end = loop.finished
        if not at_the_end:
            loop.step()
        token_ms += [s.step_ms for s in loop.collect(all_of_them=at_the_end) if s.phase != "prefill"]
        text = loop.end_text() if at_the_end else loop.take_text()
        if text and not first_s:
            first_s = time.perf_counter() - began
        if at_the_end:
            return time.perf_counter() - began, first_s, token_ms


class _Stream(BaseStreamer):
    """Text from the tokens that ``generate`` hands over, the prompt's first."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._decoder = StreamDecoder(tokenizer)
        self._prompt_is_over = False
        self.first_s = 0.0

    def put(self, value: torch.Tensor) -> None:
        if self._prompt_is_over and self._decoder.push(value.tolist()) and not self.first_s:
            self.first_s = time.perf_counter()
        self._prompt_is_over = True

    def end(self) -> None:
        self._decoder.finish()


def of_transformers(
    model: GPT2LMHeadModel,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    batch: int,
    new_tokens: int,
    rounds: int,
    most_s: float,
    **asked: Any,
) -> Speed:
    """The speed of ``model.generate``, greedy, with the options ``asked`` of it besides; rounds as in ``of_loop``.

    One row is streamed; more cannot be, so for those the time to the first piece of text is that to the last.
    """
    device = model.device
    walls: list[float] = []
    firsts = []
    typed: Any = model
    made: Any = None
    with _quiet_generate(model):
        while not walls or _more(walls[1:], rounds, most_s):
            began = time.perf_counter()
            ids = torch.tensor([tokenizer.encode(prompt)] * batch, device=device)
            stream = _Stream(tokenizer) if batch == 1 else None
            made = typed.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=new_tokens,
                min_new_tokens=new_tokens,
                do_sample=False,
                streamer=stream,
                **asked,
            )
            tokenizer.decode(made[0, ids.shape[1] :].tolist())
            walls.append(time.perf_counter() - began)
            firsts.append(stream.first_s - began if stream is not None and stream.first_s else walls[-1])
    return Speed(
        batch=batch,
        new_tokens=new_tokens,
        first_s=walls[0],
        wall_s=tuple(walls[1:]),
        first_token_s=tuple(firsts[1:]),
        tokens=tuple(made[0, -new_tokens:].tolist()),
    )


@contextmanager
def _quiet_generate(model: GPT2LMHeadModel) -> Iterator[None]:
    """Without an end of text, so that every text has its full length."""
    settings: Any = model.generation_config
    before = settings.eos_token_id, settings.pad_token_id
    settings.eos_token_id, settings.pad_token_id = None, 0
    try:
        yield
    finally:
        settings.eos_token_id, settings.pad_token_id = before


def _profile(loop: GenerationLoop, token_ms: float) -> tuple[Profile, tuple[Execution, ...]]:
    """Profile tokens after the prefill, of ``token_ms`` each without the profiler."""
    device = loop.tokens.device

    def decode() -> None:
        end = loop.next_step + PROFILED_TOKENS
        while loop.next_step < end:
            loop.step()
        loop.collect(all_of_them=True)

    loop.begin_text()
    loop.step()
    events = traced(decode, device)
    loop.take_text()
    profile = read_profile(
        events,
        device=device.type,
        workload="generate",
        steps=PROFILED_TOKENS,
        step_ms=token_ms * PROFILED_TOKENS,
        blocks=0,
        width=0,
        vocabulary=0,
        own_kernels=own_kernels(),
        tf32_allowed=False,
    )
    return profile, executions(events)
