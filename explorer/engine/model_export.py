"""The worker's part in an export: load the model, write the file, tell how near it is."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from explorer.engine import serving
from explorer.engine.model import load
from explorer.engine.task import Outcome, Task
from explorer.messages import Export, Exported
from explorer.results.environment import DeviceInfo


class ModelExport(Task[Export]):
    """On the host, whatever the device: a graph that was traced there runs anywhere."""

    def _run_on(self, device: DeviceInfo) -> Outcome:
        target = Path(self._command.target)
        serving.check(target)
        # Of a run that generates nothing is asked but that it has the model.
        config = dataclasses.replace(self._command.config, workload="generate")
        loaded = load(
            config, torch.device("cpu"), download=self._download, progress=self._report, cancelled=self._flag.is_set
        )
        error, size_bytes = serving.export(loaded.model, target, report=self._report, cancelled=self._flag.is_set)
        self._emit(
            Exported(
                run_id=self._command.run_id, target=self._command.target, largest_error=error, size_bytes=size_bytes
            )
        )
        return "completed"
