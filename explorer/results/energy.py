"""Energy a token, from the device's own counter."""

from __future__ import annotations

import numpy as np

from explorer.results.ring import Columns
from explorer.results.sample import NAN

SHORTEST_S = 1.0
"""Less time than this is not told: the counter moves in steps of up to 0.1 s, and is read every 0.1 s."""


def joules_per_token(columns: Columns) -> float:
    """Energy that the whole device used for each token of these samples, in joules; NaN where it is not measured.

    Mean power over the samples, from the counter's first and last reading within each uninterrupted stretch (of a
    comparison's blocks, each for itself), times the mean time of a token. The counter is read beside the steps, not at
    their ends, so it is set against the time between its own readings. All that the device does is in it, its idle
    power included.

    Source: nvmlDeviceGetTotalEnergyConsumption; millijoules since the driver was loaded.
    """
    block, joules, read_at_s = columns["block"], columns["energy_j"], columns["read_at_s"]
    known = np.flatnonzero(np.isfinite(joules))
    block_ends = np.flatnonzero(np.diff(block)) + 1
    used_j = lasted_s = 0.0
    for rows in np.split(known, np.searchsorted(known, block_ends)):
        if len(rows):
            used_j += float(joules[rows[-1]] - joules[rows[0]])
            lasted_s += float(read_at_s[rows[-1]] - read_at_s[rows[0]])
    tokens = int(columns["tokens"].sum())
    if lasted_s < SHORTEST_S or not tokens:
        return NAN
    return used_j / lasted_s * float(columns["step_ms"].sum()) / 1e3 / tokens
