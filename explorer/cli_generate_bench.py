"""``python main.py generate-bench``: text by transformers' generate and by ours, side by side on one device."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from transformers import GPT2LMHeadModel

from explorer.cli_config import changed
from explorer.config import RunConfig
from explorer.engine import model
from explorer.engine.device import environment
from explorer.engine.errors import BadRequest
from explorer.engine.generation import GenerationLoop
from explorer.engine.generation_speed import Speed, of_loop, of_transformers
from explorer.engine.session import Session, use_full_fp32
from explorer.engine.text import python_source
from explorer.engine.tokenizer import Tokenizer
from explorer.optimizations import registry
from explorer.results.atomic import check_target, replaced
from explorer.results.environment import DeviceInfo
from explorer.results.export import Cell, text_writer, write_rows
from explorer.results.parity import first_difference
from explorer.results.proof import Profile, short_name

STATIC = "kv_cache=static,attention=sdpa,gelu=torch"
ARMS: Mapping[str, str] = {
    "ours, nothing set": "",
    "no cache": "kv_cache=off,attention=sdpa,gelu=torch",
    "static cache": STATIC,
    "static cache, graph": f"{STATIC},decode_graph=on",
    "plain torch": f"{STATIC},decoder=torch",
    "plain torch, graph": f"{STATIC},decoder=torch,decode_graph=on",
}
"""Settings of ours by what they are called."""
HALF = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
KERNELS = 12
"""The longest-running kernels of a token that are listed."""


def main(argv: Sequence[str]) -> int:
    """Measure, print a table, and return the exit status: 0, or 2 for a wrong request."""
    args = _parser().parse_args(argv)
    try:
        _measure(args)
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python main.py generate-bench", description=__doc__)
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--weights", default="random", choices=("random", "bundled", "pretrained"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--weight-dtype", default="bf16", choices=tuple(HALF), help="of every arm that sets none")
    parser.add_argument("--batch", type=int, action="append", help="rows; repeat for more (default 1 and 32)")
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.0, help="of our arms; transformers' are greedy")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--set",
        dest="arms",
        action="append",
        metavar="TOGGLE=LEVEL[,…]",
        help="an arm of ours with these; repeat for more (default: from nothing set to everything)",
    )
    parser.add_argument("--without-transformers", action="store_true", help="leave transformers' generate out")
    parser.add_argument("--without-profile", action="store_true", help="do not take a token apart")
    parser.add_argument("--csv", type=Path, metavar="FILE")
    return parser


def _measure(args: argparse.Namespace) -> None:
    if args.csv is not None:
        check_target(args.csv)
    if args.rounds < 1:
        raise ValueError(f"--rounds is {args.rounds}; it must be at least 1")
    here = environment()
    device = here.device(args.device)
    use_full_fp32()
    say = sys.stdout.write
    say(f"{device.name}, torch {here.torch}, transformers {here.transformers}; {args.model}, weights {args.weights}\n")
    say(f"{args.prompt_tokens} tokens of prompt, {args.tokens} new ones, greedy; medians of {args.rounds} rounds\n\n")
    say(f"{'rows':>4}  {'arm':<28}{'tokens/s':>10}{'ms/token':>10}{'p99':>8}{'first ms':>10}{'begin s':>9}  parts at\n")
    rows: list[dict[str, Cell]] = []
    profiles: list[tuple[str, Profile]] = []
    for batch in args.batch or [1, 32]:
        config = RunConfig(
            workload="generate",
            model=args.model,
            weights=args.weights,
            device=device.id,
            batch=batch,
            max_new_tokens=args.tokens,
            temperature=args.temperature,
        )
        exact: tuple[int, ...] | None = None
        for name, settings, speed in _speeds(args, config, device):
            if isinstance(speed, str):
                say(f"{batch:>4}  {name:<28}{speed}\n")
                continue
            if exact is None:
                exact = speed.tokens
                if not settings.startswith("transformers"):
                    exact = ()
            row = _row(name, settings, speed, first_difference(exact, speed.tokens) if exact else None)
            rows.append(row)
            say(_line(row) + "\n")
            sys.stdout.flush()
            if speed.profile is not None:
                profiles.append((f"{batch} rows, {name}", speed.profile))
    for name, profile in profiles:
        say("\n" + _taken_apart(name, profile))
    if args.csv is not None and rows:
        with replaced(args.csv) as file, text_writer(file) as text:
            write_rows(text, rows)


def _speeds(args: argparse.Namespace, config: RunConfig, device: DeviceInfo) -> Iterator[tuple[str, str, Speed | str]]:
    """Name, settings and speed of each arm, or why it has none."""
    loaded = model.load(
        config, torch.device(device.id), download=False, progress=lambda *_: None, cancelled=lambda: False
    )
    config = dataclasses.replace(config, prompt=_prompt(loaded.tokenizer, args.prompt_tokens))
    if not args.without_transformers:
        yield from _of_transformers(args, config, loaded.model, loaded.tokenizer, device)
    del loaded
    arms = ARMS if args.arms is None else {settings or "nothing set": settings for settings in args.arms}
    for name, settings in arms.items():
        gc.collect()
        if device.kind == "cuda":
            torch.cuda.empty_cache()
        asked = changed(config, settings) if settings else config
        if asked.level("weight_dtype") is None and args.weight_dtype != "fp32":
            asked = registry.with_level(asked, "weight_dtype", args.weight_dtype)
        settings = ",".join(f"{toggle}={level}" for toggle, level in asked.levels)
        try:
            speed = _ours(args, asked, device)
        except BadRequest as error:
            yield name, settings, error.why
        else:
            yield name, settings, speed


def _of_transformers(
    args: argparse.Namespace, config: RunConfig, gpt2: GPT2LMHeadModel, tokenizer: Tokenizer, device: DeviceInfo
) -> Iterator[tuple[str, str, Speed | str]]:
    gpt2.train(False)
    gpt2.set_attn_implementation("sdpa")
    # In float32 first: what the others' greedy tokens are held against.
    plain = dict.fromkeys(("fp32", args.weight_dtype))
    for dtype, cache in (*((dtype, "dynamic") for dtype in plain), (args.weight_dtype, "static")):
        for parameter in gpt2.parameters():
            parameter.data = parameter.data.to(HALF[dtype])
        if cache == "static" and device.kind != "cuda":
            yield "generate, static, compiled", "", "transformers compiles on a GPU only"
            continue
        asked = {"cache_implementation": "static"} if cache == "static" else {}
        name = f"generate, {dtype}" + (", static, compiled" if asked else "")
        speed = of_transformers(
            gpt2, tokenizer, config.prompt, batch=config.batch, new_tokens=args.tokens, rounds=args.rounds, **asked
        )
        yield name, f"transformers,weight_dtype={dtype},kv_cache={cache}", speed


def _ours(args: argparse.Namespace, config: RunConfig, device: DeviceInfo) -> Speed:
    with Session(config, device, download=False, report=lambda *_: None, cancelled=lambda: False) as session:
        assert isinstance(session.loop, GenerationLoop)
        return of_loop(
            session.loop,
            batch=config.batch,
            new_tokens=args.tokens,
            rounds=args.rounds,
            begin=lambda: session.begin_segment(0),
            profiled=device.kind == "cuda" and not args.without_profile,
        )


def _prompt(tokenizer: Tokenizer, tokens: int) -> str:
    """The beginning of some Python source that is ``tokens`` tokens long."""
    for document in python_source().documents():
        text = tokenizer.decode(tokenizer.encode(document[: 16 * tokens])[:tokens])
        if len(tokenizer.encode(text)) == tokens:
            return text
    raise ValueError(f"--prompt-tokens is {tokens}; no text here is as long")


def _row(name: str, settings: str, speed: Speed, differs_at: int | None) -> dict[str, Cell]:
    row: dict[str, Cell] = {
        "arm": name,
        "settings": settings,
        "batch": speed.batch,
        "new_tokens": speed.new_tokens,
        "tokens_per_s": speed.tokens_per_s,
        "wall_ms_median": statistics.median(speed.wall_s) * 1e3,
        "wall_ms_min": min(speed.wall_s) * 1e3,
        "wall_ms_max": max(speed.wall_s) * 1e3,
        "first_token_ms": statistics.median(speed.first_token_s) * 1e3,
        "begin_s": speed.first_s,
        "token_ms_p50": _quantile(speed.token_ms, 50),
        "token_ms_p99": _quantile(speed.token_ms, 99),
        "first_difference": differs_at,
    }
    row |= dict.fromkeys(("busy_us", "gaps_us", "kernels", "launches"))
    profile = speed.profile
    if profile is not None:
        row["busy_us"] = profile.busy_ms * 1e3 / profile.steps
        row["gaps_us"] = (profile.step_ms - profile.busy_ms) * 1e3 / profile.steps
        row["kernels"] = sum(kernel.count for kernel in profile.kernels) / profile.steps
        row["launches"] = (profile.launches or 0) / profile.steps
    return row


def _quantile(values: Sequence[float], percent: int) -> float | None:
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def _line(row: Mapping[str, Cell]) -> str:
    def number(name: str, digits: int, width: int) -> str:
        value = row[name]
        return f"{value:>{width},.{digits}f}" if isinstance(value, (int, float)) else f"{'':>{width}}"

    differs = row["first_difference"]
    return (
        f"{row['batch']:>4}  {row['arm']:<28}{number('tokens_per_s', 0, 10)}{number('token_ms_p50', 3, 10)}"
        f"{number('token_ms_p99', 3, 8)}{number('first_token_ms', 2, 10)}{number('begin_s', 1, 9)}"
        f"  {'' if differs is None else f'token {differs}'}"
    ).rstrip()


def _taken_apart(name: str, profile: Profile) -> str:
    """One token in microseconds: its kernels, and the time between them."""
    tokens = profile.steps
    token_us, busy_us = profile.step_ms * 1e3 / tokens, profile.busy_ms * 1e3 / tokens
    kernels = sum(kernel.count for kernel in profile.kernels) / tokens
    lines = [
        f"{name}: a token takes {token_us:.1f} us; kernels run for {busy_us:.1f} us of it, {kernels:.1f} of them by "
        f"{(profile.launches or 0) / tokens:.1f} launches; {max(0.0, token_us - busy_us):.1f} us lie between them",
        f"{'us':>8}{'count':>8}  kernel",
    ]
    lines += [
        f"{k.total_us / tokens:>8.2f}{k.count / tokens:>8.2f}  {short_name(k.name)}" for k in profile.kernels[:KERNELS]
    ]
    rest = profile.kernels[KERNELS:]
    if rest:
        us, count = sum(k.total_us for k in rest) / tokens, sum(k.count for k in rest) / tokens
        lines.append(f"{us:>8.2f}{count:>8.2f}  {len(rest)} more")
    return "\n".join(lines) + "\n"
