"""Where a kernel test runs, in which dtype, and what its results are compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy
import pytest
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A device and a dtype, and random tensors there: the same values for the same seed and shape."""

    device: str
    dtype: torch.dtype

    def randn(self, *shape: int, seed: int = 0, scale: float = 1.0, shift: float = 0.0) -> Tensor:
        values = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return (values * scale + shift).to(self.device, self.dtype)


# Triton's interpreter is wrong in bfloat16, so that is tested on the GPU only.
PLACES = [
    pytest.param(Place(device="cpu", dtype=torch.float32), id="interpreted-float32"),
    pytest.param(Place(device="cpu", dtype=torch.float16), id="interpreted-float16"),
    *(
        pytest.param(Place(device="cuda", dtype=dtype), id=f"cuda-{str(dtype)[6:]}", marks=pytest.mark.gpu)
        for dtype in (torch.float32, torch.float16, torch.bfloat16)
    ),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "place" in metafunc.fixturenames:
        metafunc.parametrize("place", PLACES)


@pytest.fixture(autouse=True)
def as_on_the_card(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fill what torch.empty returns with NaN, so that an element that a kernel leaves out cannot pass.

    And let the interpreter's numpy overflow to infinity without a word, as a GPU does.
    """
    from explorer.kernels.launch import INTERPRETED

    place = request.node.callspec.params.get("place") if hasattr(request.node, "callspec") else None
    if place is not None and (place.device == "cpu") != INTERPRETED:
        pytest.skip("kernels are compiled in a run with GPU tests and interpreted in one without")
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all()
    with numpy.errstate(all="ignore"):
        yield
    torch.use_deterministic_algorithms(False)


def error(result: Tensor, exact: Tensor) -> float:
    """Largest difference of ``result`` from the float64 ``exact``; infinite where the result is not finite."""
    assert exact.dtype == torch.float64
    assert result.shape == exact.shape
    difference = (result.double() - exact).abs().nan_to_num(torch.inf)
    return difference.max().item() if difference.numel() else 0.0


@pytest.fixture
def as_exact_as_torch():
    """Assert that ``ours`` is no further from the float64 ``exact`` than twice ``torchs``, plus a floor.

    The floor, 4 times float32's rounding unit (2^-24) times the largest exact value, is what a formula of a few
    float32 operations may err by; it matters only where torch happens to err by less. ``terms``: the largest of the
    numbers whose difference the result is, where that is larger than the result. ``others``: torch's results and the
    exact ones for other inputs, where the result is too few numbers to tell how far torch errs.
    """

    def check(
        ours: Tensor,
        torchs: Tensor,
        exact: Tensor,
        *,
        terms: float = 0.0,
        others: Sequence[tuple[Tensor, Tensor]] = (),
    ) -> None:
        floor = 4 * 2**-24 * max(terms, exact.abs().max().item() if exact.numel() else 0.0)
        allowed = 2 * max(error(found, right) for found, right in [(torchs, exact), *others]) + floor
        assert error(ours, exact) <= allowed, f"off by {error(ours, exact):.3g}; allowed {allowed:.3g}"

    return check
