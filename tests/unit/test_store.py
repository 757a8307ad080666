"""The store of runs: on real files, with real other processes, killed and damaged."""

import dataclasses
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from explorer.config import RunConfig
from explorer.results.blocks import Block, Blocks, comparison_row
from explorer.results.comparison_record import ComparisonRecord
from explorer.results.database import default_path, file_system
from explorer.results.environment import DeviceInfo, Environment, Finding
from explorer.results.export import segment_row
from explorer.results.log import RunLog, RunRecord
from explorer.results.sample import Sample, Segment
from explorer.results.store import Store
from explorer.results.ways_out import WaysOut

GPU = DeviceInfo(id="cuda:0", kind="cuda", name="NVIDIA H200", total_memory_bytes=2**37, capability=(9, 0), bf16=True)
HERE = Environment(
    devices=(GPU, DeviceInfo(id="cpu", kind="cpu", name="A processor", total_memory_bytes=2**34)),
    platform="Linux",
    python="3.12.3",
    explorer="0.1.0",
    torch="2.11.0+cu130",
    findings=(Finding(severity="note", text="no datasets"),),
)
CONFIG = RunConfig(device="cuda:0", seed=7, prompt="naïve 🙂 'q'").with_level("precision", "bf16")
TOGGLES = {"precision": "fp32"}


def samples(first: int, count: int, segment: int = 0) -> list[Sample]:
    rng = np.random.default_rng(first)
    return [
        Sample(
            step=i,
            segment=segment,
            phase=("compile", "warmup", "steady", "prefill")[i % 4],
            time_s=i / 3,
            tokens=8192,
            step_ms=float(rng.lognormal(3, 1)),
            loss=float("nan") if i % 5 == 0 else float(rng.normal()),
            grad_norm=float("inf") if i % 7 == 0 else 1.5,
            skipped=i % 3 == 0,
            peak_allocated_bytes=2**40 + i,
        )
        for i in range(first, first + count)
    ]


def begun(number: int = 1) -> tuple[RunLog, RunRecord]:
    log = RunLog()
    log.set_environment(HERE)
    record = log.begin_run(number, CONFIG)
    first = Segment(
        index=0,
        first_step=0,
        changes=(),
        started_at="2026-01-02T03:04:05Z",
        flop_per_token=855e6,
        ceiling_tflop_per_s=712.5,
    )
    log.begin_segment(number, CONFIG, first)
    log.append(number, samples(0, 40))
    log.append_text(number, "Once ")
    log.note(number, "another process holds 3.0 GiB")
    return log, record


def compared(a: RunRecord, b: RunRecord, pairs: int = 9) -> ComparisonRecord:
    """A comparison in which B is about 1.25x as fast."""
    comparison = ComparisonRecord(
        run_uids=(a.uid, b.uid), names=("fp32", "bf16"), floor=0.005, floor_measured=False, beside={"parity": "kept"}
    )
    rng = np.random.default_rng(pairs)
    for pair in range(pairs):
        for arm, step_ms in ((0, 50.0), (1, 40.0)):
            clock = float("nan") if pair == 0 else 1980.0
            comparison.blocks.add(arm, pair, Block(step_ms=step_ms * float(rng.normal(1, 0.01)), sm_clock_mhz=clock))
    comparison.ended_by = "budget"
    return comparison


def assert_equal(seen: RunRecord, record: RunRecord) -> None:
    for name in (
        "uid",
        "started_at",
        "config",
        "reference",
        "environment",
        "segments",
        "text",
        "outcome",
        "problem",
        "notes",
        "ways_out",
    ):
        assert getattr(seen, name) == getattr(record, name), name
    assert len(seen.columns) == len(record.columns)
    for name, column in record.columns.columns().items():
        np.testing.assert_array_equal(seen.columns.column(name), column, err_msg=name)


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
        from test_store import Store, begun, samples
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
        from test_store import Store, begun, samples
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


@pytest.mark.parametrize("content", [b"run,segment\r\n1,0\r\n" * 100, b"SQLite format 3\x00" + b"\xff" * 5000])
def test_that_a_file_that_is_no_database_is_told_and_not_touched(tmp_path: Path, content: bytes):
    path = tmp_path / "runs.sqlite"
    path.write_bytes(content)
    for read_only in (False, True):
        with pytest.raises(RuntimeError, match=r"damaged.*move it away"):
            Store(path, read_only=read_only)
    assert path.read_bytes() == content


def test_that_a_file_damaged_in_the_middle_is_told(tmp_path: Path):
    path = tmp_path / "runs.sqlite"
    log, _ = begun()
    log.append(1, samples(40, 4000))
    with Store(path) as store:
        store.keep(log.runs)
    raw = bytearray(path.read_bytes())
    raw[20_000:-20_000] = b"\xa5" * (len(raw) - 40_000)
    path.write_bytes(raw)
    with Store(path) as store, pytest.raises(RuntimeError, match="it is damaged; move it away"):
        store.load(1)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE runs SET config = '{}}'",
        "UPDATE runs SET config = '{\"speed\": 3}'",
        "UPDATE runs SET environment = '{}'",
        "UPDATE segments SET content = '[]'",
        "UPDATE samples SET phase = 'later'",
    ],
)
def test_that_content_that_makes_no_sense_is_told(tmp_path: Path, statement: str):
    path = tmp_path / "runs.sqlite"
    with Store(path) as store:
        store.keep(begun()[0].runs)
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()
    with Store(path) as store, pytest.raises(RuntimeError, match="run 1 is damaged"):
        store.load(1)


def test_that_a_file_of_a_newer_version_is_refused_and_left(tmp_path: Path):
    path = tmp_path / "runs.sqlite"
    Store(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    for read_only in (False, True):
        with pytest.raises(RuntimeError, match=r"newer explorer \(schema 99; this one reads up to 1\): update"):
            Store(path, read_only=read_only)


@pytest.mark.parametrize("read_only", [False, True])
def test_that_a_file_from_before_there_were_notes_and_ways_out_is_read_and_gone_on_with(
    tmp_path: Path, read_only: bool
):
    path = tmp_path / "runs.sqlite"
    log, record = begun()
    with Store(path) as store:
        store.keep(log.runs)
    connection = sqlite3.connect(path)
    for name in ("notes", "ways_out"):
        connection.execute(f"ALTER TABLE runs DROP COLUMN {name}")
    connection.close()
    record.notes.clear()
    with Store(path, read_only=read_only) as store:
        assert_equal(store.load(1), record)
        if not read_only:
            log.note(1, "the clock fell")
            log.end(1, "failed", "Out of memory: halve the batch.", WaysOut(batch=4))
            store.keep(log.runs)
            assert_equal(store.load(1), record)


def test_that_another_programs_database_is_refused(tmp_path: Path):
    path = tmp_path / "photos.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE photos (id)")
    connection.close()
    with pytest.raises(ValueError, match="another program's SQLite file"):
        Store(path)


def test_that_reading_makes_no_file_and_an_unknown_run_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="no runs are stored"):
        Store(tmp_path / "none.sqlite", read_only=True)
    assert list(tmp_path.iterdir()) == []
    with Store(tmp_path / "runs.sqlite") as store, pytest.raises(ValueError, match="no stored run has the number 3"):
        store.load(3)


def test_that_a_store_opened_to_read_keeps_nothing(tmp_path: Path):
    Store(tmp_path / "runs.sqlite").close()
    with Store(tmp_path / "runs.sqlite", read_only=True) as store:
        assert (store.writable, list(store.notes)) == (False, [])
        with pytest.raises(RuntimeError, match="may only be read"):
            store.keep(begun()[0].runs)


def journal(path: Path) -> str:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("PRAGMA journal_mode").fetchone()[0]
    finally:
        connection.close()


def test_that_the_log_is_written_ahead_where_it_can_be(tmp_path: Path):
    nowhere = tmp_path / "mounts"
    with Store(tmp_path / "runs.sqlite", mounts=nowhere) as store:
        assert list(store.notes) == []
    assert journal(tmp_path / "runs.sqlite") == "wal"


def test_that_on_a_network_file_system_a_rollback_journal_is_used_and_said(tmp_path: Path):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/home {tmp_path} nfs4 rw 0 0\n")
    log, record = begun()
    with Store(tmp_path / "runs.sqlite", mounts=mounts) as store:
        store.keep(log.runs)
        assert "rollback journal: on nfs4" in store.notes[0]
        assert_equal(store.load(1), record)
    assert journal(tmp_path / "runs.sqlite") == "delete"


def test_that_the_file_system_is_that_of_the_innermost_and_last_mount(tmp_path: Path):
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/sda / ext4 rw 0 0\nserver:/a /home nfs rw 0 0\n/dev/sdb /home/me\\040too xfs rw 0 0\n"
        "/dev/sdc /data ext4 rw 0 0\n//server/b /data cifs rw 0 0\nbad line\n"
    )
    seen = {
        path: file_system(Path(path), mounts) for path in ("/etc", "/home/you", "/home/me too/x", "/data/y", "/homes")
    }
    assert seen == {"/etc": "ext4", "/home/you": "nfs", "/home/me too/x": "xfs", "/data/y": "cifs", "/homes": "ext4"}
    assert file_system(Path("/etc"), tmp_path / "none") == ""


def test_that_the_usual_place_is_the_users_data_folder(monkeypatch, tmp_path: Path):
    monkeypatch.delenv("GPT2_EXPLORER_STORE", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_path() == tmp_path / "gpt2-explorer" / "runs.sqlite"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_path() == tmp_path / ".local" / "share" / "gpt2-explorer" / "runs.sqlite"
    monkeypatch.setenv("GPT2_EXPLORER_STORE", str(tmp_path / "elsewhere"))
    assert default_path() == tmp_path / "elsewhere"


@pytest.fixture
def closed_folder() -> Iterator[Path]:
    """A folder with a store in it, which may not be written to; not under tmp_path, whose parents shut others out."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Store(folder / "runs.sqlite") as store:
            store.keep(begun()[0].runs)
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o700)


def test_that_in_a_closed_folder_runs_are_read_and_the_reason_is_said(closed_folder: Path):
    code = """
        import os, sys; from pathlib import Path
        from explorer.results.store import Store
        if os.geteuid() == 0:
            os.setuid(65534)  # root may write everywhere
        folder = Path(sys.argv[1])
        with Store(folder / "runs.sqlite") as store:
            print(store.writable, len(store.load(1).columns), *store.notes)
        try:
            Store(folder / "other.sqlite")
        except RuntimeError as error:
            print(error)
    """
    python = [sys.executable, "-c", textwrap.dedent(code), str(closed_folder)]
    done = subprocess.run(python, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("False 40 ")
    assert "may only be read: runs can be opened and exported, but are not kept" in done.stdout
    assert f"no permission to write to {closed_folder}; runs are not kept" in done.stdout


def ended(store: Store, number: int) -> RunRecord:
    log, record = begun(number)
    log.end(number, "completed")
    store.keep([record])
    return record


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


def test_that_a_file_without_a_column_that_came_later_gets_it(tmp_path: Path):
    path = tmp_path / "runs.sqlite"
    log, record = begun()
    with Store(path) as store:
        store.keep(log.runs)
    connection = sqlite3.connect(path)
    for name in ("power_w", "block", "skipped"):
        connection.execute(f"ALTER TABLE samples DROP COLUMN {name}")
    connection.execute("ALTER TABLE samples ADD COLUMN moon INTEGER NOT NULL DEFAULT 1")
    connection.close()
    with Store(path, read_only=True) as store:
        columns = store.load(1).columns
    assert np.isnan(columns.column("power_w")).all()
    assert set(columns.column("block").tolist()) == {-1}
    assert not columns.column("skipped").any()
    log.append(1, samples(40, 20))
    with Store(path) as store:
        store.keep(log.runs)
        seen = store.load(1).columns
    np.testing.assert_array_equal(seen.column("loss"), record.columns.column("loss"))
    assert seen.column("skipped").tolist() == [False] * 40 + [i % 3 == 0 for i in range(40, 60)]
