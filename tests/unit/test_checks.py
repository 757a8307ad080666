"""Verdicts on parity and proof, their columns and words, by hand."""

from __future__ import annotations

import dataclasses
import json

import pytest

from explorer.results.checks import Checks, Ran, checks_cells, in_words, perplexities
from explorer.results.parity import Arm, Measure, Parity, with_text
from explorer.results.proof import Proof

ARM = Arm(losses=(9.0, 8.5))


def parity(*, logits: float, allowed: float = 0.02, new_tokens: int = 0) -> Parity:
    measures = (
        Measure(kind="logits", value=logits, yardstick=0.008, allowed=allowed),
        Measure(kind="gradient", value=0.003, yardstick=0.003, allowed=0.006),
        Measure(kind="direction", value=0.0, yardstick=0.0, allowed=0.01),
    )
    asked = dataclasses.replace(ARM, losses=(9.0, 8.25))
    return Parity(
        measures=measures,
        reference=ARM,
        yardstick=ARM,
        asked=asked,
        batch=8,
        logits_max_abs=0.1,
        new_tokens=new_tokens,
    )


RAN = Ran(
    proofs={
        "precision": Proof(level="bf16", shown=True, evidence="mm bfloat16 x12"),
        "gelu": Proof(level="triton", shown=False, evidence="none; 12 were to be seen each way"),
    },
    launches=700,
    busy_share=0.98,
)


@pytest.mark.parametrize(
    ("checks", "parity_verdict", "proof_verdict"),
    [
        (Checks(), "not checked", "not checked"),
        (Checks(is_reference=True), "reference", "not checked"),
        (Checks(parity=parity(logits=0.01)), "within tolerance", "not checked"),
        (Checks(parity=parity(logits=0.03)), "outside tolerance", "not checked"),
        (Checks(parity_problem="out of memory", ran_problem="died"), "failed", "failed"),
        (Checks(ran=RAN), "not checked", "not proven"),
        (Checks(ran=dataclasses.replace(RAN, proofs={"precision": RAN.proofs["precision"]})), "not checked", "proven"),
    ],
)
def test_that_a_verdict_says_what_was_checked_and_what_it_showed(
    checks: Checks, parity_verdict: str, proof_verdict: str
) -> None:
    assert (checks.parity_verdict, checks.proof_verdict) == (parity_verdict, proof_verdict)
    assert checks.parity_done == (parity_verdict != "not checked")
    assert checks.proof_done == (proof_verdict != "not checked")
    cells = checks_cells(checks)
    assert (cells["parity"], cells["proof"]) == (parity_verdict, proof_verdict)


def test_that_the_columns_are_the_same_whatever_was_checked() -> None:
    full = checks_cells(Checks(parity=parity(logits=0.01), ran=RAN))
    assert checks_cells(Checks()).keys() == full.keys()
    assert full["loss_diff_max"] == 0.25
    assert full["grad_rel_error_max"] == 0.003
    assert full["grad_cosine_min"] == 1.0
    assert full["logits_rel_error"] == 0.01
    assert (full["launches"], full["busy_share"]) == (700, 0.98)
    assert full["unproven"] == "gelu=triton"
    assert "gelu=triton: NOT SHOWN, none; 12 were to be seen" in str(full["evidence"])


def test_that_what_is_wrong_stands_in_capitals_with_its_reason() -> None:
    numbers, ran = in_words(Checks(parity=parity(logits=0.03), ran=RAN), name="B")
    assert numbers.startswith("parity of B: OUTSIDE TOLERANCE: logits: off by 0.03")
    assert "loss over 2 steps off by at most 0.25" in numbers
    assert ran.startswith("proof of B: NOT PROVEN: gelu=triton")
    assert "700 launches a step; GPU busy 98%" in ran
    numbers, ran = in_words(Checks(parity_problem="out of memory", ran_problem="it died"), name="B")
    assert "NOT KNOWN: out of memory" in numbers
    assert "NOT KNOWN: it died" in ran
    numbers, ran = in_words(Checks(parity=parity(logits=0.01)), name="B")
    assert numbers.startswith("parity of B: within tolerance")
    assert ran == "proof of B: not checked"


def test_that_checks_survive_json() -> None:
    checks = Checks(parity=parity(logits=float("inf")), ran=RAN, parity_problem=None)
    assert Checks.from_dict(json.loads(json.dumps(checks.to_dict(), allow_nan=False))) == checks


@pytest.mark.parametrize("wrong", [{}, {"parity": None, "ran": None, "speed": 1}, {"parity": {}, "ran": None}])
def test_that_checks_that_cannot_be_read_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"lack|cannot be read"):
        Checks.from_dict(wrong)


def test_that_training_takes_over_what_generation_showed_of_text() -> None:
    off = Measure(kind="text", value=0.5, yardstick=0.01, allowed=0.02)
    training, text = parity(logits=0.01), parity(logits=0.9, new_tokens=60)
    text = dataclasses.replace(
        text,
        measures=(*text.measures, off),
        first_divergence=7,
        asked=Arm(text="b", perplexity=12.0),
        reference=Arm(text="a", perplexity=8.0),
    )
    both = with_text(training, text)
    assert both.measures == (*training.measures, off)
    assert not both.ok
    assert (both.new_tokens, both.first_divergence) == (60, 7)
    assert (both.reference.text, both.asked.text) == ("a", "b")
    assert both.asked.losses == training.asked.losses
    assert in_words(Checks(parity=both), name="B")[0].endswith(
        "greedy text differs from token 7 on; perplexity 12 of held-out text, 1.5000 times float32's 8"
    )


def foretelling(perplexity: float | None) -> Checks:
    found = parity(logits=0.01)
    arms = {"asked": Arm(perplexity=perplexity), "reference": Arm(perplexity=8.0)}
    return Checks(parity=dataclasses.replace(found, **arms))


def test_that_both_arms_perplexities_are_known_where_one_is_float32_itself() -> None:
    reference = Checks(is_reference=True)
    assert perplexities(foretelling(9.0), foretelling(10.0)) == (9.0, 10.0)
    assert perplexities(reference, foretelling(10.0)) == (8.0, 10.0)
    assert perplexities(foretelling(10.0), reference) == (10.0, 8.0)
    for unknown in (Checks(), foretelling(None), Checks(parity_problem="out of memory")):
        assert perplexities(foretelling(10.0), unknown) is None
    assert perplexities(reference, Checks()) is None
    assert perplexities(reference, reference) is None
