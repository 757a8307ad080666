"""Effects against a least-squares fit of the factorial model, by hand, and by simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from explorer.config import RunConfig
from explorer.results.attribution import Setting, Times, contrast, effects, settings_of
from explorer.results.attribution_rows import Tried, attribution_rows, effects_of
from explorer.results.blocks import Block, Blocks
from explorer.results.checks import Checks
from explorer.results.measured import Measured
from explorer.results.setting_row import Yardsticks

ABC = ("a", "b", "c")


def exact(step_ms: dict[Setting, float]) -> dict[Setting, Times]:
    """Comparisons without noise: eight pairs each."""
    return {s: ([step_ms[frozenset()]] * 8, [ms] * 8) for s, ms in step_ms.items() if s}


def test_that_all_settings_are_listed_with_the_fewest_toggles_first() -> None:
    found = settings_of(ABC)
    assert found[0] == frozenset()
    assert found[-1] == frozenset(ABC)
    assert len(set(found)) == 8
    assert [len(setting) for setting in found] == [0, 1, 1, 1, 2, 2, 2, 3]


def test_that_effects_are_those_of_the_least_squares_fit_of_the_factorial_model() -> None:
    rng = np.random.default_rng(0)
    times = {setting: float(ms) for setting, ms in zip(settings_of(ABC), rng.uniform(10, 100, 8), strict=True)}
    # With each toggle coded -1 and +1, a term's coefficient is half a difference, of differences of a difference.
    terms = [frozenset(t) for size in range(4) for t in itertools.combinations(ABC, size)]
    design = np.array([[math.prod(1 if name in s else -1 for name in t) for t in terms] for s in times])
    fit, *_ = np.linalg.lstsq(design, np.log(list(times.values())), rcond=None)
    expected = {t: math.exp(-(2 ** len(t)) * coefficient) for t, coefficient in zip(terms, fit, strict=True) if t}
    found = [effect for effect in effects(exact(times), ABC) if effect.kind in ("main effect", "interaction")]
    assert {frozenset(effect.of) for effect in found} == expected.keys()
    for effect in found:
        assert effect.interval.ratio == pytest.approx(expected[frozenset(effect.of)], rel=1e-9)
        assert effect.interval.low == pytest.approx(effect.interval.high) == pytest.approx(effect.interval.ratio)


def test_that_a_toggle_that_gives_nine_percent_alone_and_nothing_under_compile_is_told_so() -> None:
    step_ms = {
        frozenset(): 109.0,
        frozenset({"gelu"}): 100.0,
        frozenset({"compile"}): 80.0,
        frozenset({"gelu", "compile"}): 80.0,
    }
    found = {(e.kind, e.of): e.interval.ratio for e in effects(exact(step_ms), ("gelu", "compile"))}
    assert found["alone", ("gelu",)] == pytest.approx(1.09)
    assert found["beside all others", ("gelu",)] == pytest.approx(1.0)
    assert found["main effect", ("gelu",)] == pytest.approx(math.sqrt(1.09))
    assert found["interaction", ("gelu", "compile")] == pytest.approx(1 / 1.09)
    assert found["beside all others", ("compile",)] == pytest.approx(100 / 80)
    assert len(found) == 2 + 2 + 3


@pytest.mark.parametrize("of", [("a",), ("a", "b"), ABC])
def test_that_a_contrast_is_blind_to_what_it_is_not_of(of: tuple[str, ...]) -> None:
    weights = contrast(of, ABC)
    assert sum(weights.values()) == pytest.approx(0)
    for other in (set(some) for size in range(3) for some in itertools.combinations(ABC, size)):
        if not other >= set(of):  # a response to some toggles only, which the effect's own are not among
            assert sum(w for s, w in weights.items() if s >= other) == pytest.approx(0)


def test_that_intervals_of_interactions_cover_the_true_factor() -> None:
    rng = np.random.default_rng(1)
    true = {frozenset(): 100.0, frozenset("a"): 50.0, frozenset("b"): 80.0, frozenset("ab"): 44.0}
    inside = []
    for _ in range(200):
        noisy = {}
        for setting, ms in true.items():
            if setting:
                drift = np.exp(rng.normal(0, 0.02, 10))  # both blocks of a pair share it
                a, b = (t * drift * np.exp(rng.normal(0, 0.01, 10)) for t in (100.0, ms))
                noisy[setting] = (a, b)
        (effect,) = (e for e in effects(noisy, ("a", "b")) if e.kind == "interaction")
        inside.append(effect.interval.low <= 50 * 80 / (100 * 44) <= effect.interval.high)
    assert np.mean(inside) >= 0.93


def test_that_effects_with_a_setting_missing_are_refused() -> None:
    times = exact({frozenset(): 1.0, frozenset("a"): 1.0, frozenset("ab"): 1.0})
    with pytest.raises(ValueError, match="not measured: b"):
        effects(times, ("a", "b"))


BASE = RunConfig(batch=2, seq=128)
YARDSTICKS = Yardsticks(floors=lambda arms: (0.005, False))
CONFIGS = {
    frozenset(): BASE,
    frozenset({"attention=sdpa"}): BASE.with_level("attention", "sdpa"),
    frozenset({"gelu=torch"}): BASE.with_level("gelu", "torch"),
    frozenset({"attention=sdpa", "gelu=torch"}): BASE.with_level("attention", "sdpa").with_level("gelu", "torch"),
}


def tried_at(step_ms: list[float], problem: str | None = None) -> list[Tried]:
    """Every setting, its step taking so many ms; the last one failed with ``problem``, if that is one."""
    found = []
    for ms, (setting, config) in zip(step_ms, CONFIGS.items(), strict=True):
        blocks = Blocks()
        failed = problem is not None and len(setting) == 2
        for pair in range(0 if failed else 8):
            for arm, time in enumerate((step_ms[0], ms)):
                blocks.add(arm, pair, Block(step_ms=time * (1 + pair / 1e4)))
        measured = Measured(
            blocks=blocks, ended_by="settled", peak_bytes=(1000, int(ms)), problem=problem if failed else None
        )
        checks = Checks(is_reference=not setting)
        found.append(Tried(setting=setting, config=config, measured=measured if setting else None, checks=checks))
    return found


def test_that_rows_are_the_settings_and_then_the_effects() -> None:
    tried = tried_at([100.0, 50.0, 80.0, 44.0])
    found = effects_of(tried, ("attention=sdpa", "gelu=torch"))
    rows = attribution_rows(tried, found, YARDSTICKS, toggles={"attention": "naive", "gelu": "hf"})
    assert [row["kind"] for row in rows[:5]] == ["setting"] * 4 + ["alone"]
    assert [row["of"] for row in rows[:2]] == ["baseline", "attention=sdpa"]
    assert rows[0]["step_ms_median"] == pytest.approx(100.0, rel=1e-3)
    assert rows[0]["tokens_per_s"] == pytest.approx(2 * 128 / 0.1, rel=1e-3)
    assert rows[3]["speedup"] == pytest.approx(100 / 44)
    assert rows[3]["peak_allocated_bytes"] == 44
    assert rows[3]["memory_ratio"] == 0.044
    last = rows[-1]
    assert (last["kind"], last["of"]) == ("interaction", "attention=sdpa x gelu=torch")
    assert last["speedup"] == pytest.approx(50 * 80 / (100 * 44))
    assert last["verdict"] == "less together"
    assert last["step_ms_median"] is None
    assert {tuple(row) for row in rows} == {tuple(rows[0])}


def test_that_a_setting_that_failed_leaves_its_row_and_no_effects() -> None:
    tried = tried_at([100.0, 50.0, 80.0, 44.0], problem="Out of memory: too much.")
    assert effects_of(tried, ("attention=sdpa", "gelu=torch")) == ()
    rows = attribution_rows(tried, (), YARDSTICKS, toggles={})
    assert len(rows) == 4
    assert rows[3]["problem"] == "Out of memory: too much."
    assert rows[3]["speedup"] is None
    assert rows[1]["speedup"] == pytest.approx(2.0)
