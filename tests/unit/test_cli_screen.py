from __future__ import annotations

import signal

import pytest

from explorer.cli_screen import columns
from explorer.ctrl_c import ctrl_c_asks


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
