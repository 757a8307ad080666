"""What the store of runs lists, deletes and settles."""

import dataclasses
import sqlite3
import time
from pathlib import Path

import numpy as np
import pytest
from kept_runs import CONFIG, TOGGLES, assert_equal, begun, compared, ended, samples

from explorer.results.blocks import Blocks, comparison_row
from explorer.results.sample import Segment
from explorer.results.store import Store


def test_that_the_list_has_the_figures_of_the_last_segment_as_they_were_last_kept(tmp_path: Path):
    log, _ = begun()
    with Store(tmp_path / "runs.sqlite") as store:
        store.keep(log.runs)
        bf16 = CONFIG.with_level("precision", None)
        log.begin_segment(1, bf16, Segment(index=1, first_step=40, changes=("x",), started_at="2026"))
        log.append(1, samples(40, 25, 1))
        store.keep(log.runs)
        log.append(1, samples(65, 25, 1))
        store.keep(log.runs)
        (line,) = store.runs().runs
    steady = [s for s in samples(40, 25, 1) + samples(65, 25, 1) if s.phase == "steady"]
    assert line.tokens_per_s == pytest.approx(np.median([s.tokens_per_s for s in steady]))
    assert line.peak_allocated_bytes == max(
        s.peak_allocated_bytes for s in steady + samples(40, 50) if s.phase in ("steady", "prefill")
    )
    assert (line.segments, line.samples, line.device_name, line.config) == (2, 90, "NVIDIA H200", bf16)
    assert line.label(TOGGLES) == "fp32 baseline"
    assert (line.origin, line.outcome) == (None, "running")


def test_that_the_list_can_end_early_and_leaves_out_what_cannot_be_read(tmp_path: Path):
    path = tmp_path / "runs.sqlite"
    with Store(path) as store:
        for number in range(1, 6):
            ended(store, number)
        assert [line.id for line in store.runs(2).runs] == [4, 5]
        assert store.runs(2).total == 5
        connection = sqlite3.connect(path)
        with connection:
            connection.execute("UPDATE segments SET config = json_set(config, '$.moon', 3) WHERE run = 4")
        connection.close()
        listing = store.runs()
        assert [line.id for line in listing.runs] == [1, 2, 3, 5]
        assert listing.unreadable == ("run 4 is damaged, or of a newer explorer: unknown settings: moon",)


def test_that_a_comparison_comes_back_with_its_figures(tmp_path: Path):
    with Store(tmp_path / "runs.sqlite") as store:
        a, b = ended(store, 1), ended(store, 2)
        whole = compared(a, b)
        going = dataclasses.replace(whole, blocks=Blocks(), ended_by=None)
        store.keep([], [going])
        assert store.comparisons()[0].result is None
        going.blocks.add(0, 0, whole.blocks.of_arm(0)[0])
        store.keep([], [going])
        store.keep([], [whole])
        store.keep([], [whole])
        store.keep([], [compared(a, b)])
        line, other = store.comparisons()
        assert (line.id, other.id) == (1, 2), "no number is spent on bringing one up to date"
    with Store(tmp_path / "runs.sqlite", read_only=True) as store:
        seen, arms = store.load_comparison(line.id)
        with pytest.raises(ValueError, match="no stored comparison has the number 7; stored: 1, 2"):
            store.load_comparison(7)
    assert seen.result() == whole.result()
    assert (seen.names, seen.beside, seen.uid, seen.run_uids) == (whole.names, whole.beside, whole.uid, whole.run_uids)
    assert (line.names, line.run_ids, line.result) == (whole.names, (1, 2), comparison_row(whole.result()))
    for got, arm in zip(arms, (a, b), strict=True):
        assert_equal(got, arm)


def test_that_runs_are_deleted_whole_and_no_number_is_given_again(tmp_path: Path):
    path = tmp_path / "runs.sqlite"
    with Store(path) as store:
        for number in range(1, 4):
            ended(store, number)
        before = path.stat().st_size
        log, _ = begun(4)
        log.append(4, samples(40, 20_000))
        log.end(4, "completed")
        store.keep(log.runs)
        store.delete([2, 4])
        assert [line.id for line in store.runs().runs] == [1, 3]
        with pytest.raises(ValueError, match="no stored run has the number 2"):
            store.load(2)
        ended(store, 5)
        assert [line.id for line in store.runs().runs] == [1, 3, 5]
    assert path.stat().st_size < 2 * before + 100_000, "the room is given back"
    connection = sqlite3.connect(path)
    for table in ("segments", "texts", "samples"):
        assert connection.execute(f"SELECT DISTINCT run FROM {table} ORDER BY run").fetchall() == [(1,), (3,), (5,)]
    connection.close()


def test_that_what_may_not_be_deleted_is_refused_and_nothing_goes(tmp_path: Path):
    with Store(tmp_path / "runs.sqlite") as store:
        a, b = ended(store, 1), ended(store, 2)
        ended(store, 3)
        store.keep([begun(4)[1]], [compared(a, b)])
        for ids, words in (
            ([1, 2, 9, 7], "no stored run has the number 7, 9"),
            ([3, 4], "run 4 is going"),
            ([2, 3], "runs 1 and 2 are the arms of comparison 1; delete both, or neither"),
        ):
            with pytest.raises(ValueError, match=words):
                store.delete(ids)
        assert [line.id for line in store.runs().runs] == [1, 2, 3, 4]
        store.delete([1, 2])
        assert ([line.id for line in store.runs().runs], store.comparisons()) == ([3, 4], [])
    with Store(tmp_path / "runs.sqlite", read_only=True) as store, pytest.raises(RuntimeError, match="only be read"):
        store.delete([3])


def test_that_a_lost_run_is_named_until_it_is_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with Store(tmp_path / "runs.sqlite") as store:
        store.keep([begun(1)[1], begun(2)[1]])
        ended(store, 3)
        assert store.lost() == []
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 11)
        assert store.lost() == [1, 2]
        store.keep([begun(4)[1]])
        store.settle_lost()
        assert store.lost() == []
        assert [line.outcome for line in store.runs().runs] == ["incomplete", "incomplete", "completed", "running"]
        store.delete([1])
