"""``python main.py generate-bench``: text by transformers' generate and by ours, side by side on one device."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from explorer.arguments import above_zero, at_least
from explorer.cli_bench import bench_parser, percentile
from explorer.cli_config import changed
from explorer.config import RunConfig
from explorer.engine import ceilings, kept_ceilings, model
from explorer.engine.device import environment
from explorer.engine.errors import BadRequest
from explorer.engine.generation import GenerationLoop
from explorer.engine.generation_speed import PROFILED_TOKENS, Speed, of_loop, of_transformers
from explorer.engine.no_waits import no_waits
from explorer.engine.session import check, use_full_fp32
from explorer.engine.telemetry import Telemetry
from explorer.engine.text import python_source
from explorer.engine.tokenizer import Tokenizer
from explorer.optimizations import registry
from explorer.optimizations.base import Run
from explorer.results.atomic import check_target
from explorer.results.environment import DeviceInfo
from explorer.results.export import Cell, write_table
from explorer.results.parity import first_difference
from explorer.results.proof import Profile, short_name
from explorer.results.token_account import PARTS, TokenAccount, Work, part_bytes, part_us
from explorer.results.token_account import in_words as account_in_words

STATIC = "kv_cache=static,attention=sdpa,gelu=torch"
ARMS: Mapping[str, str] = {
    "triton, graph": f"{STATIC},decoder=triton,decode_graph=on",
    "triton, graph, int8": f"{STATIC},decoder=triton,decode_graph=on,weight_dtype=int8",
    "plain torch, graph": f"{STATIC},decoder=torch,decode_graph=on",
    "static cache, graph": f"{STATIC},decode_graph=on",
    "plain torch": f"{STATIC},decoder=torch",
    "static cache": STATIC,
    "no cache": "kv_cache=off,attention=sdpa,gelu=torch",
    "ours, nothing set": "",
}
"""Settings of ours by what they are called, the fastest first: where the time ends early, those are measured."""
HALF = ("fp16", "bf16")
EXACT = "generate, fp32"
"""The arm whose greedy tokens the others' are held against."""
WEIGHT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}
KERNELS = 12
"""The longest-running kernels of a token that are listed."""


def main(argv: Sequence[str]) -> int:
    """Measure, print a table, and return the exit status: 0, or 1 where not one arm could run.

    Raises:
        ValueError: the request was wrong.
    """
    return 0 if _measure(_parser().parse_args(argv)) else 1


def _parser() -> argparse.ArgumentParser:
    arms = "an arm of ours with these; repeat for more (default: from nothing set to everything)"
    parser = bench_parser("generate-bench", __doc__, arms=arms)
    parser.add_argument("--weights", default="random", choices=("random", "bundled", "pretrained"))
    parser.add_argument("--weight-dtype", default="bf16", choices=("fp32", *HALF), help="of every arm that sets none")
    parser.add_argument("--batch", type=int, action="append", help="rows; repeat for more (default 1 and 32)")
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.0, help="of our arms; transformers' are greedy")
    parser.add_argument("--rounds", type=int, default=20, help="most rounds of an arm (default 20)")
    parser.add_argument("--most-s", type=float, default=2.0, help="seconds after which an arm ends (default 2)")
    parser.add_argument("--only", action="append", metavar="TEXT", help="arms in whose name this is; repeat for more")
    parser.add_argument("--without-transformers", action="store_true", help="leave transformers' generate out")
    parser.add_argument("--without-profile", action="store_true", help="do not take a token apart")
    return parser


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One line of the table."""

    name: str
    settings: str
    measure: Callable[[RunConfig, bool], Speed]
    """With a profile if asked. Raises BadRequest where it cannot run here."""
    graphed: bool = False
    """Whether a token is a graph: of those, a token is taken apart."""
    weight_dtype: str = "fp32"
    compiled: bool = False
    """Measured when all the others are: compiling takes longer than they do together."""


def _measure(args: argparse.Namespace) -> bool:
    """Whether there is something to show."""
    at_least("--rounds", args.rounds, 1)
    at_least("--prompt-tokens", args.prompt_tokens, 1)
    above_zero("--most-s", args.most_s)
    here = environment()
    device = here.device(args.device)
    config = RunConfig(
        workload="generate",
        model=args.model,
        weights=args.weights,
        device=device.id,
        max_new_tokens=args.tokens,
        temperature=args.temperature,
    )
    batches = args.batch or [1, 32]
    for batch in batches:
        dataclasses.replace(config, batch=batch)  # within the limits, or ValueError
    if args.csv is not None:
        check_target(args.csv)
    use_full_fp32()
    loaded = model.load(
        config, torch.device(device.id), download=False, progress=lambda *_: None, cancelled=lambda: False
    )
    config = dataclasses.replace(config, prompt=_prompt(loaded.tokenizer, args.prompt_tokens))
    arms = _arms(args, config, loaded, device)
    say = sys.stdout.write
    say(f"{device.name}, torch {here.torch}, transformers {here.transformers}; {args.model}, weights {args.weights}\n")
    say(f"{args.prompt_tokens} tokens of prompt, {args.tokens} new ones, greedy; ")
    say(f"medians of at most {args.rounds} rounds in {args.most_s:g} s\n\n")
    say(f"{'rows':>4}  {'arm':<28}{'tokens/s':>10}{'ms/token':>10}{'p99':>8}{'first ms':>10}{'begin s':>9}  parts at\n")
    rows: list[dict[str, Cell]] = []
    graphed: list[tuple[Arm, RunConfig, dict[str, Cell]]] = []
    exact: dict[int, tuple[int, ...]] = {}
    for arm, batch in _in_order(arms, batches):
        gc.collect()
        if device.kind == "cuda":
            torch.cuda.empty_cache()
        try:
            speed = arm.measure(dataclasses.replace(config, batch=batch), False)
        except BadRequest as error:
            say(f"{batch:>4}  {arm.name:<28}  {error.why}\n")
            continue
        if arm.name == EXACT:
            exact[batch] = speed.tokens
        differs_at = first_difference(exact[batch], speed.tokens) if batch in exact else None
        row = _row(arm.name, arm.settings, speed, differs_at)
        rows.append(row)
        if arm.graphed:
            graphed.append((arm, dataclasses.replace(config, batch=batch), row))
        say(_line(row) + "\n")
        sys.stdout.flush()
        _write(args.csv, rows)
    if args.without_profile or args.tokens <= 2 * PROFILED_TOKENS:
        return bool(rows)
    ceiling: float | None = None
    for arm, config, row in graphed:  # at the end: the profiler slows what comes after it in a process
        found = arm.measure(config, True)
        profile = found.profile
        assert profile is not None
        if ceiling is None and device.kind == "cuda":
            ceiling = _copy_gb_per_s(device)
        token_ms = row["token_ms_p50"]
        assert isinstance(token_ms, float)
        profile = dataclasses.replace(profile, step_ms=token_ms * profile.steps)
        row |= _parts(profile)
        say("\n" + _taken_apart(f"{config.batch} rows, {arm.name}", profile))
        account = _account(found, arm, loaded, args.prompt_tokens, token_us=token_ms * 1e3, ceiling=ceiling)
        row |= _account_cells(account)
        if account is not None:
            say("\n" + account_in_words(account))
        sys.stdout.flush()
        _write(args.csv, rows)
    return bool(rows)


def _copy_gb_per_s(device: DeviceInfo) -> float | None:
    """What a large copy was seen to reach on ``device``, measured now where it never was; None where it cannot be."""
    try:
        return (kept_ceilings.known(device) or ceilings.measured(device)).copy_gb_per_s
    except RuntimeError:
        return None


def _account(
    found: Speed,
    arm: Arm,
    loaded: model.LoadedModel,
    prompt_tokens: int,
    *,
    token_us: float,
    ceiling: float | None,
) -> TokenAccount | None:
    """The profiled tokens of ``found`` by part; None where they were not decoded by this project's kernels."""
    shape: Any = loaded.model.config
    parts = part_us(found.executions, layers=shape.n_layer, tokens=PROFILED_TOKENS)
    if not parts:
        return None
    work = Work(
        rows=found.batch,
        slots=prompt_tokens + PROFILED_TOKENS + PROFILED_TOKENS // 2,  # the middle one's: as many warmed up before
        layers=shape.n_layer,
        width=shape.n_embd,
        vocabulary=shape.vocab_size,
        weight_bytes=WEIGHT_BYTES[arm.weight_dtype],
        number_bytes=max(2, WEIGHT_BYTES[arm.weight_dtype]),
    )
    return TokenAccount(token_us=token_us, part_us=parts, part_bytes=part_bytes(work), copy_gb_per_s=ceiling)


def _account_cells(account: TokenAccount | None) -> dict[str, Cell]:
    row: dict[str, Cell] = dict.fromkeys((*(f"{part}_us" for part in PARTS), "limit_us", "bound_by"))
    if account is not None:
        row |= {f"{part}_us": us for part, us in account.part_us.items()}
        row |= {"limit_us": account.limit_us(), "bound_by": account.bound_by}
    return row


def _write(path: Path | None, rows: Sequence[dict[str, Cell]]) -> None:
    """All rows so far: what the time is too short for leaves those before it."""
    if path is not None and rows:
        write_table(path, rows)


def _in_order(arms: Sequence[Arm], batches: Sequence[int]) -> Iterator[tuple[Arm, int]]:
    for compiled in (False, True):
        for batch in batches:
            yield from ((arm, batch) for arm in arms if arm.compiled == compiled)


def _arms(args: argparse.Namespace, config: RunConfig, loaded: model.LoadedModel, device: DeviceInfo) -> list[Arm]:
    """Those asked for, all on the same weights.

    Raises:
        ValueError: there is no such toggle or level, or no arm of such a name.
    """
    found: list[Arm] = []

    def theirs(name: str, dtype: str, cache: str = "dynamic", **asked: Any) -> None:
        found.append(
            Arm(
                name=name,
                settings=f"transformers,weight_dtype={dtype},kv_cache={cache}",
                measure=lambda config, _: _of_transformers(args, config, loaded, device, dtype, asked),
                compiled=bool(asked),
            )
        )

    if not args.without_transformers:
        theirs(EXACT, "fp32")
    arms = ARMS if args.arms is None else {settings or "nothing set": settings for settings in args.arms}
    for name, settings in arms.items():
        asked = changed(config, settings) if settings else config
        if asked.level("weight_dtype") is None and args.weight_dtype != "fp32":
            asked = registry.with_level(asked, "weight_dtype", args.weight_dtype)
        found.append(
            Arm(
                name=name,
                settings=",".join(f"{toggle}={level}" for toggle, level in asked.levels),
                measure=partial(_of_ours, args, loaded, device, asked.levels),
                graphed=asked.level("decode_graph") == "on",
                weight_dtype=asked.level("weight_dtype") or "fp32",
            )
        )
    if not args.without_transformers:
        if args.weight_dtype != "fp32":
            theirs(f"generate, {args.weight_dtype}", args.weight_dtype)
        theirs("generate, static, compiled", args.weight_dtype, "static", cache_implementation="static")
    chosen = [arm for arm in found if args.only is None or any(text in arm.name for text in args.only)]
    if not chosen:
        raise ValueError(
            f"--only is {', '.join(args.only)}; no arm has that in its name: {'; '.join(arm.name for arm in found)}"
        )
    return chosen


def _of_transformers(
    args: argparse.Namespace,
    config: RunConfig,
    loaded: model.LoadedModel,
    device: DeviceInfo,
    dtype: str,
    asked: Mapping[str, Any],
) -> Speed:
    if asked and device.kind != "cuda":
        raise BadRequest(what="Not measured", why="transformers compiles on a GPU only")
    loaded.model.train(False)
    run = Run(config=config, device=torch.device(device.id), model=loaded.model)
    before = loaded.model.config._attn_implementation
    loaded.model.set_attn_implementation("sdpa")
    try:
        with registry.by_name("weight_dtype").applied(run, dtype) if dtype in HALF else nullcontext():
            return of_transformers(
                loaded.model,
                loaded.tokenizer,
                config.prompt,
                batch=config.batch,
                new_tokens=args.tokens,
                rounds=args.rounds,
                most_s=args.most_s,
                **asked,
            )
    finally:
        loaded.model.set_attn_implementation(before)


def _of_ours(
    args: argparse.Namespace,
    loaded: model.LoadedModel,
    device: DeviceInfo,
    levels: tuple[tuple[str, str], ...],
    config: RunConfig,
    profiled: bool,
) -> Speed:
    config = check(dataclasses.replace(config, levels=levels), device)
    with ExitStack() as stack:
        telemetry = Telemetry(device)
        stack.callback(telemetry.close)
        stack.enter_context(no_waits())
        run = Run(config=config, device=torch.device(device.id), model=loaded.model)
        loop = GenerationLoop(run, loaded.tokenizer, loaded.positions, telemetry)
        toggles = stack.enter_context(ExitStack())

        def begin() -> None:
            registry.enter(toggles, run)
            loop.begin_segment(0)

        return of_loop(
            loop,
            batch=config.batch,
            new_tokens=args.tokens,
            rounds=1 if profiled else args.rounds,
            most_s=args.most_s,
            begin=begin,
            profiled=profiled,
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
        "token_ms_p50": percentile(speed.token_ms, 50),
        "token_ms_p99": percentile(speed.token_ms, 99),
        "first_difference": differs_at,
    }
    return row | dict.fromkeys(("busy_us", "gaps_us", "kernels", "launches")) | _account_cells(None)


def _parts(profile: Profile) -> dict[str, Cell]:
    return {
        "busy_us": profile.busy_ms * 1e3 / profile.steps,
        "gaps_us": (profile.step_ms - profile.busy_ms) * 1e3 / profile.steps,
        "kernels": sum(kernel.count for kernel in profile.kernels) / profile.steps,
        "launches": (profile.launches or 0) / profile.steps,
    }


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
