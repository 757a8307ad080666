"""What a command line of any options must come to: a clear error or the right result. For tests and the fuzz run.

Commands and options are read from the parsers themselves, so that none is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import functools
import importlib
import io
import multiprocessing
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

from hypothesis import strategies as st

from explorer import cli
from explorer.commands import WITH_PARSERS_OF_THEIR_OWN
from explorer.engine import isolation
from explorer.entry import main
from explorer.models import MODELS
from explorer.optimizations.registry import OPTIMIZATIONS
from explorer.results.store import Store

any_text = st.one_of(st.text(max_size=60), st.text(max_size=9).map(lambda text: text + "\0"))


@functools.cache
def parsers() -> Mapping[str, argparse.ArgumentParser]:
    """The parser of each command."""
    (commands,) = (action for action in cli._parser()._actions if isinstance(action, argparse._SubParsersAction))
    own = {name: importlib.import_module(module)._parser() for name, (module, *_) in WITH_PARSERS_OF_THEIR_OWN.items()}
    return {**commands.choices, **own}


# ---- what options are given

usual = st.sampled_from(["0", "1", "2", "3", "16", "64"])
numbers = st.one_of(
    usual,
    st.sampled_from(["-1", "0.5", "nan", "inf", "-inf", "1e308", "1e-308", "1e999", "-0", "0x10", "8.0", "٣", "1-"]),
    st.integers().map(str),
    st.floats().map(str),
    any_text,
)
several = st.one_of(st.lists(numbers, max_size=3).map(",".join), st.sampled_from(["1,2", "3,5-7", "2%", "1440x900"]))
known = st.sampled_from([f"{o.name}={level}" for o in OPTIMIZATIONS for level in o.level_ids()])
levels = st.one_of(
    known,
    st.lists(known, max_size=3).map(",".join),
    st.tuples(st.sampled_from([*(o.name for o in OPTIMIZATIONS), "batch", "seq"]), st.one_of(numbers, any_text)).map(
        "=".join
    ),
    any_text,
)
# Within the folder of the case, whatever is written there: none of these leads out of it.
names = st.one_of(
    st.sampled_from([".", "..", "", "not there/out.csv", "runs.sqlite", "runs.sqlite/out.csv", "=1+1.csv", "x" * 300]),
    any_text.map(lambda text: text.replace("/", "-")),
)
words = st.one_of(any_text, numbers, levels, st.sampled_from([*MODELS, "python", "cpu", "cuda:7", "auto"]))
OF_LEVELS = ("levels", "then", "a", "b", "rungs", "toggles", "arms")


def given_to(action: argparse.Action) -> st.SearchStrategy[tuple[str, ...]]:
    """``action``'s name and what is given to it."""
    name = tuple(action.option_strings[-1:])
    if action.nargs == 0:
        return st.just(name)
    if action.type is Path:
        values = names
    elif action.choices is not None:
        values = st.one_of(st.sampled_from([str(choice) for choice in action.choices]), any_text)
    elif action.dest in OF_LEVELS:
        values = levels
    elif action.type in (int, float):
        values = st.one_of(usual, numbers)
    else:
        values = words if action.type is None else st.one_of(several, numbers)
    if action.nargs in ("+", "*"):
        return st.lists(values, max_size=3).map(lambda some: (*name, *some))
    return values.map(lambda one: (*name, one))


def options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """All of them but ``--help``."""
    return [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]


@st.composite
def typed(draw: st.DrawFn) -> tuple[str, list[tuple[str, ...]]]:
    """A command and options of it; those that it cannot do without are there mostly."""
    command = draw(st.sampled_from(sorted(parsers())))
    every = options(parsers()[command])
    chosen = draw(st.lists(st.sampled_from(every), max_size=4)) if every else []
    if draw(st.integers(0, 3)):
        chosen += [action for action in every if action.required]
    given = [draw(given_to(action)) for action in chosen]
    if not draw(st.integers(0, 7)):
        given.append((draw(any_text),))
    return command, given


# ---- what comes of them

CANNOT_BEGIN: Mapping[str, Sequence[str]] = {
    "generate-bench": ["--csv", "/"],
    "train-bench": ["--csv", "/"],
    "soak": ["--csv", "/"],
    "window-tax": ["--csv", "/"],
    "tour": ["--out", "/dev/null"],
    "train-mini": ["--out", "/dev/null"],
}
"""What is put last to commands that measure in this very process: a target that cannot be written to."""
AT_ONCE = ("ceilings", "export", "forecast", "import", "report", "runs", "script", "toggles")
"""Commands that need no other process."""


def told(argv: list[str]) -> tuple[int, str]:
    """Exit status and what stood on standard error."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        try:
            status = main(argv)
        except SystemExit as end:  # the parser's own way out
            status = int(end.code or 0)
    return status, errors.getvalue()


def arguments(asked: tuple[str, list[tuple[str, ...]]], folder: Path) -> None:
    """On a machine that starts no other process: what would measure ends there, with all that was asked for checked."""
    command, given = asked
    (folder / "runs.sqlite").write_bytes(_store())
    # Else a text of the parser's own, such as --help, or two dashes, would end the options before the last.
    plain = [word for option in given for word in option if not word.startswith("-") or word.startswith("--")]
    plain = [word for word in plain if word != "--" and not "--help".startswith(word)]
    before = {path.name for path in folder.iterdir()}
    with _only(folder), _no_other_process():
        status, errors = told([command, *plain, *CANNOT_BEGIN.get(command, ())])
    assert status in ((0, 1, 2) if command in AT_ONCE else (2,) if command in CANNOT_BEGIN else (1, 2)), errors
    assert "Traceback" not in errors
    assert "recorder" not in {thread.name for thread in threading.enumerate()}
    assert not status or command == "forecast" or "error: " in errors
    named = {Path(word).parts[0] for word in plain if Path(word).parts}
    written = {path.name for path in folder.iterdir()} - before
    assert not {name for name in written - named if not name.startswith("runs.sqlite")}


@contextlib.contextmanager
def _no_other_process() -> Iterator[None]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    with (
        mock.patch.object(multiprocessing, "get_context", refuse),
        mock.patch.object(isolation, "ThreadWorker", refuse),
    ):
        yield


@contextlib.contextmanager
def _only(folder: Path) -> Iterator[None]:
    """All that is written without a full path, and the user's own file of runs, lies in ``folder``."""
    variable, here = "GPT2_EXPLORER_STORE", Path.cwd()
    before = os.environ.get(variable)
    os.environ[variable] = str(folder / "runs.sqlite")
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(here)
        del os.environ[variable]
        if before is not None:
            os.environ[variable] = before


@functools.cache
def _store() -> bytes:
    from bad_files import made_log

    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "runs.sqlite"
        with Store(path) as store:
            store.keep(made_log().runs)
        return path.read_bytes()
