"""kernels/column_sum.py against a sum in float64."""

from __future__ import annotations

import pytest
import torch

from explorer.kernels.column_sum import column_sum


# A program takes 64 columns, 32 rows at a time.
@pytest.mark.parametrize("shape", [(1, 1), (31, 63), (33, 65), (200, 130), (3, 0)], ids=str)
def test_that_every_row_is_added_in_float32_and_rounded_once(place, shape):
    parts = place.randn(*shape, seed=1).float() + 0.1
    exact = parts.double().sum(0)
    total = column_sum(parts, place.dtype)
    assert total.dtype == place.dtype
    # Rounding of the result, and of 12 additions one after another (7 blocks of rows, then a tree over 32) of partial
    # sums below 50. Measured: 1.4e-5 of 3.6e-5.
    unit = {torch.float32: 2**-24, torch.float16: 2**-11, torch.bfloat16: 2**-8}[place.dtype]
    torch.testing.assert_close(total.double(), exact, rtol=unit, atol=12 * 50 * 2**-24)
