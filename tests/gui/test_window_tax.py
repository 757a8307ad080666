"""The arguments of ``python main.py window-tax``; what it measures is only of worth on a machine at rest."""

from __future__ import annotations

import pytest

from explorer.gui import window_tax


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["--pairs", "15"], "--pairs is 15; it must be at least 16"),
        (["--block-s", "0"], "--block-s is 0.0"),
        (["--block-s", "nan"], "--block-s is nan"),
        (["--set", "attention=slow"], "attention"),
        (["--batch", "0"], "batch"),
        (["--csv", "/"], "/ is a folder"),
    ],
)
def test_that_what_cannot_be_measured_is_refused_by_name(
    argv: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert window_tax.main(argv) == 2
    assert named in capsys.readouterr().err
