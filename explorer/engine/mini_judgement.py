"""What a model of Python text is worth: bits a byte on held-out text, samples that parse, and nothing copied.

B sequences of T tokens, N windows of W tokens.
"""

from __future__ import annotations

import ast
import lzma
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from transformers import GPT2LMHeadModel

from explorer.engine.sampling import choose
from explorer.engine.tokenizer import Tokenizer

PyCF_ALLOW_INCOMPLETE_INPUT = 0x4000
"""Has ``compile`` say whether a text is wrong or only unfinished. Source: Include/cpython/compile.h, used by codeop."""
_WRONG = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What Python's parser raises, the last three for zero bytes and for nesting that is too deep."""
COPIED_TOKENS = 50
"""So many consecutive tokens of the corpus in a sample count as copied."""


@torch.inference_mode()
def bits_per_byte(model: GPT2LMHeadModel, tokens: np.ndarray, text_bytes: int, device: torch.device) -> float:
    """Bits that ``model`` needs for a byte of the text that ``tokens`` (1-D) are of, end tokens included.

    The windows overlap by half, so that every token but the first few has at least half a context before it; each
    token is counted once. The first token costs log2 of the vocabulary.
    """
    context = model.config.n_positions
    nats = math.log(model.config.vocab_size)
    ids = torch.from_numpy(tokens.astype(np.int64))
    counted = 1
    model.eval()
    while counted < len(ids):
        start = max(0, counted - context // 2)
        window = ids[start : start + context].to(device)[None]
        logits = model(input_ids=window, use_cache=False).logits[0, :-1].float()
        losses = F.cross_entropy(logits, window[0, 1:], reduction="none")
        nats += float(losses[counted - start - 1 :].sum(dtype=torch.float64))
        counted = start + window.shape[1]
    return nats / math.log(2) / text_bytes


def xz_bits_per_byte(content: bytes) -> float:
    """Bits that ``xz -9`` needs for a byte of ``content``."""
    return 8 * len(lzma.compress(content, preset=9)) / len(content)


@contextmanager
def _quietly() -> Iterator[None]:
    """Python's parser warns of escapes such as "\\d" in text that is not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        warnings.simplefilter("ignore", DeprecationWarning)  # what it is on Python 3.11
        yield


def prompts(held_out: Sequence[str], count: int, *, least_lines: int = 4, most_lines: int = 24) -> list[str]:
    """The beginnings of up to ``count`` functions and classes of held-out files, from as many files as may be.

    A prompt begins at the left margin and ends after a statement of the body that is not the last: what follows can
    parse, and is not the rest of a docstring. The line's end is left to the model: in the tokenizer's eyes it is one
    token with the indentation that follows, and a line end by itself is followed by no indentation.
    """
    by_file = []
    for document in held_out:
        tree = _tree(document)
        lines = document.splitlines(keepends=True)
        starts: list[str] = []
        for node in tree.body if tree is not None else ():
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
                ends = [statement.end_lineno - first for statement in node.body[:-1] if statement.end_lineno]
                length = next((end for end in ends if end >= least_lines), most_lines + 1)
                if length <= most_lines:
                    starts.append("".join(lines[first : first + length]).rstrip("\n"))
        by_file.append(starts)
    # The first of every file, then the second of every file, and so on.
    depth = max(map(len, by_file), default=0)
    ordered = [starts[index] for index in range(depth) for starts in by_file if index < len(starts)]
    return ordered[:count]


@torch.inference_mode()
def sample(
    model: GPT2LMHeadModel,
    prompts: Sequence[Sequence[int]],
    *,
    new_tokens: int,
    temperature: float,
    end_id: int,
    seed: int,
    device: torch.device,
) -> list[list[int]]:
    """``new_tokens`` tokens after each prompt, all prompts together; never the end of a text.

    Prompts are padded on the right and there is no cache: no position sees one after it, so the padding is never seen.
    """
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    longest = max(map(len, prompts))
    tokens = torch.zeros((len(prompts), longest + new_tokens), dtype=torch.int64, device=device)
    for row, prompt in zip(tokens, prompts, strict=True):
        row[: len(prompt)] = torch.tensor(prompt, device=device)
    rows = torch.arange(len(prompts), device=device)
    generator = torch.Generator(device=device).manual_seed(seed)
    model.eval()
    for step in range(new_tokens):
        hidden = model.transformer(input_ids=tokens[:, : longest + step], use_cache=False).last_hidden_state
        logits = model.lm_head(hidden[rows, lengths + step - 1]).float()
        logits[:, end_id] = -math.inf
        chosen = choose(logits, temperature=temperature, top_k=0, top_p=1.0, generator=generator)
        tokens[rows, lengths + step] = chosen[:, 0]
    return [row[n : n + new_tokens].tolist() for row, n in zip(tokens, lengths.tolist(), strict=True)]


def parses(prompt: str, continuation: str) -> bool:
    """Whether prompt and continuation are Python up to the last complete statement.

    A sample ends anywhere, so its last line is dropped where it is unfinished. Of the rest Python's parser must say
    that it is whole or merely unfinished (an open bracket, string or block), not that it is wrong; and a statement
    must be complete that ends in the continuation, so that a string which swallows everything does not pass.
    """
    text = (prompt + continuation).rpartition("\n")[0] + "\n"
    if not _is_python_so_far(text):
        return False
    lines = text.splitlines(keepends=True)
    for count in range(len(lines), len(prompt.splitlines()), -1):
        if lines[count - 1].strip() and _tree("".join(lines[:count])) is not None:
            return True
    return False


def _tree(text: str) -> ast.Module | None:
    try:
        with _quietly():
            return ast.parse(text)
    except _WRONG:
        return None


def _is_python_so_far(text: str) -> bool:
    try:
        with _quietly():
            compile(text, "sample", "exec", ast.PyCF_ONLY_AST | PyCF_ALLOW_INCOMPLETE_INPUT)
    except _WRONG as error:
        return isinstance(error, SyntaxError) and "incomplete input" in str(error)
    return True


def copied(samples: Sequence[Sequence[int]], corpus: np.ndarray) -> list[bool]:
    """For each sample whether any ``COPIED_TOKENS`` consecutive tokens of it stand in ``corpus`` (1-D)."""
    wanted: dict[int, list[tuple[int, np.ndarray]]] = {}
    for index, tokens in enumerate(samples):
        array = np.asarray(tokens, dtype=np.uint64)
        for place, value in enumerate(_window_hashes(array, COPIED_TOKENS)):
            wanted.setdefault(int(value), []).append((index, array[place : place + COPIED_TOKENS]))
    found = [False] * len(samples)
    keys = np.fromiter(wanted, dtype=np.uint64, count=len(wanted))
    for begin in range(0, len(corpus), _SCANNED_TOKENS):
        part = corpus[begin : begin + _SCANNED_TOKENS + COPIED_TOKENS - 1]
        hashes = _window_hashes(part.astype(np.uint64), COPIED_TOKENS)
        for match in np.flatnonzero(np.isin(hashes, keys)):
            for index, window in wanted[int(hashes[match])]:
                found[index] |= bool(np.array_equal(part[match : match + COPIED_TOKENS], window))
    return found


_SCANNED_TOKENS = 2**22


def _window_hashes(tokens: np.ndarray, width: int) -> np.ndarray:
    """A 64-bit polynomial of every ``width`` consecutive ``tokens``; equal windows have equal ones.

    Built by doubling: the hash of 2 n tokens is made of two hashes of n tokens.
    """
    base = 0x9E3779B97F4A7C15  # odd, so that no token is lost modulo 2^64
    powers: dict[int, np.ndarray] = {1: tokens.astype(np.uint64) + np.uint64(1)}

    def of(count: int) -> np.ndarray:
        if count not in powers:
            half = count // 2
            left, right = of(half), of(count - half)
            shift = np.uint64(pow(base, count - half, 2**64))
            length = max(0, len(tokens) - count + 1)
            powers[count] = left[:length] * shift + right[half : half + length]
        return powers[count]

    return of(width)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the trained model showed on text that it was never trained on."""

    held_out_bytes: int
    bits_per_byte: float
    xz_bits_per_byte: float
    samples: int
    sampled_tokens: int
    temperature: float
    parse_share: float
    """Of the samples, those that are Python up to their last complete statement."""
    copied_samples: int
    """Samples with ``COPIED_TOKENS`` consecutive tokens of the corpus."""
    texts: tuple[tuple[str, str, bool, bool], ...]
    """Prompt, continuation, whether it parses, whether it is copied."""


def judge(
    model: GPT2LMHeadModel,
    tokenizer: Tokenizer,
    held_out: Sequence[str],
    held_out_tokens: np.ndarray,
    corpus_tokens: np.ndarray,
    device: torch.device,
    *,
    samples: int = 50,
    new_tokens: int = 128,
    temperature: float = 0.8,
    seed: int = 0,
) -> Judgement:
    """Measure ``model`` on ``held_out`` documents. ``corpus_tokens``: what samples must not copy from.

    Raises:
        ValueError: there is no held-out text, or no function in it to be a prompt.
    """
    content = "".join(held_out).encode()
    starts = prompts(held_out, samples)
    if not starts:
        raise ValueError(f"{len(held_out)} held-out files have no function to be a prompt; use a larger corpus")
    ids = sample(
        model,
        [tokenizer.encode(start) for start in starts],
        new_tokens=new_tokens,
        temperature=temperature,
        end_id=tokenizer.end_id,
        seed=seed,
        device=device,
    )
    texts = [tokenizer.decode(tokens) for tokens in ids]
    good = [parses(start, text) for start, text in zip(starts, texts, strict=True)]
    taken = copied(ids, corpus_tokens)
    return Judgement(
        held_out_bytes=len(content),
        bits_per_byte=bits_per_byte(model, held_out_tokens, len(content), device),
        xz_bits_per_byte=xz_bits_per_byte(content),
        samples=len(starts),
        sampled_tokens=new_tokens,
        temperature=temperature,
        parse_share=sum(good) / len(good),
        copied_samples=sum(taken),
        texts=tuple(zip(starts, texts, good, taken, strict=True)),
    )
