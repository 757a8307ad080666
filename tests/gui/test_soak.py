"""What a soak comes to: the verdict on memory, steps and tick gaps."""

from __future__ import annotations

import signal
from array import array

import pytest
from PySide6.QtCore import QTimer
from pytestqt.qtbot import QtBot

from explorer.gui.loop import wait
from explorer.gui.soak import Reading, Soaked, in_words, main, result


def soaked(**changes: object) -> Soaked:
    readings = [
        Reading(
            time_s=float(i),
            setting=f"attention={'sdpa' if i % 2 else 'naive'}",
            steps=i,
            window_bytes=200 * 2**20,
            worker_bytes=600 * 2**20,
            peak_allocated_bytes=-1,
            reserved_bytes=-1,
        )
        for i in range(24)
    ]
    made = Soaked(readings, array("d", [10.0] * 995 + [49.0] * 5), flips=5, segments=6, steps=100)
    made.arrived = made.stored = 100
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_that_a_quiet_soak_holds_and_its_figures_are_said() -> None:
    row, held = result(soaked())
    assert held
    assert (row["flips"], row["steps_missed"], row["tick_gap_ms_p99"]) == (5, 0, 10.0)
    assert row["reserved_bytes_growth"] is None
    words = "\n".join(in_words(row))
    assert "23 s, 5 flips, 0 of them not seen" in words
    assert "window: 200.0 -> 200.0 MiB, +0.00%" in words
    assert "reserved" not in words


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"arrived": 99}, "steps_missed"),
        ({"stored": 98}, "steps_not_stored"),
        ({"segments": 5}, "flips_missed"),
        ({"gaps_ms": array("d", [10.0] * 98 + [51.0] * 2)}, "tick_gap_ms_p99"),
    ],
)
def test_that_each_figure_alone_can_fail_it(changes: dict, name: str) -> None:
    row, held = result(soaked(**changes))
    assert not held
    assert row[name] not in (0, 10.0)


def test_that_a_worker_that_grows_at_one_setting_fails_it() -> None:
    made = soaked()
    for i, reading in enumerate(made.readings):
        if i % 2 and i > 15:
            made.readings[i] = Reading(
                **{name: getattr(reading, name) for name in reading.__slots__} | {"worker_bytes": 615 * 2**20}
            )
    row, held = result(made)
    assert not held
    assert row["worker_bytes_at"] == "attention=sdpa"
    assert row["worker_bytes_growth"] == pytest.approx(0.025)


@pytest.mark.parametrize(
    "argv", [["--flip", "no=on"], ["--flip", "attention=no"], ["--minutes", "0"], ["--flip-every", "inf"]]
)
def test_that_a_wrong_request_opens_no_window(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_that_ctrl_c_ends_a_wait_of_a_window_driven_by_script(qtbot: QtBot) -> None:
    ticks = iter(range(1000))
    timer = QTimer()
    timer.timeout.connect(lambda: next(ticks) == 2 and signal.raise_signal(signal.SIGINT))
    timer.start(1)
    with pytest.raises(KeyboardInterrupt):
        wait(100)
    assert next(ticks) > 4, "not within a slot, where it would be lost"
    timer.stop()
    wait(1)
