"""Paths in the user's home folder, and a user without one, as in a container that runs as any number."""

from __future__ import annotations

import pwd
from pathlib import Path

import pytest

from explorer.models import shape_of
from explorer.results import database
from explorer.results.home import expanded, home


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    def unknown(_: object) -> None:
        raise KeyError

    for name in ("HOME", "XDG_DATA_HOME", database.VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_that_a_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert expanded("~/model") == tmp_path / "model"
    assert expanded("a~/model") == Path("a~/model")


def test_that_runs_are_kept_in_the_current_folder_then(homeless: Path) -> None:
    assert home() == homeless
    assert database.default_path() == homeless / ".local" / "share" / "gpt2-explorer" / "runs.sqlite"


def test_that_a_user_who_is_not_there_has_no_folder_rather_than_an_error(homeless: Path) -> None:
    for name in ("~/model", "~nobody-of-this-name/model"):
        assert expanded(name) == Path(name)
        assert shape_of(name) is None
