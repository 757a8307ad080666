"""Who killed a worker: the system that was out of memory, or somebody else. The kernel's own count tells."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from explorer.engine import want_of_memory
from explorer.engine.want_of_memory import KillCount
from explorer.messages import WorkerLost


@pytest.fixture
def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "vmstat"
    file.write_text("nr_free_pages 7\noom_kill 3\n")
    monkeypatch.setattr(want_of_memory, "COUNTS", file)
    monkeypatch.setattr(want_of_memory, "LOOK_EVERY_S", 0.0)
    return file


def test_that_a_kill_since_the_last_look_counts_and_an_earlier_one_does_not(counts: Path) -> None:
    count = KillCount()
    assert count.grew() is False
    counts.write_text("nr_free_pages 7\noom_kill 4\n")
    assert count.grew() is True
    count.look()
    assert count.grew() is False


def test_that_a_system_that_does_not_tell_is_not_guessed_of(counts: Path) -> None:
    counts.write_text("nr_free_pages 7\n")
    assert KillCount().grew() is None
    counts.unlink()
    assert KillCount().grew() is None


@pytest.mark.skipif(not want_of_memory.COUNTS.exists(), reason="Linux counts them")
def test_that_this_machine_tells() -> None:
    assert KillCount().grew() is not None


@pytest.mark.parametrize(
    ("killed_by", "want", "said"),
    [
        (signal.SIGKILL, None, " on SIGKILL, which a system sends that is out of memory"),
        (signal.SIGKILL, True, " on SIGKILL, which the system sent, being out of memory"),
        (signal.SIGKILL, False, " on SIGKILL, which another program sent"),
        (signal.SIGTERM, False, " on SIGTERM, which another program sent"),
        (signal.SIGSEGV, True, " on SIGSEGV"),
    ],
)
def test_that_it_is_said_as_far_as_it_is_known(killed_by: signal.Signals, want: bool | None, said: str) -> None:
    assert WorkerLost(exit_code=-killed_by, last_words="", for_want_of_memory=want).how == said
