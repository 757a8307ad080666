"""Ten thousand stored runs: the list and a comparison are there at once, by processor time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from kept_runs import begun, compared

from explorer.results.database import open_database
from explorer.results.store import Store

RUNS = 10_000


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two compared runs of 40 steps, then copies with a thousand different settings, a segment and its figures each."""
    path = tmp_path_factory.mktemp("many") / "runs.sqlite"
    records = [begun(number)[1] for number in (1, 2)]
    with Store(path) as store:
        for record in records:
            store.keep([record])
        store.keep([], [compared(*records)])
    database = open_database(path, read_only=False, busy_s=1.0)
    count = "WITH RECURSIVE n(i) AS (SELECT 3 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
    with database.connection as connection:
        connection.execute("BEGIN")
        connection.execute(
            f"INSERT INTO runs SELECT i, uid || i, started_at, seen_at, json_set(config, '$.seed', i % 1000),"
            " reference, 'completed', problem, samples, device_name, origin, environment, notes, ways_out, failure,"
            " marks"
            f" FROM ({count} SELECT i FROM n), runs WHERE id = 1",
            (RUNS,),
        )
        connection.execute(
            f"INSERT INTO segments SELECT i, 0, content, json_set(config, '$.seed', i % 1000), summary FROM ({count}"
            " SELECT i FROM n), segments WHERE run = 1",
            (RUNS,),
        )
        connection.execute("COMMIT")
    database.connection.close()
    return path


def test_that_the_list_of_ten_thousand_runs_is_read_in_under_a_second(many: Path) -> None:
    with Store(many, read_only=True) as store:
        began_s = time.process_time()
        listing = store.runs()
        took_s = time.process_time() - began_s
    assert len(listing.runs) == RUNS
    assert not listing.unreadable
    assert {line.config.seed for line in listing.runs} == set(range(1000))
    assert took_s < 1.0


def test_that_a_comparison_among_ten_thousand_runs_is_there_in_under_two_seconds(many: Path) -> None:
    began_s = time.process_time()
    with Store(many, read_only=True) as store:
        (line,) = store.comparisons()
        comparison, arms = store.load_comparison(line.id)
        result = comparison.result()
    took_s = time.process_time() - began_s
    assert result is not None
    assert [len(arm.columns) for arm in arms] == [40, 40]
    assert took_s < 2.0
