"""``python tests/faults/fuzz.py --minutes 10``: new random input until the time is over. A finding ends it, made small.

Exit status: 0 nothing was found, 1 something was; its traceback names the smallest input that shows it.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    os.environ.setdefault("HF_HUB_OFFLINE", "1")

from bad_files import CHECKS, Check
from hypothesis import HealthCheck, Phase, given, settings

BATCH = 200


def try_cases(check: Check, count: int) -> None:
    """Try ``count`` inputs, each in a folder of its own."""

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(value=check.values)
    def one(value: object) -> None:
        with tempfile.TemporaryDirectory() as folder:
            check.holds(value, Path(folder))

    one()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    end_s = time.monotonic() + parser.parse_args().minutes * 60
    tried = dict.fromkeys(CHECKS, 0)
    for name, check in itertools.cycle(CHECKS.items()):
        try_cases(check, BATCH)
        tried[name] += BATCH
        if time.monotonic() > end_s:
            break
    sys.stdout.write(", ".join(f"{name}: {count:,}" for name, count in tried.items()) + " inputs, nothing found\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
