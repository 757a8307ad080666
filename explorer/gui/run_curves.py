"""What the plots draw of one run, taken from its stored samples at each redraw. Knows no widget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, assert_never

import numpy as np
from numpy.typing import NDArray

from explorer.gui.envelope import Envelope, Floats, WindowMedians
from explorer.results.ring import PHASE_CODES, SampleColumns
from explorer.results.sample import NAN

MEDIAN_WINDOW_S = 0.25
READOUT_WINDOW_S = 1.0
STEP_TIMES = 1000
"""Steps that the p50 and p95 of step time are over: enough for a 95th percentile, recent enough to follow."""

Points = tuple[Floats, Floats]
Band = Literal["unsplit", "driver", "others", "context", "cached", "allocated"]
"""Of the device's memory, from the top of the stack to its ground: the driver's reserve, other processes, CUDA's
context and what else the worker holds, the allocator's cache, the step's peak. unsplit: all that is in use, where it is
not told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What the readouts say. NaN, or -1 for bytes, where there is nothing to say yet."""

    tokens_per_s: float = NAN
    """Median over the last second, compile and prefill left out; likewise the next."""
    step_ms: float = NAN
    step_ms_p50: float = NAN
    """Over the last 1000 such steps of the current segment; likewise the next."""
    step_ms_p95: float = NAN
    loss: float = NAN
    """Of the last step; likewise the next four."""
    grad_norm: float = NAN
    loss_scale: float = NAN
    power_w: float = NAN
    sm_clock_mhz: float = NAN
    peak_allocated_bytes: int = -1
    """Largest over the last second; likewise the next five."""
    reserved_bytes: int = -1
    device_used_bytes: int = -1
    context_bytes: int = -1
    other_processes_bytes: int = -1
    driver_reserved_bytes: int = -1


class RunCurves:
    """Curves and figures of the run whose samples are ``columns``; ``rows`` can be held where they are."""

    def __init__(self, columns: SampleColumns) -> None:
        self._columns = columns
        self._held_at: int | None = None
        self._envelopes: dict[str, Envelope] = {}
        self._medians = WindowMedians(MEDIAN_WINDOW_S)
        self._step_medians = WindowMedians(MEDIAN_WINDOW_S)

    def hold(self, held: bool) -> None:
        """Leave out all samples that come from now on, until let go."""
        self._held_at = self._columns.dropped + len(self._columns) if held else None

    def last_s(self) -> float:
        """Time of the last sample in seconds; 0 without any."""
        time_s = self._column("time_s")
        return float(time_s[-1]) if len(time_s) else 0.0

    def first_s(self) -> float:
        """Time of the oldest sample that is still kept, if older ones were let go; else 0."""
        time_s = self._column("time_s")
        return float(time_s[0]) if self._columns.dropped and len(time_s) else 0.0

    def row_at(self, time_s: float) -> int | None:
        """The row of the step that was running at ``time_s``, or of the last one before; None without any."""
        ends_s = self._column("time_s")
        return min(int(np.searchsorted(ends_s, time_s)), len(ends_s) - 1) if len(ends_s) else None

    def value(self, name: str, row: int) -> float:
        """What a column has in ``row``."""
        return float(self._column(name)[row])

    def rate_at(self, row: int) -> float:
        """Tokens/s of the step in ``row``."""
        return float(self._rates(slice(row, row + 1))[0])

    def rate(self, low_s: float, high_s: float, bins: int) -> Points:
        """Tokens/s of every step."""
        return self._envelope("rate", self._rates, low_s, high_s, bins)

    def median_rate(self) -> Points:
        """Median tokens/s in windows of 0.25 s; a longer step is a window of its own."""
        return self._medians.points(
            self._column("time_s"), self._column("segment"), self._rates, dropped=self._columns.dropped
        )

    def memory_gib(self, band: Band, low_s: float, high_s: float, bins: int) -> Points:
        """The upper edge of a band of memory in GiB, all below it included; NaN where it was not measured."""
        return self._envelope(band, lambda rows: self._edge_bytes(band, rows) / 2**30, low_s, high_s, bins)

    def plain(self, name: str, low_s: float, high_s: float, bins: int) -> Points:
        """A column as it is."""
        return self._envelope(name, lambda rows: self._column(name)[rows], low_s, high_s, bins)

    def typical_step_ms(self, low_s: float, high_s: float) -> float:
        """The largest median of 0.25 s between ``low_s`` and ``high_s``, windows with a compilation or a prefill left
        out; NaN without any: what an axis must hold, whatever single steps did.
        """
        times_s, medians = self._step_medians.points(
            self._column("time_s"), self._column("segment"), self._timed_step_ms, dropped=self._columns.dropped
        )
        shown = medians[(times_s >= low_s) & (times_s <= high_s) & np.isfinite(medians)]
        return float(shown.max()) if len(shown) else NAN

    def figures(self) -> Figures:
        """What the readouts say now."""
        time_s = self._column("time_s")
        if not len(time_s):
            return Figures()
        first = int(np.searchsorted(time_s, time_s[-1] - READOUT_WINDOW_S, side="right"))
        recent = slice(first, len(time_s))
        counted = self._timed(recent)
        segment = self._column("segment")
        latest = slice(max(int(np.searchsorted(segment, segment[-1])), len(segment) - STEP_TIMES), len(segment))
        times = self._column("step_ms")[latest][self._timed(latest)]
        p50, p95 = np.quantile(times, (0.5, 0.95)) if len(times) else (NAN, NAN)
        return Figures(
            tokens_per_s=_median(self._rates(recent)[counted]),
            step_ms=_median(self._column("step_ms")[recent][counted]),
            step_ms_p50=float(p50),
            step_ms_p95=float(p95),
            loss=float(self._column("loss")[-1]),
            grad_norm=float(self._column("grad_norm")[-1]),
            loss_scale=float(self._column("loss_scale")[-1]),
            power_w=float(self._column("power_w")[-1]),
            sm_clock_mhz=float(self._column("sm_clock_mhz")[-1]),
            peak_allocated_bytes=int(self._column("peak_allocated_bytes")[recent].max()),
            reserved_bytes=int(self._column("reserved_bytes")[recent].max()),
            device_used_bytes=int(self._column("device_used_bytes")[recent].max()),
            context_bytes=int(self._column("context_bytes")[recent].max()),
            other_processes_bytes=int(self._column("other_processes_bytes")[recent].max()),
            driver_reserved_bytes=int(self._column("driver_reserved_bytes")[recent].max()),
        )

    def _column(self, name: str) -> Floats:
        column = self._columns.column(name)
        return column if self._held_at is None else column[: max(self._held_at - self._columns.dropped, 0)]

    def _edge_bytes(self, band: Band, rows: slice) -> Floats:
        def known(name: str) -> Floats:
            sizes = self._column(name)[rows]
            return np.where(sizes >= 0, sizes, np.nan)

        match band:
            case "allocated":
                return known("peak_allocated_bytes")
            case "cached":
                return known("reserved_bytes")
            case "context":
                return known("reserved_bytes") + known("context_bytes")
            case "others":
                return self._edge_bytes("context", rows) + known("other_processes_bytes")
            case "driver":
                return self._edge_bytes("others", rows) + known("driver_reserved_bytes")
            case "unsplit":
                return np.where(np.isnan(self._edge_bytes("others", rows)), known("device_used_bytes"), np.nan)
            case _:
                assert_never(band)

    def _timed(self, rows: slice) -> NDArray[np.bool_]:
        phase = self._column("phase")[rows]
        timed: NDArray[np.bool_] = (phase != PHASE_CODES["compile"]) & (phase != PHASE_CODES["prefill"])
        return timed

    def _timed_step_ms(self, rows: slice) -> Floats:
        return np.where(self._timed(rows), self._column("step_ms")[rows], np.nan)

    def _rates(self, rows: slice) -> Floats:
        step_ms = self._column("step_ms")[rows]
        rates = np.full(len(step_ms), np.nan)
        np.divide(self._column("tokens")[rows], step_ms / 1e3, out=rates, where=step_ms > 0)
        return rates

    def _envelope(self, name: str, values: Callable[[slice], Floats], low_s: float, high_s: float, bins: int) -> Points:
        envelope = self._envelopes.setdefault(name, Envelope())
        return envelope.points(
            self._column("time_s"), values, dropped=self._columns.dropped, low_s=low_s, high_s=high_s, bins=bins
        )


def _median(values: Floats) -> float:
    return float(np.median(values)) if len(values) else NAN
