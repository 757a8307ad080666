"""Runs that come from another machine as the CSV with one row a segment."""

from __future__ import annotations

import csv
import dataclasses
import math
from pathlib import Path

import pytest
from kept_runs import CONFIG, TOGGLES, begun, samples

from explorer.results.bundle import read_bundle, write_bundle
from explorer.results.export import write_samples, write_segments
from explorer.results.importing import read_any
from explorer.results.log import RunRecord
from explorer.results.runs_csv import read_runs
from explorer.results.sample import RESUMED, Segment
from explorer.results.store import Store

OTHER = dataclasses.replace(CONFIG, batch=16, stop=("\n\n", "="), prompt="=1+1", more_prompts=("a", "-b\n")).with_level(
    "precision", None
)


def exported(path: Path) -> RunRecord:
    """A run of three segments, of which the second was abandoned, with one of another number before it."""
    log, record = begun(2)
    for index, first, changes in ((1, 40, ("batch 8 -> 16", "precision bf16 -> fp32")), (2, 40, (RESUMED,))):
        log.begin_segment(2, OTHER, Segment(index=index, first_step=first, changes=changes, started_at="2026-02-03"))
        log.append(2, samples(first, 30, index))
    log.end(2, "failed", "-Out of memory: it does not fit")
    assert [record.abandoned(i) for i in range(3)] == [False, True, False]
    _, before = begun(1)
    write_segments(path, [before, record], toggles=TOGGLES)
    return record


def cells(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def changed(path: Path, **wanted: str) -> None:
    """Give the first row other cells."""
    rows = cells(path)
    rows[0] |= wanted
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def test_that_a_run_read_from_its_csv_is_what_was_measured(tmp_path):
    record = exported(tmp_path / "runs.csv")
    other, seen = read_runs(tmp_path / "runs.csv", toggles=TOGGLES)
    assert (other.run_id, seen.run_id, other.outcome) == (1, 2, "incomplete"), "the first was going"
    assert [kept.config for kept in seen.segments] == [CONFIG, OTHER, OTHER]
    assert (seen.outcome, seen.problem, seen.notes) == (record.outcome, record.problem, record.notes)
    assert [seen.abandoned(i) for i in range(3)] == [False, True, False]
    for index in range(3):
        here, there = seen.summary(index), record.summary(index)
        for field in dataclasses.fields(there):
            a, b = getattr(here, field.name), getattr(there, field.name)
            assert a == b or (math.isnan(a) and math.isnan(b)), field.name
    assert seen.environment is not None
    assert seen.environment.device("cuda:0").name == "NVIDIA H200"
    assert (seen.environment.torch, seen.environment.python) == ("2.11.0+cu130", "3.12.3")
    assert len(seen.columns) == 0


def test_that_a_run_from_a_csv_is_exported_as_it_came_also_out_of_a_store_and_a_bundle(tmp_path):
    exported(tmp_path / "runs.csv")
    runs = read_runs(tmp_path / "runs.csv", toggles=TOGGLES)
    with Store(tmp_path / "store.sqlite") as store:
        store.keep(runs, origin="runs.csv")
        loaded = [store.load(id) for id in store.ids()]
        lines = store.runs().runs
    assert [(line.origin, line.samples, line.segments) for line in lines] == [("runs.csv", 40, 1), ("runs.csv", 100, 3)]
    assert lines[1].tokens_per_s == runs[1].summary(2).tokens_per_s_median
    write_bundle(tmp_path / "out.zip", loaded, toggles=TOGGLES)
    write_segments(tmp_path / "again.csv", read_bundle(tmp_path / "out.zip").runs, toggles=TOGGLES)
    wanted = cells(tmp_path / "runs.csv")
    for row in wanted:
        row["outcome"] = {"running": "incomplete"}.get(row["outcome"], row["outcome"])
        row["problem"] = row["problem"] or ("it was going when it was exported" if row["run"] == "1" else "")
    for row, again in zip(wanted, cells(tmp_path / "again.csv"), strict=True):
        for name, cell in row.items():
            if name in ("tflop_per_s", "mfu_measured", "mfu_published") and cell:
                assert float(again[name]) == pytest.approx(float(cell), rel=1e-12), name
            else:
                assert again[name] == cell, name


def test_that_a_run_is_known_again_whatever_its_number_and_what_stands_beside_it(tmp_path):
    record = exported(tmp_path / "runs.csv")
    _, first = read_runs(tmp_path / "runs.csv", toggles=TOGGLES)
    record.run_id = 9
    write_segments(tmp_path / "later.csv", [record], toggles=TOGGLES)
    (second,) = read_runs(tmp_path / "later.csv", toggles=TOGGLES)
    assert first.uid == second.uid
    changed(tmp_path / "later.csv", loss_last="1.5")
    (third,) = read_runs(tmp_path / "later.csv", toggles=TOGGLES)
    assert third.uid != first.uid


def test_that_a_csv_saved_by_a_spreadsheet_or_made_before_some_columns_is_read(tmp_path):
    path = tmp_path / "runs.csv"
    exported(path)
    runs = read_runs(path, toggles=TOGGLES)
    rows = cells(path)
    kept = [name for name in rows[0] if name not in ("joules_per_token", "repetition_penalty", "notes")]
    lines = [",".join(kept)]
    for row in rows:
        quoted = ('"' + row[name].replace('"', '""') + '"' for name in kept)
        lines.append(",".join(quoted).replace('"true"', "TRUE").replace('"false"', "FALSE"))
    path.write_text("\ufeff" + "\n".join(lines), "utf-8")
    seen = read_runs(path, toggles=TOGGLES)
    assert [run.outcome for run in seen] == [run.outcome for run in runs]
    assert [kept.config for kept in seen[1].segments] == [CONFIG, OTHER, OTHER]
    assert [seen[1].abandoned(i) for i in range(3)] == [False, True, False]
    assert math.isnan(seen[1].summary(0).joules_per_token)
    assert seen[1].notes == []


@pytest.mark.parametrize(
    ("cells_of_the_first_row", "said"),
    [
        ({"batch": "many"}, "row 2: batch is 'many'; it must be a number"),
        ({"batch": "0"}, "row 2: batch is 0; allowed: 1 to 1024"),
        ({"workload": "bake"}, "row 2: workload is 'bake'; allowed: train, generate"),
        ({"step_ms_median": "fast"}, "row 2: step_ms_median is 'fast'; it must be a number"),
        ({"settled": "maybe"}, "row 2: settled is 'maybe'; allowed: true, false"),
        ({"outcome": "gone"}, "row 2: outcome is 'gone'; allowed: running"),
        ({"segment": "x"}, "row 2: segment is 'x'; it must be a whole number"),
        ({"run": "one"}, "row 2: run is 'one'; it must be a whole number"),
        ({"run": "2"}, "a segment is there twice"),
        ({"stop": "[1"}, "row 2: stop"),
        ({"more_prompts": "[1]"}, "row 2: more_prompts"),
        ({"steps": "inf"}, "row 2: steps is 'inf'; it must be finite"),
    ],
)
def test_that_a_cell_that_is_not_allowed_is_named(tmp_path, cells_of_the_first_row, said):
    path = tmp_path / "runs.csv"
    exported(path)
    changed(path, **cells_of_the_first_row)
    with pytest.raises(ValueError, match=r"is no CSV of runs, or damaged") as caught:
        read_runs(path, toggles=TOGGLES)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "it lacks the columns run, segment"),
        ("name,age\nAda,36\n", "it lacks the columns run, segment"),
        ("run,segment,speedup\n1,2,3\n", "it is a comparison"),
        ('run,segment\n1,"2\n', "unexpected end of data"),
    ],
)
def test_that_another_csv_is_refused_with_what_it_is(tmp_path, content, said):
    (tmp_path / "x.csv").write_text(content)
    with pytest.raises(ValueError, match="is no CSV of runs") as caught:
        read_any(tmp_path / "x.csv", toggles=TOGGLES)
    assert said in str(caught.value)


def test_that_the_csv_of_steps_unknown_columns_and_files_that_are_none_are_told(tmp_path):
    record = exported(tmp_path / "runs.csv")
    write_samples(tmp_path / "steps.csv", [record])
    with pytest.raises(ValueError, match="it has one row a step; import the CSV with one row a segment"):
        read_any(tmp_path / "steps.csv", toggles=TOGGLES)
    with pytest.raises(ValueError, match="columns unknown here: precision; update this explorer"):
        read_any(tmp_path / "runs.csv", toggles={})
    lines = (tmp_path / "runs.csv").read_text().splitlines()
    (tmp_path / "cut.csv").write_text("\n".join([lines[0], lines[1][:40]]))
    with pytest.raises(ValueError, match=r"row 2 has \d+ cells, its header \d+"):
        read_any(tmp_path / "cut.csv", toggles=TOGGLES)
    (tmp_path / "none.csv").write_text(lines[0])
    with pytest.raises(ValueError, match="it holds no run"):
        read_any(tmp_path / "none.csv", toggles=TOGGLES)
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="is no CSV of runs"):
        read_any(tmp_path / "binary.csv", toggles=TOGGLES)
    with pytest.raises(ValueError, match=r"away\.csv cannot be read"):
        read_any(tmp_path / "away.csv", toggles=TOGGLES)
    with pytest.raises(ValueError, match="it is no file"):
        read_runs(tmp_path, toggles=TOGGLES)
