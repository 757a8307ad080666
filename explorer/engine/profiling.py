"""A profile that the worker was asked for: between runs, or while a run pauses."""

from __future__ import annotations

from collections.abc import Callable

from explorer.engine.apart import Report
from explorer.engine.step_profiling import steps_profile_of
from explorer.engine.task import Outcome, Task
from explorer.messages import ProfileSteps, StepsProfiled
from explorer.results.environment import DeviceInfo


class Profiling(Task[ProfileSteps]):
    """Answers with StepsProfiled, unless it was stopped."""

    def _run_on(self, device: DeviceInfo) -> Outcome:
        self._emit(
            profiled(
                self._command,
                report=lambda activity: self._report(activity, None, None, ""),
                cancelled=self._flag.is_set,
            )
        )
        return "completed"


def profiled(command: ProfileSteps, *, report: Report, cancelled: Callable[[], bool]) -> StepsProfiled:
    """The answer to ``command``.

    Raises:
        Cancelled: ``cancelled`` came true.
    """
    found = steps_profile_of(
        command.config,
        steps=command.steps,
        folder=command.folder,
        memory=command.memory,
        download=command.download,
        report=report,
        cancelled=cancelled,
    )
    return StepsProfiled(run_id=command.run_id, config=command.config, found=found)
