from __future__ import annotations

import signal
from types import SimpleNamespace

import pytest
from kept_runs import samples

from explorer import cli_screen
from explorer.cli_screen import ProgressLine, columns
from explorer.ctrl_c import ctrl_c_asks
from explorer.messages import Progress, Samples


def test_that_the_first_ctrl_c_asks_and_the_second_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    with ctrl_c_asks() as asked:
        assert not asked()
        signal.raise_signal(signal.SIGINT)
        assert asked()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_that_columns_line_up_and_the_last_one_is_as_it_is() -> None:
    assert columns([("a", "b", "c"), ("longer", "", "the end")]) == ["a       b  c", "longer     the end"]


def test_that_without_a_terminal_a_line_comes_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(cli_screen, "time", SimpleNamespace(monotonic=lambda: clock.now))
    line = ProgressLine()
    for second in range(60):
        clock.now = 100.0 + second
        if second == 40:
            line.begin_part("proof of A", 2)
        elif second % 2:
            line.show_event(Progress(run_id=1, activity="loading", done=float(second), total=60.0, unit="files"))
        else:
            line.show_event(Samples(run_id=1, samples=tuple(samples(second, 1))))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "15 s: loading 15 of 60 files"
    assert lines[1].startswith("30 s: step 30, ")
    assert lines[2] == "40 s: proof of A, 2 to do"  # at once, and from there on the next ones
    assert lines[3:] == ["55 s: proof of A (2 to do): loading 55 of 60 files"]
