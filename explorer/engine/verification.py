"""What a comparison does not time: whether the numbers stay right, and whether the toggles really run."""

from __future__ import annotations

import contextlib
import dataclasses

from explorer.config import RunConfig
from explorer.engine.errors import BadRequest
from explorer.engine.problems import describe
from explorer.engine.proving import profile_of
from explorer.engine.task import Outcome, Task
from explorer.engine.verify import Known, parity
from explorer.messages import ParityChecked, Problem, Profiled, Verify
from explorer.results.environment import DeviceInfo
from explorer.results.parity import Parity, with_text


class Verification(Task[Verify]):
    """All parities first, since they share their references; then a profile each."""

    def _run_on(self, device: DeviceInfo) -> Outcome:
        run_id = self._command.run_id
        known: Known = {}
        for config in self._command.parity:
            self._emit(ParityChecked(run_id=run_id, config=config, found=self._parity(config, device, known)))
        for config in self._command.proof:
            found = profile_of(
                config,
                download=self._download,
                report=lambda activity: self._report(f"proof: {activity}", None, None, ""),
                cancelled=self._flag.is_set,
            )
            self._emit(Profiled(run_id=run_id, config=config, found=found))
        return "completed"

    def _parity(self, config: RunConfig, device: DeviceInfo, known: Known) -> Parity | Problem:
        def measured(config: RunConfig) -> Parity:
            return parity(
                config,
                device,
                download=self._download,
                report=self._report,
                cancelled=self._flag.is_set,
                known=known,
            )

        try:
            found = measured(config)
        except (RuntimeError, ValueError) as error:
            return describe(error, config)
        if config.workload == "train":
            # Some toggles cannot write text beside others with which they train: then there is none to compare.
            with contextlib.suppress(BadRequest):
                found = with_text(found, measured(dataclasses.replace(config, workload="generate", batch=1)))
        return found
