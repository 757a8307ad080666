"""A RunConfig from options of the command line."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import get_args

from explorer.arguments import above_zero, at_least
from explorer.config import LIMITS, RunConfig, Weights, Workload
from explorer.engine.isolation import open_worker
from explorer.experiments import arms
from explorer.experiments.command_line import option
from explorer.experiments.compare import BLOCK_S, BLOCK_STEPS, Limits
from explorer.experiments.single import wait_until_ready
from explorer.models import MODELS
from explorer.optimizations import registry
from explorer.optimizations.presets import PRESETS, with_preset
from explorer.results.environment import DeviceInfo


def add_config(parser: argparse.ArgumentParser) -> None:
    """An option for every field of RunConfig, with its default and its limits."""
    words = {
        "workload": ("train or generate", get_args(Workload)),
        "model": (f"{', '.join(MODELS)}, or a folder saved by transformers", None),
        "weights": ("random, bundled (mini) or pretrained (a folder, or the Hub's cache)", get_args(Weights)),
        "device": ("auto, cpu, cuda or cuda:N", None),
        "text": ("python, wikitext-2, or a text file", None),
    }
    by_workload = {"batch": "8 in training, 1 in generation", "weights": "random; bundled where mini generates"}
    for field in dataclasses.fields(RunConfig):
        if field.name in ("levels", "stop", "prompt", "more_prompts"):
            continue
        help_text, choices = words.get(field.name, ("", None))
        if field.name in LIMITS:
            low, high = LIMITS[field.name]
            help_text = f"{low:g} to {high:g}"
            if field.name == "sample_every":
                help_text = f"training writes a text each so many steps, {help_text}; 0: none"
        default = by_workload.get(field.name, str(field.default).strip())
        parser.add_argument(
            option(field.name),
            dest=field.name,
            type=type(field.default),
            choices=choices,
            default=None if field.name in by_workload else field.default,
            help=f"{help_text} (default {default})",
        )
    parser.add_argument(
        *("--prompt", "--sample-prompt"),
        dest="prompt",
        action="append",
        default=[],
        metavar="TEXT",
        help="what generation, and each sample of training, begins with; repeat for more, which a batch takes by turns "
        f"(default {RunConfig().prompt.strip()})",
    )
    parser.add_argument(
        "--prompts", type=Path, metavar="FILE", help="a text file whose lines are prompts, besides those of --prompt"
    )
    parser.add_argument(
        "--stop", action="append", default=[], metavar="STRING", help="end the text before it; repeat for more"
    )
    parser.add_argument("--download", action="store_true", help="allow fetching weights or text from the network")
    parser.add_argument(
        "--preset",
        choices=tuple(PRESETS),
        help="toggles that belong together, as far as the device can run them; --set comes on top",
    )
    parser.add_argument(
        "--set",
        dest="levels",
        action="append",
        default=[],
        metavar="TOGGLE=LEVEL",
        help="put a toggle at a level; repeat for more. Toggles: "
        + "; ".join(f"{o.name} ({', '.join(o.level_ids())})" for o in registry.OPTIMIZATIONS),
    )


def config_from(args: argparse.Namespace) -> RunConfig:
    """The configuration that the parsed options ask for, in the registry's normal form.

    Raises:
        ValueError: a value, toggle or level that is not allowed.
    """
    values = {
        f.name: getattr(args, f.name) for f in dataclasses.fields(RunConfig) if f.name not in ("levels", "more_prompts")
    }
    values["stop"] = tuple(values["stop"])
    values["prompt"], *more = _prompts(args)
    values["more_prompts"] = tuple(more)
    if values["batch"] is None:
        values["batch"] = 8 if args.workload == "train" else 1 + len(more)
    elif args.workload == "generate" and values["batch"] <= len(more):
        raise ValueError(f"--batch is {values['batch']}; {1 + len(more)} prompts need as many sequences")
    if values["weights"] is None:
        values["weights"] = "bundled" if args.workload == "generate" and args.model == "mini" else "random"
    config = RunConfig(**values)
    if args.preset is not None:
        fitted = with_preset(config, args.preset, _device(config.device))
        for left in fitted.left_out:
            words = f"{left.toggle}={left.instead} instead of {left.level}: {left.why}"
            sys.stderr.write(f"preset {args.preset}: {words}\n")
        config = fitted.config
    for setting in args.levels:
        config = changed(config, setting)
    return config


def _prompts(args: argparse.Namespace) -> list[str]:
    prompts = list(args.prompt)
    if args.prompts is not None:
        try:
            lines = args.prompts.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"--prompts {args.prompts} cannot be read: {error}") from error
        prompts += [line for line in lines if line.strip()]
        if not prompts:
            raise ValueError(f"--prompts {args.prompts} has no prompt in it")
    return prompts or [RunConfig().prompt]


def _device(name: str) -> DeviceInfo:
    """The device ``name``, asked of a worker that is closed again: it alone touches torch."""
    worker = open_worker()
    try:
        return wait_until_ready(worker, lambda event: None).device(name)
    finally:
        worker.close()


def comparable(args: argparse.Namespace) -> RunConfig:
    """``config_from``'s, with dropout off unless it was set or ``--keep-dropout`` given: its draws differ by kernel.

    Raises:
        ValueError: a value, toggle or level that is not allowed.
    """
    return arms.comparable(config_from(args), keep_dropout=args.keep_dropout)


def add_limits(parser: argparse.ArgumentParser, *, block_steps: bool = True) -> None:
    """The options on how a comparison is measured. ``block_steps``: whether there are blocks with a least of steps."""
    parser.add_argument("--budget-s", type=float, default=60.0, help="most seconds of measuring (default 60)")
    parser.add_argument("--pairs", type=int, help="most pairs of blocks (default: as the time allows)")
    parser.add_argument("--block-s", type=float, default=BLOCK_S, help=f"least seconds a block (default {BLOCK_S:g})")
    if block_steps:
        parser.add_argument(
            "--block-steps",
            type=int,
            default=BLOCK_STEPS,
            help=f"least steps a block, where they take longer than --block-s (default {BLOCK_STEPS})",
        )
    parser.add_argument("--keep-dropout", action="store_true", help="leave dropout as set (it is off by default)")
    parser.add_argument("--in-process", action="store_true", help="run the worker on a thread of this process")


def add_within(parser: argparse.ArgumentParser) -> None:
    """The option that ends long work in time; what was measured is kept, and the same command goes on."""
    parser.add_argument(
        "--within-s",
        type=float,
        metavar="SECONDS",
        help="end after so many seconds, as Ctrl-C would; the same command goes on",
    )


def limits_from(args: argparse.Namespace) -> Limits:
    """When each comparison is to end.

    Raises:
        ValueError: a limit that leaves nothing to measure.
    """
    above_zero("--block-s", args.block_s)
    at_least("--block-steps", getattr(args, "block_steps", BLOCK_STEPS), 1)
    return Limits(budget_s=args.budget_s, pairs=args.pairs)


def changed(config: RunConfig, settings: str) -> RunConfig:
    """``config`` with the changes of ``settings`` (NAME=VALUE, more behind commas) made."""
    for setting in settings.split(","):
        name, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"{setting!r}: write TOGGLE=LEVEL, such as precision=bf16")
        if name in ("batch", "seq"):
            if not value.isdecimal():
                raise ValueError(f"{name} is {value!r}; it must be a whole number")
            count = int(value)
            config = (
                dataclasses.replace(config, batch=count) if name == "batch" else dataclasses.replace(config, seq=count)
            )
        else:
            config = registry.with_level(config, name, value)
    return config
