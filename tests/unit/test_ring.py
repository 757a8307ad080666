"""Samples as columns: what goes in comes out, within bounds."""

import dataclasses
import math

import numpy as np
import pytest

from explorer.results.ring import PHASES, SampleColumns, as_columns
from explorer.results.sample import Sample


def samples(first: int, count: int, segment: int = 0) -> list[Sample]:
    return [
        Sample(
            step=i,
            segment=segment,
            phase=PHASES[i % 4],
            time_s=i * 0.1,
            tokens=8 * i,
            step_ms=i + 0.25,
            loss=math.nan if i % 3 else float(i),
            skipped=i % 5 == 0,
            reserved_bytes=2**40 + i,
        )
        for i in range(first, first + count)
    ]


def test_that_every_field_of_every_sample_comes_back_equal():
    columns = SampleColumns()
    given = samples(0, 3000)
    for start in range(0, 3000, 7):
        columns.append(given[start : start + 7])
    assert len(columns) == 3000
    for field in dataclasses.fields(Sample):
        seen = columns.column(field.name).tolist()
        if field.name == "phase":
            seen = [PHASES[code] for code in seen]
        np.testing.assert_array_equal(seen, [getattr(sample, field.name) for sample in given])


def test_that_appending_nothing_changes_nothing():
    columns = SampleColumns()
    columns.append([])
    assert len(columns) == 0
    assert len(columns.column("loss")) == 0


@pytest.mark.parametrize("piece", [1, 3, 10, 37, 250])
def test_that_beyond_its_capacity_the_oldest_are_dropped_and_the_newest_stay(piece):
    columns = SampleColumns(capacity=80)
    given = samples(0, 1000)
    for start in range(0, 1000, piece):
        columns.append(given[start : start + piece])
    assert 70 <= len(columns) <= 80
    assert columns.dropped + len(columns) == 1000
    assert columns.column("step").tolist() == list(range(columns.dropped, 1000))
    assert columns.column("reserved_bytes")[-1] == 2**40 + 999


def test_that_what_is_dropped_is_handed_over_first_each_row_once():
    gone: list[int] = []
    columns = SampleColumns(capacity=80, dropping=lambda old: gone.extend(old["step"].tolist()))
    for start in range(0, 500, 20):
        columns.append(samples(start, 20))
    assert gone == list(range(columns.dropped))
    assert len(gone) >= 420


def test_that_rows_of_a_segment_are_those_and_no_others():
    columns = SampleColumns(capacity=80)
    for segment in range(5):
        columns.append(samples(30 * segment, 30, segment))
    assert columns.rows_of(0) == slice(0, 0)
    assert columns.column("step")[columns.rows_of(3)].tolist() == list(range(90, 120))
    assert set(columns.columns(columns.rows_of(4))["segment"].tolist()) == {4}
    rows = columns.rows_of(9)
    assert rows.start == rows.stop


def test_that_a_view_cannot_be_written_through():
    columns = SampleColumns()
    columns.append(samples(0, 3))
    with pytest.raises(ValueError, match="read-only"):
        columns.column("loss")[0] = 1.0


def test_that_an_unknown_column_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match=r"'speed'.*step_ms"):
        SampleColumns().column("speed")


def test_that_columns_can_be_added_whole():
    columns = SampleColumns()
    columns.extend(as_columns(samples(0, 5)))
    columns.extend(as_columns(samples(5, 5)))
    assert columns.column("tokens").tolist() == [8 * i for i in range(10)]
