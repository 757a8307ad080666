"""Whatever is typed, or stands in a bundle: the right result or a clear error, never a traceback.

``GPT2_EXPLORER_CASES=10000 pytest tests/faults/test_bad_input.py`` tries that many cases of each; without it a few.
"""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from explorer.config import LIMITS
from explorer.entry import main
from explorer.models import MODELS
from explorer.optimizations.registry import OPTIMIZATIONS

CASES = int(os.environ.get("GPT2_EXPLORER_CASES", "150"))
few = settings(
    max_examples=CASES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None
)

texts = st.text(max_size=20)
numbers = st.one_of(st.integers(), st.floats(), st.sampled_from(["1e999", "-0", "0x10", "8.0", "٣"]), texts).map(str)
levels = st.one_of(
    st.sampled_from([f"{o.name}={level}" for o in OPTIMIZATIONS for level in o.level_ids()]),
    texts,
    st.tuples(st.sampled_from([o.name for o in OPTIMIZATIONS]), texts).map("=".join),
)
options = st.one_of(
    st.tuples(st.sampled_from([f"--{name.replace('_', '-')}" for name in LIMITS]), numbers),
    st.tuples(st.just("--set"), levels),
    st.tuples(st.just("--model"), st.one_of(st.sampled_from(sorted(MODELS)), texts)),
    st.tuples(st.sampled_from(["--workload", "--weights", "--device", "--text", "--prompt"]), texts),
    st.tuples(st.sampled_from(["--memory-gib", "--limit", "--runs", "--comparison", "--floor", "--delete"]), numbers),
    st.tuples(texts),
)


def told(argv: list[str]) -> tuple[int, str]:
    """Exit status and what stood on standard error."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        try:
            status = main(argv)
        except SystemExit as end:  # the parser's own way out
            status = int(end.code or 0)
    return status, errors.getvalue()


@few
@given(command=st.sampled_from(["forecast", "script", "runs", "export"]), typed=st.lists(options, max_size=3))
def test_that_any_arguments_are_done_or_refused_in_words(command: str, typed: list[tuple[str, ...]]) -> None:
    given_memory = ["--memory-gib", "24"] if command == "forecast" else []
    status, errors = told([command, *given_memory, *(word for option in typed for word in option)])
    assert status in (0, 1, 2)
    assert "Traceback" not in errors
    assert status != 2 or "error: " in errors


@few
@given(content=st.one_of(st.binary(max_size=400), st.binary(max_size=400).map(lambda tail: b"PK\x03\x04" + tail)))
def test_that_any_file_given_as_a_bundle_is_refused_in_words(tmp_path: Path, content: bytes) -> None:
    bundle, store = tmp_path / "bundle.zip", tmp_path / "runs.sqlite"
    bundle.write_bytes(content)
    status, errors = told(["import", str(bundle), "--store", str(store)])
    assert status in (1, 2)
    assert errors.startswith("error: ")
    assert str(bundle) in errors
