"""What the store of runs keeps: on real files, with real other processes, also killed ones."""

import dataclasses
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from kept_runs import CONFIG, TOGGLES, assert_equal, begun, samples

from explorer.results.export import segment_row
from explorer.results.log import RunRecord
from explorer.results.sample import Segment
from explorer.results.store import Store
from explorer.results.ways_out import WaysOut


def test_that_a_run_kept_bit_by_bit_comes_back_equal_in_another_opening(tmp_path: Path):
    log, record = begun()
    with Store(tmp_path / "runs.sqlite") as store:
        store.keep(log.runs)
        other = dataclasses.replace(CONFIG, batch=16)
        segment = Segment(index=1, first_step=40, changes=("batch 8 -> 16",), started_at="2026-01-02T03:05:00Z")
        log.begin_segment(1, other, segment)
        log.append(1, samples(40, 25, 1))
        store.keep(log.runs)
        log.append_text(1, "upon\x00 a time")
        log.append(1, samples(65, 1, 1))
        log.end(1, "failed", "Out of memory: halve the batch.", WaysOut(flips=(("checkpointing", "all"),), batch=8))
        store.keep(log.runs)
    with Store(tmp_path / "runs.sqlite", read_only=True) as store:
        (line,) = store.runs().runs
        assert (line.uid, line.config, line.samples, line.outcome) == (record.uid, other, 66, "failed")
        seen = store.load(line.id)
    assert_equal(seen, record)
    assert segment_row(seen, 1, toggles=TOGGLES) == segment_row(record, 1, toggles=TOGGLES)


def test_that_keeping_again_writes_nothing_twice(tmp_path: Path):
    log, record = begun()
    log.end(1, "completed")
    for _ in range(2):
        with Store(tmp_path / "runs.sqlite") as store:
            store.keep(log.runs)
            store.keep(log.runs)
    with Store(tmp_path / "runs.sqlite") as store:
        assert [line.samples for line in store.runs().runs] == [40]
        assert store.stored_id(record.uid) == 1
        assert_equal(store.load(1), record)


def test_that_a_run_goes_on_being_kept_after_the_file_was_opened_anew(tmp_path: Path):
    log, record = begun()
    with Store(tmp_path / "runs.sqlite") as store:
        store.keep(log.runs)
    log.append(1, samples(40, 10))
    log.end(1, "stopped")
    with Store(tmp_path / "runs.sqlite") as store:
        store.keep(log.runs)
        assert_equal(store.load(1), record)


def test_that_samples_dropped_from_memory_stay_in_the_file(tmp_path: Path):
    record = RunRecord(run_id=1, config=CONFIG, reference=CONFIG, capacity=80)
    with Store(tmp_path / "runs.sqlite") as store:
        for start in range(0, 300, 20):
            record.columns.append(samples(start, 20))
            store.keep([record])
        assert record.columns.dropped > 200
        assert store.load(1).columns.column("step").tolist() == list(range(300))


def test_that_a_killed_program_loses_only_what_was_not_yet_kept_and_its_run_counts_as_lost(tmp_path, monkeypatch):
    path = tmp_path / "runs.sqlite"
    code = """
        import sys; from pathlib import Path
        sys.path[:0] = sys.argv[2:]
        from kept_runs import Store, begun, samples
        log, record = begun()
        store = Store(Path(sys.argv[1]))
        for start in range(40, 1000, 40):
            log.append(1, samples(start, 40))
            store.keep(log.runs)
        log.append(1, samples(1000, 40))  # these come too late
        print("ready", flush=True)
        sys.stdin.read()
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(path), os.getcwd(), str(Path(__file__).parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:
        assert child.stdout.readline() == b"ready\n"
        child.send_signal(signal.SIGKILL)
    with Store(path) as store:
        assert store.load(1).columns.column("step").tolist() == list(range(1000))
        assert store.runs().runs[0].outcome == "running"
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 11)
        assert store.runs().runs[0].outcome == "incomplete"
        assert store.load(1).outcome == "incomplete"
        assert "the program ended before the run did" in store.load(1).problem


def test_that_a_clock_set_back_or_on_hides_no_lost_run_and_loses_none_that_goes_on(tmp_path: Path, monkeypatch):
    log, record = begun()
    now_s = time.time()
    with Store(tmp_path / "runs.sqlite") as store:
        for jump_s in (-86_400, 86_400):
            log.append(1, samples(len(record.columns), 1))
            store.keep(log.runs)
            assert store.runs().runs[0].outcome == "running"
            now_s += jump_s
            monkeypatch.setattr(time, "time", lambda: now_s)  # noqa: B023
            assert store.lost() == [1]
            log.append(1, samples(len(record.columns), 1))
            store.keep(log.runs)
            assert store.lost() == [], "what lives has written the time anew"


def test_that_two_processes_make_and_fill_one_file_at_once(tmp_path: Path):
    path = tmp_path / "runs.sqlite"
    code = """
        import sys; from pathlib import Path
        sys.path[:0] = sys.argv[2:]
        from kept_runs import Store, begun, samples
        print("ready", flush=True); sys.stdin.readline()
        log, record = begun()
        with Store(Path(sys.argv[1]), busy_s=20) as store:
            for start in range(40, 400, 20):
                log.append(1, samples(start, 20))
                store.keep(log.runs)
            log.end(1, "completed")
            store.keep(log.runs)
    """
    arguments = [sys.executable, "-c", textwrap.dedent(code), str(path), os.getcwd(), str(Path(__file__).parent)]
    children = [subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    for child in children:
        assert child.stdout.readline() == b"ready\n"
    for child in children:
        child.communicate(b"go\n")
        assert child.returncode == 0
    with Store(path, read_only=True) as store:
        assert [(line.samples, line.outcome) for line in store.runs().runs] == [(400, "completed")] * 2
        assert [store.load(line.id).columns.column("step").tolist() for line in store.runs().runs] == [
            [*range(400)]
        ] * 2


def test_that_a_locked_file_is_told_and_what_was_due_is_written_later(tmp_path: Path):
    path = tmp_path / "runs.sqlite"
    log, record = begun()
    with Store(path, busy_s=0.01) as store:
        store.keep(log.runs)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        log.append(1, samples(40, 5))
        with pytest.raises(RuntimeError, match="another program has it locked"):
            store.keep(log.runs)
        other.execute("ROLLBACK")
        other.close()
        log.end(1, "completed")
        store.keep(log.runs)
        assert_equal(store.load(1), record)


def test_that_runs_that_ended_and_are_kept_ask_for_no_lock(tmp_path: Path):
    log, _ = begun()
    log.end(1, "completed")
    with Store(tmp_path / "runs.sqlite", busy_s=0.01) as store:
        store.keep(log.runs)
        other = sqlite3.connect(tmp_path / "runs.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        store.keep(log.runs)
        other.close()


def test_that_an_error_while_writing_leaves_nothing_of_that_call(tmp_path: Path):
    path = tmp_path / "runs.sqlite"
    log, _ = begun()
    with Store(path) as store:
        store.keep(log.runs)
        other = sqlite3.connect(path)
        other.execute("CREATE TRIGGER full BEFORE INSERT ON samples BEGIN SELECT RAISE(ABORT, 'no room'); END")
        other.close()
        segment = Segment(index=1, first_step=40, changes=(), started_at="2026")
        log.begin_segment(1, CONFIG, segment)
        log.append(1, samples(40, 5, 1))
        with pytest.raises(RuntimeError, match="no room"):
            store.keep(log.runs)
        seen = store.load(1)
        assert (len(seen.segments), len(seen.columns)) == (1, 40)
