"""``python main.py compare --workload generate``: what A and B write from one prompt and seed, and where they part."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping

from explorer import cli_store
from explorer.cli_screen import ProgressLine
from explorer.config import RunConfig
from explorer.ctrl_c import ctrl_c_asks
from explorer.engine.isolation import open_worker
from explorer.experiments.arms import Arms, names
from explorer.experiments.recording import record
from explorer.experiments.steps import AskedToStop, Steps, drive, ready
from explorer.experiments.texts import BothTexts, CheckedTexts, alike, write_and_check
from explorer.messages import Event
from explorer.optimizations import registry
from explorer.results import export
from explorer.results.checks import Checks, checks_cells
from explorer.results.checks import in_words as checks_in_words
from explorer.results.log import RunLog
from explorer.results.parity import first_difference
from explorer.results.text_pair import Written, in_words

RUN_IDS = (1, 2)
CHECKS_ID = 3


def run(args: argparse.Namespace, arms: Arms) -> int:
    """Have both write and return the exit status: 0, 1 failed, 2 wrong request, 130 ended by Ctrl-C."""
    if arms[0].more_prompts:
        raise ValueError(f"compare has both continue one prompt, and there are {len(arms[0].prompts)}")
    arms = alike(arms)
    log = RunLog()
    recorder = cli_store.recorder(args)
    line = ProgressLine()

    def on_event(event: Event) -> None:
        record(log, event)
        recorder.take(event)
        line.show_event(event)

    for run_id, arm in zip(RUN_IDS, arms, strict=True):
        recorder.begin_run(log.begin_run(run_id, arm))
    with ctrl_c_asks() as asked_to_stop:
        try:
            steps = _write_and_check(args, arms, asked_to_stop)
            both, checks = drive(lambda: open_worker(in_process=args.in_process), steps, on_event)
        finally:
            recorder.close()
            line.clear()
        interrupted = asked_to_stop()
    begun = any(record.segments for record in log.runs)  # else Ctrl-C came before there was anything
    if args.csv is not None and (begun or not interrupted):
        export.write_segments(args.csv, log.runs, toggles=registry.baseline_levels())
    if args.samples is not None:
        export.write_samples(args.samples, log.runs)
    if both.problem is not None:
        sys.stderr.write(f"error: {both.problem}\n")
        return 2 if both.problem.bad_request else 1
    if args.json:
        sys.stdout.write(json.dumps(_to_dict(arms, both, checks), indent=2) + "\n")
    else:
        sys.stdout.write(_to_text(arms, both, checks))
    return 130 if interrupted else 0


def _write_and_check(args: argparse.Namespace, arms: Arms, asked_to_stop: AskedToStop) -> Steps[CheckedTexts]:
    yield from ready(asked_to_stop=asked_to_stop)
    return (
        yield from write_and_check(
            RUN_IDS,
            arms,
            checks_id=CHECKS_ID,
            parity=args.parity,
            proof=args.proof,
            download=args.download,
            asked_to_stop=asked_to_stop,
            on_text=lambda arm, text: None,
            on_written=lambda arm, written: None,
        )
    )


def _to_text(arms: Arms, both: BothTexts, checks: Mapping[RunConfig, Checks]) -> str:
    lines = []
    for letter, name, config, written in zip("AB", names(arms), arms, both.arms, strict=False):
        lines += [f"{letter}, {name}: {_speed(written)}", config.prompt + written.text, ""]
    if len(both.arms) == len(arms):
        lines.append(in_words(*both.arms))
    told = [line for c, name in zip(arms, names(arms), strict=True) for line in checks_in_words(checks[c], name=name)]
    return "\n".join([*lines, *dict.fromkeys(told)]) + "\n"


def _speed(written: Written) -> str:
    told = "no speed, too few tokens" if written.tokens_per_s is None else f"{written.tokens_per_s:,.0f} tokens/s"
    if written.first_token_ms is not None:
        told += f", first token {written.first_token_ms:.1f} ms"
    return told if written.peak_bytes is None else f"{told}, peak {written.peak_bytes / 2**20:,.0f} MiB"


def _to_dict(arms: Arms, both: BothTexts, checks: Mapping[RunConfig, Checks]) -> dict[str, object]:
    whole = len(both.arms) == len(arms)
    place = first_difference(both.arms[0].text, both.arms[1].text) if whole else None
    return {
        "prompt": arms[0].prompt,
        "seed": arms[0].seed,
        "arms": [
            {
                "name": name,
                "text": written.text,
                "tokens_per_s": written.tokens_per_s,
                "first_token_ms": written.first_token_ms,
                "peak_allocated_bytes": written.peak_bytes,
                **checks_cells(checks[config]),
            }
            for name, config, written in zip(names(arms), arms, both.arms, strict=False)
        ],
        "parts_after_characters": place,
        "same": whole and place is None,
    }
