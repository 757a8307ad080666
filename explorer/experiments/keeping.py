"""Has the runs and comparisons of a series kept in the file of stored runs."""

from __future__ import annotations

from collections.abc import Callable

from explorer.config import RunConfig
from explorer.experiments.arms import names
from explorer.experiments.compare import BLOCK_STEPS
from explorer.experiments.floors import known_floor
from explorer.experiments.recorder import Recorder
from explorer.messages import Compare, Start
from explorer.results.comparison_record import ComparisonRecord
from explorer.results.environment import Environment
from explorer.results.floor import ASSUMED_FLOOR
from explorer.results.log import RunRecord
from explorer.results.measured import Measured


class Keeping:
    """What a Series is told of as it begins and ends, for ``recorder``."""

    def __init__(
        self,
        recorder: Recorder,
        here: Environment,
        *,
        block_s: float,
        block_steps: int = BLOCK_STEPS,
        begin_run: Callable[[int, RunConfig], RunRecord],
    ) -> None:
        """``begin_run``: begins the run of that number where runs are kept, and returns it."""
        self._recorder = recorder
        self._here = here
        self._block_s, self._block_steps = block_s, block_steps
        self._begin_run = begin_run
        self._comparison: ComparisonRecord | None = None

    def begin(self, command: Compare | Start) -> None:
        match command:
            case Start():
                self._begin_run(command.run_id, command.config)
            case Compare():
                first, second = (self._begin_run(*of).uid for of in zip(command.run_ids, command.arms, strict=True))
                self._comparison = ComparisonRecord(
                    run_uids=(first, second), names=names(command.arms), floor=ASSUMED_FLOOR, floor_measured=False
                )
                self._recorder.begin_comparison(self._comparison)

    def end(self, command: Compare, measured: Measured) -> None:
        comparison = self._comparison
        if comparison is not None and measured.problem is None:
            comparison.ended_by = measured.ended_by
            floor = known_floor(command.arms, self._here, block_s=self._block_s, block_steps=self._block_steps)
            comparison.floor, comparison.floor_measured = floor
            self._recorder.end_comparison(comparison)
