"""The kernel lab: one operation, its variants measured side by side on the same inputs."""

from __future__ import annotations

import contextlib
import gc
import math
import warnings
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch

from explorer.engine.kernel_timing import Stopwatch
from explorer.engine.lab_operations import BACKENDS, Prepared, prepare
from explorer.engine.session import use_full_fp32
from explorer.engine.task import Outcome, Task
from explorer.messages import Bench, Benched
from explorer.results.environment import DeviceInfo
from explorer.results.lab import LabRow

WARM_UPS = 2
NO_KERNEL = ("No available kernel", "No viable backend")
"""How torch begins where none of the kernels that are allowed can do a call, on CUDA and on the CPU."""


class Lab(Task[Bench]):
    """Sends an event a variant; ends early after one that failed."""

    def _run_on(self, device: DeviceInfo) -> Outcome:
        use_full_fp32()
        torch_device = torch.device(device.id)
        if torch_device.type == "cuda":
            torch.cuda.set_device(torch_device)
        stopwatch = Stopwatch(torch_device, quick=self._command.quick)
        with torch.cuda.stream(stopwatch.stream) if torch_device.type == "cuda" else nullcontext():
            for variant in self._command.variants:
                if self._flag.is_set():
                    return "stopped"
                self._report(f"{self._command.case}: {variant}", None, None, "")
                row = self._row(variant, device, stopwatch)
                self._emit(Benched(run_id=self._command.run_id, row=row))
                if row.outcome == "failed":
                    break
                gc.collect()
                if torch_device.type == "cuda":
                    torch.cuda.empty_cache()
        return "completed"

    def _row(self, variant: str, device: DeviceInfo, stopwatch: Stopwatch) -> LabRow:
        """What ``variant`` showed, or why it showed nothing."""
        row = LabRow(case=self._command.case, variant=variant, outcome="measured")
        if variant in ("triton", "compile") and device.triton_problem and device.kind == "cuda":
            return replace(row, outcome="refused", problem=device.triton_problem)
        if variant == "triton" and device.kind == "cpu":
            return replace(row, outcome="refused", problem="Triton kernels need a CUDA device; this device is a CPU")
        with warnings.catch_warnings(record=True) as said:
            # In them torch says why a kernel of its attention will not do.
            warnings.simplefilter("always")
            try:
                prepared = prepare(self._command.case, variant, torch.device(device.id))
                with prepared.around():
                    return _measured(row, prepared, torch.device(device.id), stopwatch)
            except torch.OutOfMemoryError as error:
                return replace(row, outcome="out of memory", problem=_first_line(error))
            except (ValueError, ImportError) as error:
                return replace(row, outcome="refused", problem=_first_line(error))
            except Exception as error:  # one variant that fails is a result; the others are still to come
                if variant in BACKENDS and str(error).startswith(NO_KERNEL):
                    return replace(row, outcome="refused", problem=_why_not(said))
                return replace(row, outcome="failed", problem=f"{type(error).__name__}: {_first_line(error)}")


def _measured(row: LabRow, prepared: Prepared, device: torch.device, stopwatch: Stopwatch) -> LabRow:
    if row.case.operation == "attention_support":
        prepared.call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return replace(row, outcome="runs")
    for _ in range(WARM_UPS):
        prepared.call()
    peak_bytes = -1
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        held_bytes = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
    results: Any = prepared.call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        peak_bytes = torch.cuda.max_memory_allocated(device) - held_bytes
    rel_error = float("nan")
    if prepared.error is not None:
        # float64 takes more than the operation itself.
        with contextlib.suppress(torch.OutOfMemoryError):
            rel_error = prepared.error(results)
    del results
    times = stopwatch.wall(prepared.call) if prepared.wall else stopwatch.kernel(prepared.call)
    row = replace(
        row,
        time_us=times.median_us,
        spread=times.spread,
        n=len(times.us),
        timed_by=times.timed_by,
        host_us=float("nan") if prepared.wall else stopwatch.host_us(prepared.call),
        peak_bytes=peak_bytes,
        rel_error=rel_error,
    )
    if math.isnan(row.case.moved_bytes):  # nothing to hold against a ceiling
        return row
    return replace(
        row,
        copy_gb_per_s=stopwatch.copy_gb_per_s(row.case.moved_bytes),
        product_tflop_per_s=stopwatch.product_tflop_per_s(getattr(torch, row.case.dtype)),
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _why_not(said: list[warnings.WarningMessage]) -> str:
    """What torch said of the kernel that was asked for, without where in its sources it says so."""
    for warning in said:
        words = str(warning.message).split("(Triggered internally")[0].strip()
        if "kernel not used because" not in words and "has been runtime disabled" not in words and words:
            return words
    return "no available kernel; torch gives no reason"
