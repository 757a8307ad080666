"""The recorder: what the worker says is in the file a moment later, and nothing that the file does stops a run."""

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from kept_runs import CONFIG, HERE, assert_equal, begun, compared, ended, samples

from explorer.experiments.recorder import Recorder
from explorer.experiments.recording import record
from explorer.messages import (
    BlockEnded,
    Event,
    Problem,
    RunEnded,
    Samples,
    SegmentStarted,
    Text,
    WorkerLost,
    WorkerReady,
)
from explorer.results.comparison_record import ComparisonRecord
from explorer.results.log import RunLog
from explorer.results.sample import Segment
from explorer.results.store import Store

FIRST = Segment(index=0, first_step=0, changes=(), started_at="2026-01-02T03:04:05Z")


def opened(path: Path | None, **given: Any) -> Recorder:
    recorder = Recorder(path, **given)
    recorder.open()
    return recorder


class Reports(list[str]):
    """What the recorder said, to be waited for."""

    def __init__(self) -> None:
        self._news = threading.Condition()

    def __call__(self, line: str) -> None:
        with self._news:
            self.append(line)
            self._news.notify_all()

    def wait_for(self, count: int) -> None:
        with self._news:
            assert self._news.wait_for(lambda: len(self) >= count, timeout=30)


def events(run_id: int) -> list[Event]:
    other = CONFIG.with_level("precision", None)
    second = Segment(index=1, first_step=30, changes=("precision bf16 -> fp32",), started_at="2026-01-02T03:05:05Z")
    return [
        SegmentStarted(run_id=run_id, config=CONFIG, segment=FIRST),
        Samples(run_id=run_id, samples=tuple(samples(0, 30))),
        Text(run_id=run_id, text="Once "),
        SegmentStarted(run_id=run_id, config=other, segment=second),
        Text(run_id=run_id, text="upon"),
        Samples(run_id=run_id, samples=tuple(samples(30, 25, 1))),
    ]


def test_that_what_the_worker_says_is_stored_as_the_log_has_it(tmp_path: Path):
    log, reports = RunLog(), Reports()
    recorder = Recorder(tmp_path / "runs.sqlite", report=reports)

    def say(*said: Event) -> None:
        for event in said:
            record(log, event)
            recorder.take(event)

    problem = Problem(what="Out of memory", why="too large")
    recorder.begin_run(log.begin_run(1, CONFIG))
    say(WorkerReady(environment=HERE), *events(1), RunEnded(run_id=1, outcome="failed", problem=problem))
    recorder.open()  # what came before it is kept, too
    recorder.begin_run(log.begin_run(2, CONFIG))
    say(*events(2), WorkerLost(exit_code=-11, last_words="Segmentation fault"))
    recorder.begin_run(log.begin_run(3, CONFIG))
    say(*events(3)[:2])
    numbers = recorder.close()
    recorder.take(Text(run_id=3, text="too late"))
    assert not [thread for thread in threading.enumerate() if thread.name == "recorder"]
    assert reports == []
    assert numbers == {run.uid: i for i, run in enumerate(log.runs, start=1)}
    log.end(3, "stopped")  # as closing with a run that is going counts
    with Store(tmp_path / "runs.sqlite") as store:
        for number, run in enumerate(log.runs, start=1):
            assert_equal(store.load(number), run)


def test_that_a_comparison_is_stored_with_the_blocks_that_the_worker_told(tmp_path: Path):
    log = RunLog()
    recorder = opened(tmp_path / "runs.sqlite", report=pytest.fail)
    for run_id in (1, 2):
        recorder.begin_run(log.begin_run(run_id, CONFIG))
    a, b = log.runs
    wanted = compared(a, b)
    comparison = ComparisonRecord(
        run_uids=(a.uid, b.uid), names=("fp32", "bf16"), floor=0.01, floor_measured=False, uid="c"
    )
    recorder.begin_comparison(comparison)
    for run_id in (1, 2):
        recorder.take(SegmentStarted(run_id=run_id, config=CONFIG, segment=FIRST))
        recorder.take(Samples(run_id=run_id, samples=tuple(samples(0, 30))))
        recorder.take(Samples(run_id=run_id, samples=tuple(samples(0, 20))))  # an arm is warmed up more than once
    for arm in (0, 1):
        for pair, block in wanted.blocks.of_arm(arm).items():
            recorder.take(
                BlockEnded(
                    run_id=arm + 1,
                    arm=arm,
                    pair=pair,
                    steps=10,
                    step_ms_median=block.step_ms,
                    sm_clock_mhz=block.sm_clock_mhz,
                )
            )
    for run_id in (1, 2):
        recorder.take(RunEnded(run_id=run_id, outcome="stopped"))
    comparison.ended_by, comparison.floor, comparison.floor_measured = "budget", 0.004, True
    recorder.end_comparison(comparison)
    ended_and_kept = threading.Event()

    def look(store: Store) -> None:
        if store.comparisons() and store.comparisons()[0].result is not None:
            ended_and_kept.set()
        else:
            recorder.ask(look)

    recorder.ask(look)
    assert ended_and_kept.wait(30)
    recorder.put_beside("c", {"parity": "kept"})
    recorder.close()
    with Store(tmp_path / "runs.sqlite", read_only=True) as store:
        seen, arms = store.load_comparison(1)
    assert seen.result() == wanted.result(floor=0.004)
    assert (seen.beside, seen.names, seen.run_uids) == (wanted.beside, wanted.names, (a.uid, b.uid))
    assert [arm.columns.column("step").tolist() for arm in arms] == [[*range(30), *range(20)]] * 2


def test_that_a_run_is_kept_once_it_has_begun_and_a_wrong_request_never(tmp_path: Path):
    log = RunLog()
    recorder = opened(tmp_path / "runs.sqlite", report=pytest.fail)
    for run_id in (1, 2, 3):
        recorder.begin_run(log.begin_run(run_id, CONFIG))
    wrong, begun, failed = log.runs
    recorder.begin_comparison(
        ComparisonRecord(run_uids=(wrong.uid, begun.uid), names=("a", "b"), floor=0.01, floor_measured=False, uid="c")
    )
    for event in events(2):
        recorder.take(event)
    kept = threading.Event()

    def look(store: Store) -> None:
        """Come again until the run that has begun is there, and see that it is there alone."""
        if store.stored_id(begun.uid) is None:
            recorder.ask(look)
        else:
            assert [store.stored_id(uid) for uid in (wrong.uid, failed.uid)] == [None, None]
            kept.set()

    recorder.ask(look)
    assert kept.wait(30)
    bad = Problem(what="No such device", why="there is no cuda:9", bad_request=True)
    recorder.take(RunEnded(run_id=1, outcome="failed", problem=bad))
    recorder.put_beside("c", {"parity": "none"})
    recorder.take(RunEnded(run_id=2, outcome="failed", problem=bad))  # what was measured is kept
    recorder.take(RunEnded(run_id=3, outcome="failed", problem=Problem(what="Out of memory", why="too much")))
    assert recorder.close() == {begun.uid: 1, failed.uid: 2}
    with Store(tmp_path / "runs.sqlite", read_only=True) as store:
        assert [line.outcome for line in store.runs().runs] == ["failed", "failed"]
        assert store.comparisons() == []


def test_that_without_a_file_nothing_is_kept(tmp_path: Path):
    recorder = opened(None, report=pytest.fail)
    recorder.begin_run(RunLog().begin_run(1, CONFIG))
    recorder.take(events(1)[0])
    assert recorder.close() == {}


def test_that_words_after_the_end_of_a_run_change_nothing(tmp_path: Path):
    recorder = opened(tmp_path / "runs.sqlite", report=pytest.fail)
    recorder.begin_run(RunLog().begin_run(1, CONFIG))
    kept = threading.Event()
    for event in (*events(1), RunEnded(run_id=1, outcome="completed")):
        recorder.take(event)

    def look(store: Store) -> None:
        """Come again until the run was let go of, which it is once it is kept."""
        if any(run.outcome == "completed" for run in store.runs().runs):
            kept.set()
        else:
            recorder.ask(look)

    recorder.ask(look)
    assert kept.wait(30)
    recorder.take(events(1)[1])
    recorder.take(RunEnded(run_id=1, outcome="stopped"))
    recorder.take(WorkerLost(exit_code=1, last_words=""))
    recorder.close()
    with Store(tmp_path / "runs.sqlite") as store:
        (line,) = store.runs().runs
    assert (line.outcome, line.samples) == ("completed", 55)


def another_programs(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE photos (id)")
    connection.close()


def newer(path: Path) -> None:
    Store(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (newer, "newer explorer"),
        (another_programs, "another program's"),
        (lambda path: path.write_bytes(b"no database " * 1000), "damaged"),
        (lambda path: path.mkdir(), "cannot be opened"),
        (lambda path: path.symlink_to("/proc/nowhere/runs.sqlite"), "cannot be opened"),
        (lambda path: path.symlink_to("x" * 300), "File name too long"),
        (lambda path: path.symlink_to(path), "cannot be opened"),
    ],
)
def test_that_a_file_that_cannot_be_used_is_told_in_one_line_and_the_run_goes_on(tmp_path: Path, make, words: str):
    make(tmp_path / "runs.sqlite")
    reports = Reports()
    recorder = opened(tmp_path / "runs.sqlite", report=reports)
    recorder.begin_run(RunLog().begin_run(1, CONFIG))
    reports.wait_for(1)
    for event in events(1):
        recorder.take(event)
    assert recorder.close() == {}
    (line,) = reports
    assert line.startswith("not recorded: ")
    assert words in line
    assert "\n" not in line


def test_that_a_file_locked_from_the_start_is_told(tmp_path: Path):
    path = tmp_path / "runs.sqlite"
    Store(path).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    reports = Reports()
    recorder = opened(path, report=reports)
    reports.wait_for(1)
    recorder.close()
    other.close()
    assert [line for line in reports if "not recorded: " in line and "another program has it locked" in line] == reports


def test_that_a_file_locked_within_a_run_is_told_once_and_gets_all_once_it_is_free(tmp_path: Path):
    path = tmp_path / "runs.sqlite"
    log, reports = RunLog(), Reports()
    recorder = opened(path, report=reports)
    recorder.begin_run(log.begin_run(1, CONFIG))
    there = threading.Event()
    recorder.ask(lambda store: there.set())
    assert there.wait(30)
    other = sqlite3.connect(path, isolation_level=None, timeout=30)
    other.execute("BEGIN IMMEDIATE")
    for event in (WorkerReady(environment=HERE), *events(1)):
        record(log, event)
        recorder.take(event)
    reports.wait_for(1)
    assert "not recorded for now: " in reports[0]
    assert "another program has it locked" in reports[0]
    other.execute("ROLLBACK")
    other.close()
    reports.wait_for(2)
    recorder.close()
    assert reports[1:] == ["recorded again, with all that was due"]
    log.end(1, "stopped")
    with Store(path) as store:
        assert_equal(store.load(1), log.run(1))


def test_that_the_opened_file_is_shown_before_anything_is_kept(tmp_path: Path):
    path = tmp_path / "runs.sqlite"
    with Store(path) as store:
        ended(store, 1)
    seen: list[int] = []
    recorder = opened(path, report=pytest.fail, opened=lambda store: seen.extend(r.id for r in store.runs().runs))
    recorder.begin_run(begun()[1])
    recorder.close()
    assert seen == [1]


def test_that_a_killed_program_loses_at_most_a_second(tmp_path: Path):
    code = """
        import sys; from pathlib import Path
        sys.path[:0] = sys.argv[2:]
        from test_recorder import CONFIG, FIRST, Recorder, RunLog, Samples, SegmentStarted, samples
        recorder = Recorder(Path(sys.argv[1]), report=print)
        recorder.open()
        recorder.begin_run(RunLog().begin_run(1, CONFIG))
        recorder.take(SegmentStarted(run_id=1, config=CONFIG, segment=FIRST))
        for line in sys.stdin:
            recorder.take(Samples(run_id=1, samples=tuple(samples(int(line), 20))))
            print(line, end="", flush=True)
    """
    path = tmp_path / "runs.sqlite"
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(path), os.getcwd(), str(Path(__file__).parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        told_at_s: list[float] = []
        pace = threading.Event()
        while not told_at_s or told_at_s[-1] < told_at_s[0] + 2.2:
            child.stdin.write(b"%d\n" % (20 * len(told_at_s)))
            child.stdin.flush()
            assert child.stdout.readline() == b"%d\n" % (20 * len(told_at_s))
            told_at_s.append(time.monotonic())
            pace.wait(0.02)  # 1000 steps a second, more than any model makes
        child.send_signal(signal.SIGKILL)
        killed_at_s = time.monotonic()
    with Store(path) as store:
        steps = store.load(1).columns.column("step")
    due = 20 * sum(told_s < killed_at_s - 1.0 for told_s in told_at_s)
    assert due > 20
    assert len(steps) >= due
    assert steps.tolist() == list(range(len(steps)))
