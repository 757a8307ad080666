"""CSV: read back by pandas and the csv module to the values that went in."""

import csv
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from explorer.config import RunConfig
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.export import segment_row, segment_rows, write_samples, write_segments
from explorer.results.log import RunLog
from explorer.results.sample import Sample, Segment

TOGGLES = {"precision": "fp32", "attention": "naive"}
GPU = DeviceInfo(id="cuda:0", kind="cuda", name="NVIDIA H200", total_memory_bytes=2**37, driver="580.95.05")
HERE = Environment(devices=(GPU,), platform="Linux", python="3.12.3", explorer="0.1.0", torch="2.11.0+cu130")


def log_of(prompt: str = 'say "hi",\nthen go', changes: tuple[str, ...] = ()) -> RunLog:
    rng = np.random.default_rng(3)
    log = RunLog()
    log.set_environment(HERE)
    config = RunConfig(device="cuda:0", prompt=prompt, lr=0.1 + 0.2).with_level("precision", "bf16")
    log.begin_run(1, config)
    for index in range(2):
        log.begin_segment(1, config, Segment(index=index, first_step=50 * index, changes=changes, started_at="2026"))
        log.append(
            1,
            [
                Sample(
                    step=i,
                    segment=index,
                    phase="compile" if i == 50 * index else "steady",
                    time_s=i / 3,
                    tokens=8192,
                    step_ms=float(rng.lognormal(3, 1)),
                    loss=float(rng.normal()),
                    grad_norm=math.nan if i % 7 else math.inf,
                    skipped=i % 9 == 0,
                    peak_allocated_bytes=2**33 + i,
                    device_used_bytes=-1 if i % 2 else 5,
                )
                for i in range(50 * index, 50 * index + 50)
            ],
        )
    log.end(1, "completed")
    return log


def test_that_pandas_reads_back_every_sample_exactly(tmp_path: Path):
    log = log_of()
    path = tmp_path / "steps.csv"
    write_samples(path, log.runs)
    frame = pd.read_csv(path)
    columns = log.run(1).columns
    for name in ("step", "segment", "time_s", "tokens", "step_ms", "loss", "grad_norm", "skipped", "power_w"):
        np.testing.assert_array_equal(frame[name], columns.column(name))
    assert frame.run.unique().tolist() == [1]
    assert frame.phase.tolist() == (["compile"] + ["steady"] * 49) * 2
    assert frame.skipped.dtype == bool
    assert frame.device_used_bytes.isna().tolist() == [i % 2 == 1 for i in range(100)]
    assert frame.reserved_bytes.isna().all()
    np.testing.assert_array_equal(frame.tokens_per_s, 8192e3 / columns.column("step_ms"))


def test_that_steps_which_were_done_again_are_marked(tmp_path: Path):
    log = RunLog()
    log.begin_run(1, RunConfig())
    # Segment 1 failed at step 5, and the run went on from step 3.
    stretches = [(0, 3, ()), (3, 5, ("compile off -> model",)), (3, 8, ("resumed",))]
    for index, (first, end, changes) in enumerate(stretches):
        log.begin_segment(1, RunConfig(), Segment(index=index, first_step=first, changes=changes, started_at="2026"))
        made = (
            Sample(step=i, segment=index, phase="steady", time_s=i, tokens=8, step_ms=1.0) for i in range(first, end)
        )
        log.append(1, list(made))
    write_samples(tmp_path / "steps.csv", log.runs)
    write_segments(tmp_path / "segments.csv", log.runs, toggles=TOGGLES)
    steps, segments = pd.read_csv(tmp_path / "steps.csv"), pd.read_csv(tmp_path / "segments.csv")
    assert segments.abandoned.tolist() == [False, True, False]
    assert steps.abandoned.tolist() == [False] * 3 + [True] * 2 + [False] * 5
    assert steps[~steps.abandoned].step.tolist() == list(range(8)), "each once"


def test_that_a_copy_of_a_run_stays_as_it_was_and_is_all_of_it():
    log = log_of()
    record = log.run(1)
    copy = record.as_of_now()
    rows = [segment_row(copy, index, toggles=TOGGLES) for index in range(2)]
    assert rows == [segment_row(record, index, toggles=TOGGLES) for index in range(2)]
    log.append(1, [Sample(step=100, segment=1, phase="steady", time_s=9, tokens=1, step_ms=1.0)])
    log.note(1, "later")
    assert (len(copy.columns), len(record.columns)) == (100, 101)
    assert (copy.notes, segment_row(copy, 1, toggles=TOGGLES)["n"]) == ([], rows[1]["n"])


def test_that_pandas_reads_back_every_segment_exactly(tmp_path: Path):
    log = log_of()
    path = tmp_path / "out.csv"
    write_segments(path, log.runs, toggles=TOGGLES)
    frame = pd.read_csv(path)
    assert len(frame) == 2
    for index in range(2):
        summary, row = log.summary(1, index), frame.iloc[index]
        assert row.step_ms_median == summary.step_ms_median
        assert row.tokens_per_s_p95 == summary.tokens_per_s_p95
        assert (row.n, row.warmup, row.settled) == (49, 1, True)
        assert row.peak_allocated_bytes == 2**33 + 49 + 50 * index
        assert (row.loss_first, row.loss_last) == (summary.loss_first, summary.loss_last)
        assert (row.precision, row.attention) == ("bf16", "naive")
        assert (row.device, row.device_name, row.driver) == ("cuda:0", "NVIDIA H200", "580.95.05")
        assert (row.torch, row.lr, row.outcome) == ("2.11.0+cu130", 0.1 + 0.2, "completed")
    assert frame.triton.isna().all()
    assert frame.reserved_bytes.isna().all()


def test_that_the_bands_of_memory_and_what_they_miss_are_columns(tmp_path: Path):
    log = RunLog()
    for run_id, device in ((1, "cuda:0"), (2, "cpu")):
        config = RunConfig(device=device)
        log.begin_run(run_id, config)
        log.begin_segment(run_id, config, Segment(index=0, first_step=0, changes=(), started_at="2026"))
        sizes = {"peak_allocated_bytes": 60, "reserved_bytes": 100, "device_used_bytes": 150}
        told = {"context_bytes": 30, "other_processes_bytes": 17, "driver_reserved_bytes": 9} if run_id == 1 else {}
        log.append(
            run_id,
            [
                Sample(step=i, segment=0, phase="steady", time_s=i, tokens=1, step_ms=1.0, **sizes, **told)
                for i in range(3)
            ],
        )
    log.note(1, "power is capped at 400 of 700 W")
    log.note(1, "the clock fell")
    gpu, cpu = segment_rows(log.runs, toggles=TOGGLES)
    bands = ("peak_allocated_bytes", "cached_bytes", "context_bytes", "other_processes_bytes", "driver_reserved_bytes")
    assert [gpu[name] for name in bands] == [60, 40, 30, 17, 9]
    assert (gpu["device_used_bytes"], gpu["memory_unexplained_bytes"]) == (150, 150 - 100 - 30 - 17)
    assert [cpu[name] for name in (*bands[1:], "memory_unexplained_bytes")] == [None] * 5
    assert gpu["notes"] == "power is capped at 400 of 700 W; the clock fell"
    write_samples(tmp_path / "steps.csv", log.runs)
    with (tmp_path / "steps.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["cached_bytes"], row["memory_unexplained_bytes"]) for row in rows] == [("40", "3")] * 3 + [
        ("", "")
    ] * 3


def test_that_the_file_is_rfc_4180_with_crlf_and_quotes(tmp_path: Path):
    path = tmp_path / "out.csv"
    write_segments(path, log_of().runs, toggles=TOGGLES)
    raw = path.read_bytes()
    assert raw.count(b"\r\n") == 3
    assert b'"say ""hi"",\nthen go"' in raw
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file, strict=True))
    assert {len(row) for row in rows} == {len(rows[0])}
    assert rows[1][rows[0].index("prompt")] == 'say "hi",\nthen go'


def test_that_every_measured_column_carries_its_unit(tmp_path: Path):
    path = tmp_path / "steps.csv"
    write_samples(path, log_of().runs)
    header = pd.read_csv(path).columns
    without = {"run", "segment", "step", "block", "phase", "tokens", "loss", "grad_norm", "loss_scale", "skipped"}
    for name in set(header) - without - {"synchronizations", "abandoned"}:
        assert name.endswith(("_ms", "_s", "_bytes", "_w", "_c", "_mhz", "_j")), name
    assert header.is_unique
    assert pd.Index(segment_row(log_of().run(1), 0, toggles=TOGGLES)).is_unique


@pytest.mark.parametrize("text", ["=1+1", "+A1", "-A1", "@SUM(A1)", "\t=1", "\r=1", "=cmd|' /C calc'!A0"])
def test_that_no_text_cell_can_become_a_formula(tmp_path: Path, text: str):
    path = tmp_path / "out.csv"
    write_segments(path, log_of(prompt=text, changes=(text,)).runs, toggles=TOGGLES)
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        assert row["prompt"] == row["changes"] == "'" + text
        assert row["label"] == "'+ precision bf16"


def test_that_negative_numbers_stay_numbers(tmp_path: Path):
    path = tmp_path / "steps.csv"
    log = log_of()
    write_samples(path, log.runs)
    loss = log.run(1).columns.column("loss")
    assert (loss < 0).any()
    np.testing.assert_array_equal(pd.read_csv(path).loss, loss)


def test_that_rows_for_json_hold_null_for_what_was_not_measured():
    rows = json.loads(json.dumps(segment_rows(log_of().runs, toggles=TOGGLES), allow_nan=False))
    assert rows[0]["ttft_ms"] is None
    assert rows[0]["reserved_bytes"] is None
    assert rows[0]["settled"] is True
    assert rows[1]["peak_allocated_bytes"] == 2**33 + 99
    assert rows[0]["label"] == "+ precision bf16"


def test_that_text_outside_ascii_survives(tmp_path: Path):
    path = tmp_path / "übung.csv"
    write_segments(path, log_of(prompt="从前 — naïve 🙂").runs, toggles=TOGGLES)
    assert pd.read_csv(path).prompt.tolist() == ["从前 — naïve 🙂"] * 2


def test_that_a_toggle_cannot_take_the_name_of_a_measured_column():
    with pytest.raises(AssertionError, match="toggle seq"):
        segment_row(log_of().run(1), 0, toggles={"seq": "off"})


def test_that_a_run_without_a_known_machine_is_exported_with_empty_cells():
    log = RunLog()
    log.begin_run(1, RunConfig())
    log.begin_segment(1, RunConfig(), Segment(index=0, first_step=0, changes=(), started_at="2026"))
    row = segment_row(log.run(1), 0, toggles=TOGGLES)
    assert (row["device_name"], row["torch"], row["driver"], row["n"], row["step_ms_median"]) == (None,) * 3 + (0, None)


def test_that_exporting_nothing_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="nothing to export"):
        write_segments(tmp_path / "out.csv", [], toggles=TOGGLES)
    assert list(tmp_path.iterdir()) == []
