"""``python main.py train-bench``: training steps of our configurations, and of nanoGPT's model, side by side."""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch

from explorer.arguments import at_least
from explorer.cli_bench import bench_parser, percentile
from explorer.cli_config import changed
from explorer.config import RunConfig
from explorer.engine.device import environment
from explorer.engine.errors import BadRequest
from explorer.engine.training_speed import TrainingSpeed, check_nanogpt, of_nanogpt, of_ours
from explorer.engine.turns import Failed, at_once
from explorer.optimizations import registry
from explorer.optimizations.presets import PRESETS, with_preset
from explorer.results.atomic import check_target
from explorer.results.environment import DeviceInfo
from explorer.results.export import Cell, write_table
from explorer.results.kernel_kinds import kind_of
from explorer.results.proof import Profile, short_name

KERNELS = 25


def main(argv: Sequence[str]) -> int:
    """Measure, print a table, and return the exit status: 0, or 1 where not one arm could run.

    Raises:
        ValueError: the request was wrong.
    """
    return 0 if _measure(_parser().parse_args(argv)) else 1


def _parser() -> argparse.ArgumentParser:
    parser = bench_parser("train-bench", __doc__, arms="an arm of ours with these, dropout off; repeat for more")
    parser.add_argument(
        "--preset",
        dest="presets",
        action="append",
        choices=tuple(PRESETS),
        help="an arm of ours with this preset, dropout off; repeat for more",
    )
    parser.add_argument("--batch", type=int, action="append", help="sequences a step; repeat for more (default 8)")
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=20, help="steps that count, of each arm (default 20)")
    parser.add_argument("--nanogpt", type=Path, metavar="FOLDER", help="a clone of nanoGPT, whose model is an arm, too")
    parser.add_argument("--graph", action="store_true", help="nanoGPT with a CUDA graph of its step besides")
    parser.add_argument("--account", action="store_true", help="take a step of each arm apart by kernels")
    parser.add_argument(
        "--at-once",
        action="store_true",
        help="load and compile a batch size's arms side by side, in processes of their own, then time them by turns: "
        "quicker, where all of them fit into the device's memory together",
    )
    return parser


def _measure(args: argparse.Namespace) -> bool:
    """Whether there is something to show."""
    at_least("--steps", args.steps, 1)
    # All of them, so that a wrong one is told before the others have been measured.
    configs = [
        registry.with_level(RunConfig(model=args.model, batch=batch, seq=args.seq), "dropout", "off")
        for batch in args.batch or [8]
    ]
    for settings in args.arms or ():
        changed(configs[0], settings)
    if args.nanogpt is None and args.graph:
        raise ValueError("--graph is of nanoGPT's model; give its folder by --nanogpt")
    if args.nanogpt is not None:
        check_nanogpt(args.nanogpt)
    if not (args.arms or args.presets or args.nanogpt):
        raise ValueError("there is nothing to measure; give --set, --preset or --nanogpt")
    if args.csv is not None:
        check_target(args.csv)
    here = environment()
    device = here.device(args.device)
    if device.kind != "cuda":
        raise ValueError("train-bench needs a CUDA device")
    say = sys.stdout.write
    say(f"{device.name}, torch {here.torch}, triton {here.triton}, transformers {here.transformers}; {args.model}\n")
    say(f"T = {args.seq}, AdamW, clipping at 1.0, real text, dropout off; medians of {args.steps} steps\n\n")
    say(f"{'B':>4} {'ms/step':>9} {'p95':>8} {'tokens/s':>10} {'reserved':>10} {'first':>7} {'loss':>8}  arm\n")
    rows: list[dict[str, Cell]] = []
    for config in configs:
        config = dataclasses.replace(config, device=device.id)
        names, measures = zip(*_arms(args, config, device), strict=True)
        for name, speed in zip(names, (at_once if args.at_once else _one_by_one)(measures), strict=True):
            if isinstance(speed, Failed):
                say(f"{config.batch:>4}  {name}: {speed.why}\n")
                continue
            row = _row(name, config.batch, speed)
            rows.append(row)
            say(_line(row) + "\n")
            if speed.profile is not None:
                say(account(speed.profile) + "\n")
            sys.stdout.flush()
            if args.csv is not None:  # what ends this early leaves the arms before it
                write_table(args.csv, rows)
    return bool(rows)


def _one_by_one(measures: Sequence[Callable[..., TrainingSpeed]]) -> Iterator[TrainingSpeed | Failed]:
    for measure in measures:
        try:
            yield measure()
        except BadRequest as error:
            yield Failed(why=error.why)
        except torch.OutOfMemoryError:
            yield Failed(why="out of memory")


def _arms(
    args: argparse.Namespace, config: RunConfig, device: DeviceInfo
) -> Iterator[tuple[str, Callable[..., TrainingSpeed]]]:
    """Names, and what measures each."""
    how = {"device": device, "steps": args.steps, "profiled": args.account}
    for preset in args.presets or ():
        asked = registry.with_level(with_preset(config, preset, device).config, "dropout", "off")
        yield f"preset {preset}", partial(of_ours, config=asked, **how)
    for settings in args.arms or ():
        yield settings, partial(of_ours, config=changed(config, settings), **how)
    if args.nanogpt is not None:
        theirs = partial(of_nanogpt, config=config, folder=args.nanogpt, **how)
        yield "nanoGPT, compiled", partial(theirs, graphed=False)
        if args.graph:
            yield "nanoGPT, compiled, CUDA graph", partial(theirs, graphed=True)


def _row(name: str, batch: int, speed: TrainingSpeed) -> dict[str, Cell]:
    return {
        "arm": name,
        "batch": batch,
        "step_ms_median": speed.step_ms_median,
        "step_ms_p95": percentile(speed.step_ms, 95),
        "tokens_per_s_median": speed.tokens_per_s,
        "peak_reserved_bytes": speed.peak_reserved_bytes,
        "first_step_s": speed.first_s,
        "loss_mean": statistics.fmean(speed.losses),
    }


def _line(row: Mapping[str, Cell]) -> str:
    gib = float(row["peak_reserved_bytes"] or 0) / 2**30
    times = f"{row['step_ms_median']:>9.2f} {row['step_ms_p95']:>8.2f} {row['tokens_per_s_median']:>10,.0f}"
    rest = f"{gib:>6.2f} GiB {row['first_step_s']:>5.1f} s {row['loss_mean']:>8.4f}  {row['arm']}"
    return f"{row['batch']:>4} {times} {rest}"


def account(profile: Profile) -> str:
    """One step in milliseconds by kind of kernel, the time in which nothing ran, and its longest kernels."""
    by_kind: defaultdict[str, float] = defaultdict(float)
    for kernel in profile.kernels:
        by_kind[kind_of(kernel.name)] += kernel.total_us / 1e3
    lines = [f"      {ms:8.2f} ms  {kind}" for kind, ms in sorted(by_kind.items(), key=lambda item: -item[1])]
    launches = f"{profile.launches or 0} launches"
    lines.append(f"      {max(0.0, profile.step_ms - profile.busy_ms):8.2f} ms  nothing ran ({launches})")
    lines += [
        f"        {k.total_us / 1e3:8.3f} ms {k.count:>4} x  {short_name(k.name)}" for k in profile.kernels[:KERNELS]
    ]
    return "\n".join(lines)
