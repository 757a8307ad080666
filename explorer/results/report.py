"""A report: one HTML file with what was run, on what, what it showed and how that was measured.

It needs nothing from outside itself, and holds nothing that runs: whoever gets it can open it without trust.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explorer.results import svg
from explorer.results.atomic import replaced
from explorer.results.blocks import ComparisonResult
from explorer.results.comparison_record import ComparisonRecord
from explorer.results.environment import Environment
from explorer.results.how_measured import HOW_MEASURED
from explorer.results.log import RunRecord
from explorer.results.machine import machine, several_machines
from explorer.results.overlay import reduced
from explorer.results.statistics import quantiles, tokens_per_s
from explorer.results.words import Say

GIB = 2**30
MOST_CURVES = 12
NOTHING = "–"
Columns = Mapping[str, NDArray[Any]]

STYLE = """
body { font: 14px/1.45 system-ui, "Noto Sans", "DejaVu Sans", sans-serif; color: #1c2126; background: #fff;
  max-width: 1360px; margin: 24px auto; padding: 0 16px; }
h1 { font-size: 24px; margin-bottom: 0; } h2 { font-size: 18px; margin-top: 32px; } h3 { font-size: 15px; }
p.small, td.small { color: #56606b; font-size: 12px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; white-space: nowrap; } .wide th { white-space: normal; }
th, td { text-align: left; padding: 3px 10px; border-bottom: 1px solid #dfe3e7; vertical-align: top; }
th { color: #56606b; font-weight: 600; } td.number, th.number { text-align: right; }
td.changed { font-weight: 600; } svg { max-width: 100%; height: auto; vertical-align: middle; }
.verdict { font-size: 16px; font-weight: 600; } .warning { color: #8a4b00; }
"""


def write_report(
    path: Path,
    records: Sequence[RunRecord],
    comparisons: Sequence[ComparisonRecord],
    *,
    toggles: Mapping[str, str],
    say: Say = str.format,
    language: str = "en",
) -> None:
    """Write the report on these runs, and on the comparisons between them, to ``path``.

    Args:
        path: the file.
        records: the runs, in the order in which they are told.
        comparisons: those whose arms are among the runs.
        toggles: each toggle's first level by its name, in the order in which they are named.
        say: puts the report's words into another language.
        language: which that is, as HTML names it.
    Raises:
        ValueError: there is no run, or ``path`` cannot be written to.
        RuntimeError: the disk is full or fails.
    """
    page = report(records, comparisons, toggles=toggles, say=say, language=language)
    with replaced(path) as file:
        file.write(page.encode("utf-8", errors="replace"))


def report(
    records: Sequence[RunRecord],
    comparisons: Sequence[ComparisonRecord],
    *,
    toggles: Mapping[str, str],
    say: Say = str.format,
    language: str = "en",
) -> str:
    """The page; see ``write_report``."""
    told = [record for record in records if record.segments]
    if not told:
        raise ValueError("there is nothing to report: none of these runs has begun a step")
    when = datetime.now().astimezone().isoformat(sep=" ", timespec="minutes")
    title = say("GPT-2 Optimization Explorer: report")
    several = several_machines(told)
    one = len(told) == 1
    runs = (
        say("1 run, written {when}", when=when)
        if one
        else say("{count} runs, written {when}", count=len(told), when=when)
    )
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="small">{escape(runs)}</p>',
        f'<p class="warning">{escape(several)}</p>' if several is not None else "",
        f"<h2>{escape(say('Results'))}</h2>",
        _results(told, toggles, say),
        *_comparisons(comparisons, say),
        f"<h2>{escape(say('Curves'))}</h2>",
        _curves(told, toggles, say),
        f"<h2>{escape(say('Configurations'))}</h2>",
        _configurations(told, toggles, say),
        f"<h2>{escape(say('Environment'))}</h2>",
        *(_environment(here, say) for here in _environments(told)),
        f"<h2>{escape(say('How is this measured?'))}</h2>",
        *(f"<p>{say(words)}</p>" for words in HOW_MEASURED),
    ]
    body = "\n".join(part for part in parts if part)
    return (
        f'<!DOCTYPE html>\n<html lang="{escape(language)}">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escape(title)}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _name(record: RunRecord, segment: int) -> str:
    """As the table of runs numbers it."""
    return f"{record.run_id}.{segment + 1}"


def _results(records: Sequence[RunRecord], toggles: Mapping[str, str], say: Say) -> str:
    titles = (
        *("", say("Run"), say("What differs"), say("Workload"), say("Model"), "B × T", say("Steps")),
        *(say("tokens/s, median"), say("nine steps in ten"), say("ms/step, median"), say("nine steps in ten")),
        *(say("GiB in a step"), say("GiB held"), say("Loss"), say("State")),
    )
    rows = []
    for place, record in enumerate(records):
        for part in record.segments:
            index, config = part.segment.index, part.config
            s = record.summary(index)
            mark = "" if s.settled else "~ "
            length = config.seq if config.workload == "train" else config.max_new_tokens
            rows.append(
                (
                    svg.swatch(place) if place < MOST_CURVES else "",
                    _name(record, index),
                    record.label(index, toggles),
                    say(config.workload),
                    Path(config.model).name or config.model,
                    f"{config.batch} × {length}",
                    f"{s.steps:,}",
                    mark + _number(s.tokens_per_s_median, ",.0f"),
                    _range(s.tokens_per_s_p5, s.tokens_per_s_p95, ",.0f"),
                    mark + _number(s.step_ms_median, ",.2f"),
                    _range(s.step_ms_p5, s.step_ms_p95, ",.2f"),
                    _gib(s.peak_allocated_bytes),
                    _gib(s.reserved_bytes if s.reserved_bytes >= 0 else s.device_used_bytes),
                    _range(s.loss_first, s.loss_last, ".3f", " → "),
                    say(record.outcome if part is record.segments[-1] else "changed"),
                )
            )
    table = _table(titles, rows, numbers=(5, 6, 7, 8, 9, 10, 11, 12, 13), raw=(0,))
    words = [say("~: step times had not settled when what counts began.")]
    words += [f"{record.run_id}: {note}" for record in records for note in record.notes]
    words += [f"{record.run_id}: {record.problem}" for record in records if record.problem]
    return table + "".join(f'<p class="small">{escape(line)}</p>' for line in words)


def _comparisons(comparisons: Sequence[ComparisonRecord], say: Say) -> list[str]:
    found = [(comparison, result) for comparison in comparisons if (result := comparison.result()) is not None]
    if not found:
        return []
    return [f"<h2>{escape(say('Comparisons'))}</h2>", *(_comparison(c, result, say) for c, result in found)]


def _comparison(comparison: ComparisonRecord, result: ComparisonResult, say: Say) -> str:
    i, (a, b) = result.interval, comparison.names
    sentence = say(
        "{b} against {a}: {verdict}, {ratio}x the speed (95% interval {low} to {high}).",
        b=b,
        a=a,
        verdict=say(result.verdict),
        ratio=f"{i.ratio:.3f}",
        low=f"{i.low:.3f}",
        high=f"{i.high:.3f}",
    )
    floor = f"{result.floor:.2%}" + ("" if result.floor_measured else f" ({say('assumed')})")
    rows: list[tuple[str, ...]] = [
        (say("ms/step, median of blocks: A"), f"{result.a_step_ms:.2f}"),
        (say("ms/step, median of blocks: B"), f"{result.b_step_ms:.2f}"),
        (say("pairs of blocks"), str(i.n_pairs)),
        (say("disturbed blocks dropped"), str(result.dropped_blocks)),
        (say("A/A floor"), floor),
        (say("ended"), say(result.ended_by)),
    ]
    rows += [
        (name.replace("_", " "), "" if value is None else str(value))
        for name, value in comparison.beside.items()
        if name.endswith(("parity", "parity_worst", "proof", "unproven"))
    ]
    return (
        f'<p class="verdict">{escape(sentence)}</p>'
        + svg.interval(i.low, i.ratio, i.high, floor=result.floor, title=sentence)
        + _table(("", ""), rows, numbers=(1,))
    )


def _curves(records: Sequence[RunRecord], toggles: Mapping[str, str], say: Say) -> str:
    drawn = records[:MOST_CURVES]
    columns = [record.columns.columns() for record in drawn]
    labels = [record.label(record.segments[-1].segment.index, toggles) for record in drawn]
    keys = "".join(
        f"<li>{svg.swatch(place)} {record.run_id}: {escape(label)}</li>"
        for place, (record, label) in enumerate(zip(drawn, labels, strict=True))
    )
    more = ""
    if len(drawn) < len(records):
        more = f'<p class="small">{escape(say("The first {count} are drawn.", count=len(drawn)))}</p>'
    slow = [time for c in columns for time in quantiles(c["step_ms"][c["step_ms"] > 0], (0.97,)) if math.isfinite(time)]
    memory = [
        c["peak_allocated_bytes"] if bool((c["peak_allocated_bytes"] >= 0).any()) else c["device_used_bytes"]
        for c in columns
    ]
    charts = (
        (say("Throughput"), say("tokens/s"), [tokens_per_s(c) for c in columns], np.nanmedian, True, None),
        (
            say("Memory in a step"),
            "GiB",
            [np.where(sizes >= 0, sizes / GIB, np.nan) for sizes in memory],
            np.nanmax,
            True,
            None,
        ),
        (say("Loss"), say("nats a token"), [c["loss"] for c in columns], np.nanmedian, False, None),
        (
            say("Step time"),
            "ms",
            [np.where(c["step_ms"] > 0, c["step_ms"], np.nan) for c in columns],
            np.nanmedian,
            True,
            1.3 * max(slow, default=1.0),
        ),
    )
    marks = _marks(drawn)
    found = ""
    for title, unit, values, to_one, from_zero, top in charts:
        lines = [
            _line(f"{record.run_id}", c["time_s"], y, to_one)
            for record, c, y in zip(drawn, columns, values, strict=True)
        ]
        picture = svg.chart(
            lines,
            title=title,
            x_title=say("seconds of the run"),
            y_title=unit,
            from_zero=from_zero,
            top=top,
            marks=marks,
            mark_words=not found,
        )
        found += f"<h3>{escape(title)}</h3>{picture}" if picture else ""
    return f'<ul style="list-style:none;padding:0">{keys}</ul>{more}{found}'


def _marks(drawn: Sequence[RunRecord]) -> list[svg.Mark]:
    """Where the settings of these runs changed: at the end of the last step before."""
    found = []
    for place, record in enumerate(drawn):
        time_s = record.columns.column("time_s")
        for part in record.segments:
            first = record.columns.rows_of(part.segment.index).start
            if part.segment.changes and 0 < first < len(time_s):
                words = ", ".join(change.replace(" -> ", " → ") for change in part.segment.changes)
                whose = f"{record.run_id}: " if len(drawn) > 1 else ""
                found.append(svg.Mark(x=float(time_s[first - 1]), words=f"{whose}{words}", place=place))
    return sorted(found, key=lambda mark: mark.x)


def _line(name: str, x: NDArray[Any], y: NDArray[Any], to_one: Callable[[NDArray[Any]], Any]) -> svg.Line | None:
    """At most as many points as can be told apart; None where nothing was measured."""
    points_x, points_y = reduced(x, y, to_one)
    return svg.Line(name=name, x=points_x, y=points_y) if len(points_x) else None


def _configurations(records: Sequence[RunRecord], toggles: Mapping[str, str], say: Say) -> str:
    """A column a segment; what differs from the one before is set in bold."""
    parts = [(record, part) for record in records for part in record.segments]
    names = [f.name for f in dataclasses.fields(parts[0][1].config) if f.name != "levels"]
    values = [
        {
            **{name: part.config.level(name) or first for name, first in toggles.items()},
            **{name: str(getattr(part.config, name)) for name in names},
        }
        for _, part in parts
    ]
    header = "".join(f"<th>{_name(record, part.segment.index)}</th>" for record, part in parts)
    rows = ""
    for name in (*toggles, *names):
        row = [one[name] for one in values]
        cells = "".join(
            f'<td class="changed">{escape(value)}</td>'
            if place and value != row[place - 1]
            else f"<td>{escape(value)}</td>"
            for place, value in enumerate(row)
        )
        rows += f"<tr><th>{escape(name)}</th>{cells}</tr>"
    return f'<div class="wide"><table><tr><th>{escape(say("Setting"))}</th>{header}</tr>{rows}</table></div>'


def _environments(records: Sequence[RunRecord]) -> list[tuple[Environment, str]]:
    """Each environment once, with the device and the numbers of its runs."""
    found: dict[Environment, dict[str, list[str]]] = {}
    for record in records:
        if record.environment is not None:
            name = machine(record) or record.config.device
            found.setdefault(record.environment, {}).setdefault(name, []).append(str(record.run_id))
    return [
        (here, "; ".join(f"{', '.join(numbers)}: {device}" for device, numbers in by_device.items()))
        for here, by_device in found.items()
    ]


def _environment(found: tuple[Environment, str], say: Say) -> str:
    here, runs = found
    rows = [
        (f.name, str(getattr(here, f.name)))
        for f in dataclasses.fields(here)
        if f.name not in ("devices", "findings") and getattr(here, f.name) is not None
    ]
    for device in here.devices:
        # A run from a CSV does not know how much memory there was.
        size = f", {device.total_memory_bytes / GIB:.1f} GiB" if device.total_memory_bytes else ""
        rows.append((say("device"), f"{device.name} ({device.id}){size}"))
    rows += [(finding.severity, finding.text) for finding in here.findings]
    return f"<p>{escape(say('Runs {which}', which=runs))}</p>" + _table(("", ""), rows)


def _table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = (), raw: Sequence[int] = ()
) -> str:
    """A table; columns of ``numbers`` to the right, those of ``raw`` are markup of our own."""

    def kind(place: int) -> str:
        return ' class="number"' if place in numbers else ""

    header = "".join(f"<th{kind(place)}>{escape(title)}</th>" for place, title in enumerate(titles))
    lines = "".join(
        "<tr>"
        + "".join(f"<td{kind(place)}>{cell if place in raw else escape(cell)}</td>" for place, cell in enumerate(row))
        + "</tr>"
        for row in rows
    )
    head = f"<tr>{header}</tr>" if any(titles) else ""
    return f'<div class="wide"><table>{head}{lines}</table></div>'


def _number(value: float, form: str) -> str:
    return format(value, form) if math.isfinite(value) else NOTHING


def _range(low: float, high: float, form: str, between: str = " – ") -> str:
    if not (math.isfinite(low) or math.isfinite(high)):
        return NOTHING
    return f"{_number(low, form)}{between}{_number(high, form)}"


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / GIB:.2f}" if size_bytes >= 0 else NOTHING
