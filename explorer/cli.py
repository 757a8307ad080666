"""Headless: the same worker, the same events and the same results as the window."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from explorer import (
    __version__,
    cli_attribute,
    cli_ceilings,
    cli_compare,
    cli_diagnosis,
    cli_export,
    cli_export_model,
    cli_floor,
    cli_forecast,
    cli_kernels,
    cli_ladder,
    cli_profile,
    cli_prove,
    cli_report,
    cli_runs,
    cli_store,
    cli_sweep,
)
from explorer.cli_config import add_config, changed, config_from
from explorer.cli_screen import ProgressLine
from explorer.commands import WITH_PARSERS_OF_THEIR_OWN
from explorer.config import RunConfig
from explorer.engine.isolation import open_worker
from explorer.experiments.recording import record
from explorer.experiments.script import script
from explorer.experiments.single import run_to_end, wait_until_ready
from explorer.messages import Event, MemorySummary, Note, Progress, RunEnded, Samples, Saved, Start, Text
from explorer.optimizations import registry
from explorer.optimizations.base import TIERS
from explorer.results import environment_text, export
from explorer.results.atomic import check_new_folder, check_target
from explorer.results.log import RunLog

DONE, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130
RUN_ID = 1


def main(argv: Sequence[str]) -> int:
    """Run the command line ``argv`` (without the program's name) and return the exit status.

    Raises:
        ValueError: the request was wrong.
        RuntimeError: the worker died, or a disk fails.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    match args.command:
        case "run":
            return _run(args)
        case "compare":
            return cli_compare.run(args)
        case "floor":
            return cli_floor.run(args)
        case "ladder":
            return cli_ladder.run(args)
        case "forecast":
            return cli_forecast.run(args)
        case "ceilings":
            return cli_ceilings.run(args)
        case "kernels":
            return cli_kernels.run(args)
        case "sweep":
            return cli_sweep.run(args)
        case "attribute":
            return cli_attribute.run(args)
        case "profile":
            return cli_profile.run(args)
        case "prove":
            return cli_prove.run(args)
        case "runs":
            return cli_runs.run(args)
        case "export":
            return cli_export.run_export(args)
        case "export-model":
            return cli_export_model.run(args)
        case "report":
            return cli_report.run(args)
        case "import":
            return cli_export.run_import(args)
        case "script":
            print(script(config_from(args)), end="")
            return DONE
        case "toggles":
            return _toggles(args)
        case "info":
            return _info(args)
        case _:
            raise AssertionError(args.command)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="main.py",
        description="GPT-2 Optimization Explorer. Without a command the window opens.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="train or generate, and write what it showed to CSV")
    add_config(run)
    run.add_argument("--steps", type=_positive, help="training steps, of each setting (default 50)")
    run.add_argument(
        "--then",
        action="append",
        default=[],
        metavar="TOGGLE=LEVEL[,…]",
        help="after --steps steps change these live and go on for as many; batch=N and seq=N too; repeat for more",
    )
    run.add_argument("--csv", type=Path, metavar="FILE", help="write one row a segment")
    run.add_argument("--samples", type=Path, metavar="FILE", help="write one row a step")
    run.add_argument("--json", action="store_true", help="print the result as JSON on standard output")
    run.add_argument(
        "--save",
        type=Path,
        metavar="FOLDER",
        help="write the trained model, with its tokenizer, to a new folder that transformers loads; also after Ctrl-C",
    )
    run.add_argument("--in-process", action="store_true", help="run the worker on a thread of this process")
    run.add_argument("--nvtx", action="store_true", help="name the parts of a step by NVTX ranges, for nsys profile")
    cli_diagnosis.add_options(run)
    cli_store.add_recording(run)
    compare = commands.add_parser("compare", help="is B faster than A: blocks by turns, an interval, a verdict")
    add_config(compare)
    cli_compare.add_options(compare)
    floor = commands.add_parser("floor", help="how much do equal arms seem to differ here: A against A")
    add_config(floor)
    cli_floor.add_options(floor)
    ladder = commands.add_parser("ladder", help="a baseline, then one toggle added at a time: what does each add?")
    add_config(ladder)
    cli_ladder.add_options(ladder)
    cli_kernels.add_options(commands.add_parser("kernels", help="the kernel lab: each operation's variants, timed"))
    sweep = commands.add_parser("sweep", help="throughput and memory by batch and length; the largest batch that fits")
    add_config(sweep)
    cli_sweep.add_options(sweep)
    attribute = commands.add_parser("attribute", help="what does each toggle give alone, and what beside the others?")
    add_config(attribute)
    cli_attribute.add_options(attribute)
    profile = commands.add_parser("profile", help="where does the time of a step go: by part, by kernel, and gaps")
    add_config(profile)
    cli_profile.add_options(profile)
    prove = commands.add_parser("prove", help="did every toggle really run: a profile of one step, judged")
    add_config(prove)
    cli_prove.add_options(prove)
    cli_runs.add_options(commands.add_parser("runs", help="list the stored runs and comparisons, or delete runs"))
    cli_export.add_export_options(commands.add_parser("export", help="write stored runs to CSV or to a bundle"))
    cli_export_model.add_options(
        commands.add_parser("export-model", help="write a model as a file for serving: torch.export or ONNX")
    )
    cli_report.add_options(commands.add_parser("report", help="write stored runs as one HTML file to show or to send"))
    cli_export.add_import_options(commands.add_parser("import", help="take in runs that another machine exported"))
    exported = commands.add_parser("script", help="a plain PyTorch script that does what a configuration does")
    add_config(exported)
    forecast = commands.add_parser("forecast", help="how much memory a training step will take, and whether it fits")
    add_config(forecast)
    cli_forecast.add_options(forecast)
    ceilings = commands.add_parser(
        "ceilings", help="what the devices here can do at best: product, copy, published peak"
    )
    cli_ceilings.add_options(ceilings)
    toggles = commands.add_parser("toggles", help="list the toggles and their levels")
    toggles.add_argument("--json", action="store_true")
    for name, (_, words) in WITH_PARSERS_OF_THEIR_OWN.items():
        commands.add_parser(name, help=words, add_help=False)  # to be listed; ``entry`` takes these commands itself
    info = commands.add_parser("info", help="devices, versions, and whether they fit each other")
    info.add_argument("--json", action="store_true")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not allowed; it must be at least 1")
    return value


def _run(args: argparse.Namespace) -> int:
    config = config_from(args)
    train = config.workload == "train"
    if not train and (args.steps is not None or args.then):
        raise ValueError("--steps and --then are for training; for generation give --tokens")
    steps = args.steps or 50
    then: list[RunConfig] = []
    for settings in args.then:
        then.append(changed(then[-1] if then else config, settings))
    for path in (args.csv, args.samples):
        if path is not None:
            check_target(path)
    if args.save is not None:
        if not train:
            raise ValueError("--save is for training: generation changes no weights")
        check_new_folder(args.save)
    log = RunLog()
    several = not train and len(config.prompts) > 1
    total = steps * (1 + len(then)) if train else config.max_new_tokens
    screen = _Screen(args, total=total, several=several)

    worker = open_worker(in_process=args.in_process)
    recorder = cli_store.recorder(args)

    def on_event(event: Event) -> None:
        record(log, event)
        recorder.take(event)
        screen.show(event)

    interrupted = False
    try:
        wait_until_ready(worker, on_event)
        recorder.begin_run(log.begin_run(RUN_ID, config))
        start = Start(
            run_id=RUN_ID,
            config=config,
            steps=steps if train else None,
            download=args.download,
            save_to="" if args.save is None else str(args.save.absolute()),
            summarize_memory=args.memory_summary,
            nvtx=args.nvtx,
        )
        ended = run_to_end(worker, start, on_event, then=then)
    except KeyboardInterrupt:
        interrupted = True
        ended = RunEnded(run_id=RUN_ID, outcome="stopped")
    finally:
        worker.close()
        stored = recorder.close()
        screen.close()
    records = log.runs
    begun = any(record.segments for record in records)
    try:
        if args.csv is not None and (begun or not interrupted):
            export.write_segments(args.csv, records, toggles=registry.baseline_levels())
        if args.samples is not None and (begun or not interrupted):
            export.write_samples(args.samples, records)
    except (ValueError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    _print_result(args, log, ended, stored, profiled=args.diagnose and not interrupted)
    if interrupted:
        return INTERRUPTED
    if ended.problem is not None:
        print(f"error: {ended.problem}", file=sys.stderr)
        return WRONG if ended.problem.bad_request else FAILED
    return DONE


class _Screen:
    """Progress on standard error (a bar on a terminal, else a line now and then), generated text on standard output."""

    def __init__(self, args: argparse.Namespace, *, total: int, several: bool) -> None:
        """``several``: texts of several prompts."""
        from tqdm import tqdm

        # Several texts that come together could not be told apart; they are printed when all are there.
        self._stream_text = not args.json and not several
        unit = "token" if args.workload == "generate" else "step"
        self._bar = tqdm(total=total, unit=unit, disable=not sys.stderr.isatty(), leave=False)
        self._line = ProgressLine() if self._bar.disable else None

    def show(self, event: Event) -> None:
        if self._line is not None and isinstance(event, Progress | Samples):
            self._line.show_event(event)
            return
        match event:
            case Progress():
                part = "" if event.done is None else f" {event.done:.0f}"
                whole = "" if event.total is None else f" of {event.total:.0f}"
                self._bar.set_description_str(f"{event.activity}{part}{whole} {event.unit}".rstrip())
            case Samples():
                last = event.samples[-1]
                self._bar.update(len(event.samples))
                self._bar.set_description_str("")
                self._bar.set_postfix_str(f"{last.tokens_per_s:,.0f} tokens/s, {last.step_ms:.2f} ms")
            case Note():
                self._bar.clear()
                print(f"note: {event.text}", file=sys.stderr)
            case Text():
                if self._stream_text:
                    if event.step is not None:
                        self._bar.clear()
                    print(event.told, end="", flush=True)
            case MemorySummary():
                self._bar.clear()
                print("\n".join((*event.lines, *event.tables)), file=sys.stderr)
            case Saved():
                self._bar.clear()
                print(f"model saved to {event.folder}", file=sys.stderr)
            case _:
                pass

    def close(self) -> None:
        self._bar.close()


def _print_result(
    args: argparse.Namespace, log: RunLog, ended: RunEnded, stored: Mapping[str, int], *, profiled: bool
) -> None:
    record_of_run = log.runs[-1] if log.runs else None
    number = None if record_of_run is None else stored.get(record_of_run.uid)
    seen = None
    if record_of_run is not None:
        seen = cli_diagnosis.diagnosed(record_of_run, profiled=profiled, download=args.download)
    rows = [] if record_of_run is None else export.segment_rows([record_of_run], toggles=registry.baseline_levels())
    if args.json:
        text = record_of_run.text if record_of_run is not None else ""
        problem = None if ended.problem is None else dataclasses.asdict(ended.problem)
        found = None if seen is None else cli_diagnosis.as_json(*seen)
        result = {
            "run": number,
            "outcome": ended.outcome,
            "problem": problem,
            "text": text,
            "texts": [] if record_of_run is None else list(record_of_run.texts),
            "segments": rows,
            "diagnosis": found,
        }
        print(json.dumps(result, indent=2))
        return
    out = sys.stdout
    if args.workload == "generate":
        if record_of_run is not None and record_of_run.by_prompt:
            print(record_of_run.text, end="")
        print(flush=True)  # ends the text's last line
        out = sys.stderr
    for index, row in enumerate(rows):
        if row["n"]:
            assert record_of_run is not None
            print(_line(row, record_of_run.segments[index].config), file=out)
    if seen is not None and ended.problem is None:  # else the problem says it all
        for line in cli_diagnosis.in_words(*seen):
            print(line, file=sys.stderr)
    if number is not None:
        print(f"stored as run {number}", file=sys.stderr)


def _line(row: dict[str, str | int | float | bool | None], config: RunConfig) -> str:
    """One segment, which ran with ``config``, in words: medians with their units."""

    def number(name: str) -> float:
        value = row[name]
        assert isinstance(value, (int, float))
        return float(value)

    parts = [
        f"{row['label']}:",
        f"{number('tokens_per_s_median'):,.0f} tokens/s,",
        f"{number('step_ms_median'):.2f} ms (p5 {number('step_ms_p5'):.2f}, p95 {number('step_ms_p95'):.2f}),",
        f"n = {row['n']}{'' if row['settled'] else ', still warming up'},",
    ]
    if row["peak_allocated_bytes"] is not None:
        peak_bytes = number("peak_allocated_bytes")
        parts.append(f"peak {peak_bytes / 2**30:.2f} GiB{cli_forecast.against(config, peak_bytes)}")
    if row["loss_last"] is not None:
        parts.append(f"loss {number('loss_first'):.3f} -> {number('loss_last'):.3f}")
    return " ".join(parts)


def _toggles(args: argparse.Namespace) -> int:
    if args.json:
        print(
            json.dumps(
                [
                    {
                        "name": o.name,
                        "label": o.label,
                        "tier": o.tier,
                        "workloads": o.workloads,
                        "help": o.help,
                        "cost": o.cost,
                        "expect": o.expect,
                        "source": o.source,
                        "code": o.code,
                        "levels": [dataclasses.asdict(level) for level in o.levels],
                    }
                    for o in registry.OPTIMIZATIONS
                ],
                indent=2,
            )
        )
        return DONE
    for tier in TIERS:
        toggles = [o for o in registry.OPTIMIZATIONS if o.tier == tier]
        if toggles:
            print(f"{tier.upper()} TIER\n")
        for o in toggles:
            print(f"  {o.name}: {o.label} ({', '.join(o.workloads)})\n    {o.help}")
            for level in o.levels:
                print(f"      {level.id:<14}{level.help}")
            print()
    return DONE


def _info(args: argparse.Namespace) -> int:
    worker = open_worker()
    try:
        environment = wait_until_ready(worker, lambda event: None)
    finally:
        worker.close()
    if args.json:
        print(json.dumps(environment_text.to_dict(environment), indent=2))
    else:
        print(environment_text.describe(environment))
    return DONE
