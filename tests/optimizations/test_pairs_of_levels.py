"""Every two levels of different toggles together: a training step runs with them, or they are refused with a reason."""

from __future__ import annotations

import itertools
import math
from contextlib import ExitStack

import pytest
from toggle_bench import CPU, device_info, run_of, small_gpt2, tokens

from explorer.config import RunConfig
from explorer.engine.no_waits import no_waits
from explorer.engine.training import train_step
from explorer.engine.training_graph import TrainingGraph
from explorer.optimizations import registry
from explorer.results.environment import DeviceInfo

Setting = tuple[str, str]
Pair = tuple[Setting, Setting]

TOGGLES = [o for o in registry.OPTIMIZATIONS if "train" in o.workloads]
BATCH, SEQ = 8, 32
HOPPER = DeviceInfo(id="cuda:0", kind="cuda", name="H200", total_memory_bytes=0, capability=(9, 0), bf16=True)
"""What the rows for a GPU are made for; another GPU skips those that it cannot run."""


def levels_of(toggle: registry.Optimization) -> list[Setting]:
    return [(toggle.name, level.id) for level in toggle.levels if "train" in level.workloads]


def pairs_of(row: dict[str, str]) -> set[Pair]:
    return set(itertools.combinations([(t.name, row[t.name]) for t in TOGGLES if t.name in row], 2))


def with_needs(chosen: dict[str, str]) -> dict[str, str]:
    """``chosen`` with what its levels need beside them, where nothing is chosen yet."""
    whole = dict(chosen)
    for name, level in chosen.items():
        for need in registry.by_name(name).needs:
            known = {**registry.baseline_levels(), **chosen}
            if need.applies(level, known) and "train" in need.workloads:
                whole.setdefault(need.other, need.allowed[-1])
    return whole


def config_of(row: dict[str, str]) -> RunConfig:
    return registry.normalised(RunConfig(batch=BATCH, seq=SEQ, init_scale=128.0, levels=tuple(row.items())))


def covering_rows(device: DeviceInfo) -> tuple[list[dict[str, str]], set[Pair]]:
    """Rows of all toggles' levels that ``device`` runs, until each pair is in one; and the pairs that it refuses.

    A row begins with a pair that is left; then each toggle takes the level that adds the most pairs that are left.
    """
    left = all_pairs()
    rows, refused = [], set()
    while left:
        first = min(left)
        chosen = with_needs(dict(first))
        left.discard(first)
        if registry.problems(config_of(chosen), device):
            refused.add(first)
            continue
        for toggle in (t for t in TOGGLES if t.name not in chosen):
            tried = [chosen | {name: level} for name, level in levels_of(toggle)]
            possible = [row for row in tried if not registry.problems(config_of(row), device)]
            gains = [len(pairs_of(row) & left) for row in possible]
            chosen = possible[gains.index(max(gains))]
        left -= pairs_of(chosen)
        rows.append(chosen)
    return rows, refused


def all_pairs() -> set[Pair]:
    return {
        (one, other)
        for a, b in itertools.combinations(TOGGLES, 2)
        for one, other in itertools.product(levels_of(a), levels_of(b))
    }


def run_steps(row: dict[str, str], device: str) -> None:
    """Two training steps with ``row``, or as many as it takes to replay a recorded one."""
    run = run_of(small_gpt2(width=64, heads=4, layers=2), config_of(row), device)
    with ExitStack() as stack:
        stack.enter_context(no_waits())
        registry.enter(stack, run)
        step = TrainingGraph(run, train_step) if run.graphed else lambda batch: train_step(run, batch)
        for _ in range(5 if run.graphed else 2):
            loss, norm = step(tokens(BATCH, SEQ, device))
        assert math.isfinite(loss.item())
        assert math.isfinite(norm.item())


@pytest.mark.parametrize("device", [CPU, HOPPER], ids=lambda device: device.name)
def test_that_each_pair_is_in_a_row_or_refused_with_a_reason(device: DeviceInfo) -> None:
    rows, refused = covering_rows(device)
    held = set().union(*map(pairs_of, rows))
    assert held | refused == all_pairs()
    assert not held & refused
    assert len(refused) < len(held) * (1.4 if device.kind == "cpu" else 0.5)  # 652 of 1149: many levels need a GPU
    assert len(rows) < 100
    for pair in refused:
        assert all(registry.problems(config_of(with_needs(dict(pair))), device).values())


def test_that_every_row_runs_on_the_cpu() -> None:
    for row in covering_rows(CPU)[0]:
        run_steps(row, "cpu")


# Some seconds where a row compiles.
@pytest.mark.gpu
@pytest.mark.parametrize("row", covering_rows(HOPPER)[0], ids=lambda row: "-".join(row.values()))
def test_that_every_row_runs_on_the_gpu(row: dict[str, str]) -> None:
    problems = registry.problems(config_of(row), device_info("cuda"))
    if problems:
        pytest.skip(str(problems))
    run_steps(row, "cuda")
