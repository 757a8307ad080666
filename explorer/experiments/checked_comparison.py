"""The whole of a comparison: first what is timed, then what would disturb it, parity and proof."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from explorer.config import RunConfig
from explorer.experiments.arms import Arms
from explorer.experiments.check import check, unchecked, wanted
from explorer.experiments.compare import Compared, Limits, compare
from explorer.experiments.steps import AskedToStop, Steps
from explorer.messages import Compare
from explorer.results.blocks import Blocks
from explorer.results.checks import Checks, checks_cells
from explorer.results.export import Cell

CheckedComparison = tuple[Compared, Mapping[RunConfig, Checks]]


def compare_and_check(
    command: Compare,
    *,
    limits: Limits,
    checks_id: int,
    parity: bool,
    proof: bool,
    asked_to_stop: AskedToStop,
    on_pair: Callable[[Blocks], None],
    on_compared: Callable[[Compared], None] = lambda compared: None,
) -> Steps[CheckedComparison]:
    """Compare, then check both arms where ``parity`` or ``proof`` ask for it. The worker must be ready.

    What failed or was stopped is not checked. ``checks_id`` is the run id of the checks; ``on_compared`` hears the
    comparison before they begin.
    """
    compared = yield from compare(command, limits=limits, asked_to_stop=asked_to_stop, on_pair=on_pair)
    on_compared(compared)
    checks: Mapping[RunConfig, Checks] = {config: unchecked(config) for config in command.arms}
    verify = wanted(checks, run_id=checks_id, parity=parity, proof=proof, download=command.download)
    measured = compared.problem is None and compared.blocks.interval() is not None
    if verify is not None and measured and compared.worker_usable and not asked_to_stop():
        checks = yield from check(verify, checks, asked_to_stop=asked_to_stop, on_found=lambda config, checks: None)
    return compared, checks


def checks_row(arms: Arms, checks: Mapping[RunConfig, Checks]) -> dict[str, Cell]:
    """Parity and proof of each arm, as columns."""
    return {
        f"{letter}_{name}": value
        for letter, config in zip("ab", arms, strict=True)
        for name, value in checks_cells(checks[config]).items()
    }
