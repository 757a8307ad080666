"""A model written for serving, against a worker that is a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from explorer.config import RunConfig
from explorer.experiments import export_model as steps
from explorer.experiments.steps import FreshWorker
from explorer.messages import Export, Stop


def test_that_an_export_given_up_while_it_writes_leaves_nothing_beside_its_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "model[1].pt2"
    others = [tmp_path / name for name in ("model[1].pt2", ".model1.pt2.0123abcd.tmp", ".model[1].pt2.tmp", "b.tmp")]
    for path in (*others, tmp_path / ".model[1].pt2.0123abcd.tmp"):
        path.touch()
    monkeypatch.setattr(steps, "INTERRUPTED_WITHIN_S", 0.0)
    command = Export(run_id=3, config=RunConfig(), target=str(target))
    given_up = steps.export_model(command, asked_to_stop=lambda: True)
    assert next(given_up) == (command,)
    assert given_up.send(()) == (Stop(run_id=3),)
    orders = given_up.send(())
    while orders == ():
        orders = given_up.send(())
    assert orders == (FreshWorker(),)
    with pytest.raises(StopIteration) as done:
        given_up.send(())
    assert done.value.value is None
    assert sorted(tmp_path.iterdir()) == sorted(others)
