"""What the figures of an experiment are held against on this machine: floors and ceilings, as far as they are known."""

from __future__ import annotations

from explorer.config import RunConfig
from explorer.engine import kept_ceilings
from explorer.experiments.compare import BLOCK_STEPS
from explorer.experiments.floors import known_floor
from explorer.results.environment import Environment
from explorer.results.setting_row import Yardsticks


def yardsticks(base: RunConfig, here: Environment, *, block_s: float, block_steps: int = BLOCK_STEPS) -> Yardsticks:
    """Those of ``base``'s device, and of comparisons with blocks of ``block_s`` seconds or ``block_steps`` steps.

    Raises:
        ValueError: ``base`` names a device that is not here.
    """
    device = here.device(base.device)
    ceilings = kept_ceilings.known(device)
    return Yardsticks(
        floors=lambda arms: known_floor(arms, here, block_s=block_s, block_steps=block_steps),
        device_name=device.name,
        ceiling_tflop_per_s=None if ceilings is None else ceilings.product_tflop_per_s,
    )
