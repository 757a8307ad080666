"""Parity's judgement: what is allowed beside torch's own error, which measure is named, and what a file keeps of it."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from explorer.results.parity import Arm, Breakdown, Key, Measure, Parity, first_difference, judge, parity_cells

INF = math.inf


def made(errors: dict[Key, float], torchs: dict[Key, float], /, **fields: Any) -> Parity:
    values = {
        "reference": Arm(losses=(9.0, 8.0)),
        "yardstick": Arm(losses=(9.001, 8.001)),
        "asked": Arm(losses=(9.002, 7.99)),
        "batch": 2,
        "logits_max_abs": 0.25,
        **fields,
    }
    return Parity(measures=judge(errors, torchs), **values)


def allowed(key: Key, yardstick: dict[Key, float], **settings: Any) -> float:
    (measure,) = judge({key: 1.0}, yardstick, **settings)
    return measure.allowed


def test_that_twice_torchs_own_error_and_a_hundred_thousandth_are_allowed() -> None:
    assert allowed(("logits", ""), {("logits", ""): 0.003}) == pytest.approx(0.00601, rel=1e-12)
    assert allowed(("block", "h.1"), {("block", "h.1"): 0.001, ("block", "h.0"): 5.0}) == pytest.approx(0.00201)
    for value, ok in ((0.00601, True), (0.006011, False), (INF, False), (math.nan, False)):
        (measure,) = judge({("logits", ""): value}, {("logits", ""): 0.003})
        assert measure.ok is ok


def test_that_a_parameters_gradient_may_be_off_twice_as_much_as_torchs_whole_gradient() -> None:
    yardstick: dict[Key, float] = {("gradient", ""): 0.01, ("gradient", "a"): 0.0001, ("gradient", "b"): 0.02}
    assert allowed(("gradient", "a"), yardstick) == pytest.approx(0.02001)
    assert allowed(("gradient", "b"), yardstick) == pytest.approx(0.04001)
    assert allowed(("direction", "a"), yardstick) == 1e-5


def test_that_the_loss_may_be_off_by_the_gradients_error_of_its_descent() -> None:
    yardstick: dict[Key, float] = {("loss", ""): 0.0001, ("gradient", ""): 0.01}
    assert allowed(("loss", ""), yardstick) == pytest.approx(0.00021)
    assert allowed(("loss", ""), yardstick, descent=0.25) == pytest.approx(0.00501)


def test_that_in_float32_torchs_own_error_counts_at_most_as_what_rounding_does_but_in_the_loss() -> None:
    yardstick: dict[Key, float] = {
        ("logits", ""): 0.2,
        ("loss", ""): 0.2,
        ("gradient", "a"): 0.2,
        ("gradient", "b"): 1e-6,
    }
    rounding: dict[Key, float] = {("logits", ""): 3e-4, ("gradient", ""): 2e-4, ("gradient", "a"): 5e-4}
    assert allowed(("logits", ""), yardstick, rounding=rounding) == pytest.approx(6.1e-4)
    assert allowed(("loss", ""), yardstick, rounding=rounding) == pytest.approx(0.40001)
    assert allowed(("gradient", "a"), yardstick, rounding=rounding) == pytest.approx(1.01e-3)
    assert allowed(("gradient", "b"), yardstick, rounding=rounding) == pytest.approx(1.2e-5)
    assert allowed(("block", "h.0"), {("block", "h.0"): 0.2}, rounding=rounding) == 1e-5


@pytest.mark.parametrize("yardstick", [{}, {("logits", ""): INF}, {("logits", ""): math.nan}], ids=str)
def test_that_without_torchs_own_error_only_the_floor_is_allowed(yardstick: dict[Key, float]) -> None:
    assert allowed(("logits", ""), yardstick) == 1e-5


def test_that_the_measure_furthest_beyond_its_bound_is_named_with_its_place() -> None:
    asked: dict[Key, float] = {
        ("logits", ""): 0.95,
        ("block", "h.0"): 0.001,
        ("block", "h.1"): 0.04,
        ("block", "h.2"): 0.05,
        ("gradient", "h.1.mlp.weight"): 0.9,
    }
    parity = made(asked, {**dict.fromkeys(asked, 0.01), ("logits", ""): 0.4})
    assert not parity.ok
    assert parity.worst == (
        "gradient of h.1.mlp.weight: off by 0.9, 45 times the 0.02 allowed (torch's own path: 0.01); "
        "the forward pass is off from h.1 on"
    )


def test_that_within_all_bounds_the_measure_nearest_to_its_own_is_named() -> None:
    parity = made({("logits", ""): 0.001, ("direction", ""): 0.015}, {("logits", ""): 0.01, ("direction", ""): 0.01})
    assert parity.ok
    assert parity.worst == (
        "gradient's direction of all parameters: off by 0.015 rad, 0.75 of the 0.02 allowed (torch's own path: 0.01)"
    )


def test_that_an_arm_that_broke_down_is_not_ok_whatever_was_measured_before() -> None:
    broken = Arm(losses=(9.0,), breakdown=Breakdown(step=1, cause="the loss is nan"))
    errors: dict[Key, float] = {("logits", ""): 0.0}
    asked, reference, yardstick = (
        made(errors, errors, **{name: broken}) for name in ("asked", "reference", "yardstick")
    )
    assert (asked.ok, asked.worst) == (False, "stopped at step 1: the loss is nan")
    assert not reference.ok
    assert reference.worst == "nothing to compare with: float32 itself stopped at step 1: the loss is nan"
    assert yardstick.ok


@pytest.mark.parametrize(
    ("reference", "other", "place"),
    [
        ((1, 2, 3), (1, 2, 3), None),
        ((1, 2, 3), (1, 5, 3), 1),
        ((1, 2), (4, 2), 0),
        ((1, 2), (1, 2, 3), 2),
        ((), (), None),
    ],
)
def test_that_the_first_difference_of_two_texts_is_found(
    reference: tuple[int, ...], other: tuple[int, ...], place: int | None
) -> None:
    assert first_difference(reference, other) == place
    assert first_difference(other, reference) == place


def full() -> Parity:
    return made(
        {("logits", ""): INF, ("gradient", "wte"): 0.01},
        {("logits", ""): 0.01},
        asked=Arm(
            losses=(9.0,),
            grad_norms=(2.0,),
            loss_scales=(65536.0,),
            skipped=(0, 0),
            text="def f",
            perplexity=12.5,
            breakdown=Breakdown(step=1, cause="the loss is inf"),
        ),
        logits_max_abs=INF,
        new_tokens=64,
        first_divergence=3,
    )


def test_that_parity_comes_back_from_strict_json_as_it_was() -> None:
    text = json.dumps(full().to_dict(), allow_nan=False)
    assert Parity.from_dict(json.loads(text)) == full()


def test_that_a_parity_kept_before_perplexity_was_measured_is_read() -> None:
    values = full().to_dict()
    for arm in ("reference", "yardstick", "asked"):
        del values[arm]["perplexity"]
    kept = Parity.from_dict(json.loads(json.dumps(values)))
    assert (kept.asked.perplexity, kept.perplexity_ratio) == (None, None)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda values: values.pop("asked"), "lacks 'asked'"),
        (lambda values: values["measures"][0].pop("value"), "lacks 'value'"),
        (lambda values: values["measures"][0].update(kind="luck"), "'luck'; allowed: logits"),
        (lambda values: values.update(more=1), "more"),
        (lambda values: values.update(yardstick=None), "cannot be read"),
    ],
)
def test_that_a_damaged_parity_is_refused_and_says_where(spoil: Any, message: str) -> None:
    values = json.loads(json.dumps(full().to_dict()))
    spoil(values)
    with pytest.raises(ValueError, match=message):
        Parity.from_dict(values)


def test_that_the_columns_of_training_hold_the_worst_of_each_kind() -> None:
    errors: dict[Key, float] = {
        ("logits", ""): 0.004,
        ("gradient", "a"): 0.3,
        ("gradient", "b"): 0.2,
        ("direction", "a"): math.pi / 3,
        ("direction", "b"): 0.1,
    }
    cells = parity_cells(made(errors, errors))
    assert cells == {
        "parity_ok": True,
        "logits_rel_error": 0.004,
        "grad_cosine_min": pytest.approx(0.5),
        "grad_rel_error_max": 0.3,
        "loss_diff_max": pytest.approx(0.01),
        "first_divergence": None,
        **dict.fromkeys(("perplexity", "perplexity_float32", "perplexity_ratio")),
    }


def test_that_the_columns_of_generation_hold_the_divergence_and_no_gradients() -> None:
    nothing = {"grad_cosine_min": None, "grad_rel_error_max": None, "loss_diff_max": None}
    for divergence, cell in ((0, 0), (17, 17), (None, "none")):
        parity = made(
            {("logits", ""): 0.004},
            {},
            reference=Arm(perplexity=12.0),
            asked=Arm(perplexity=15.0),
            new_tokens=64,
            first_divergence=divergence,
        )
        assert parity_cells(parity) == {
            "parity_ok": False,
            "logits_rel_error": 0.004,
            **nothing,
            "first_divergence": cell,
            "perplexity": 15.0,
            "perplexity_float32": 12.0,
            "perplexity_ratio": 1.25,
        }


def test_that_numbers_that_were_not_finite_leave_their_columns_empty() -> None:
    errors: dict[Key, float] = {("logits", ""): INF, ("gradient", "a"): INF, ("direction", "a"): INF}
    cells = parity_cells(made(errors, {}))
    assert [cells[name] for name in ("logits_rel_error", "grad_cosine_min", "grad_rel_error_max")] == [None] * 3
    assert cells["parity_ok"] is False


def test_that_a_measure_says_its_share_of_what_is_allowed() -> None:
    assert Measure(kind="loss", value=0.5, yardstick=0.1, allowed=0.2).share == 2.5
