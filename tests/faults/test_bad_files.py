"""Arguments, text files, prompts, model folders, bundles and labels of any content: a clear error or the right result.

``GPT2_EXPLORER_CASES=10000 pytest tests/faults/test_bad_files.py`` tries that many of each; ``python
tests/faults/fuzz.py`` as many as fit into ten minutes.
"""

from __future__ import annotations

import os

import pytest
from bad_files import CHECKS
from fuzz import try_cases

CASES = int(os.environ.get("GPT2_EXPLORER_CASES", "40"))


@pytest.mark.parametrize("name", CHECKS)
def test_that_anything_gives_a_clear_error_or_the_right_result(name: str) -> None:
    try_cases(CHECKS[name], CASES)
