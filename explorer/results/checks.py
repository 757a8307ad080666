"""What stands beside a configuration's speed: are its numbers right, and did its toggles run?"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from explorer.results.parity import Parity, parity_cells
from explorer.results.proof import Proof

ParityVerdict = Literal["reference", "within tolerance", "outside tolerance", "not checked", "failed"]
"""reference: float32 without toggles, what the others are held against."""
ProofVerdict = Literal["proven", "not proven", "not checked", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a profile of one step showed."""

    proofs: Mapping[str, Proof]
    """By toggle."""
    launches: int | None = None
    """Calls by which the host launched kernels; None on the CPU."""
    busy_share: float | None = None
    """Share of the step in which the GPU was busy; None on the CPU."""

    @property
    def unproven(self) -> Mapping[str, Proof]:
        return {name: proof for name, proof in self.proofs.items() if not proof.shown}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """What was checked of one configuration; without a result and a problem it was not, or not yet."""

    is_reference: bool = False
    parity: Parity | None = None
    parity_problem: str | None = None
    """Why there is no parity."""
    ran: Ran | None = None
    ran_problem: str | None = None
    """Why there is no profile."""

    @property
    def parity_done(self) -> bool:
        return self.parity_verdict != "not checked"

    @property
    def proof_done(self) -> bool:
        return self.proof_verdict != "not checked"

    @property
    def parity_verdict(self) -> ParityVerdict:
        if self.is_reference:
            return "reference"
        if self.parity is not None:
            return "within tolerance" if self.parity.ok else "outside tolerance"
        return "not checked" if self.parity_problem is None else "failed"

    @property
    def proof_verdict(self) -> ProofVerdict:
        if self.ran is not None:
            return "not proven" if self.ran.unproven else "proven"
        return "not checked" if self.ran_problem is None else "failed"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; ``from_dict`` reads it back."""
        values: dict[str, Any] = {"is_reference": self.is_reference}
        values |= {"parity_problem": self.parity_problem, "ran_problem": self.ran_problem}
        values["parity"] = None if self.parity is None else self.parity.to_dict()
        values["ran"] = None if self.ran is None else dataclasses.asdict(self.ran)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Checks:
        """Read what ``to_dict`` wrote.

        Raises:
            ValueError: a field is missing, unknown or of the wrong kind; the message says which.
        """
        try:
            parity, ran = values["parity"], values["ran"]
            if ran is not None:
                ran = Ran(**{**ran, "proofs": {name: Proof(**proof) for name, proof in ran["proofs"].items()}})
            return cls(**{**values, "parity": None if parity is None else Parity.from_dict(parity), "ran": ran})
        except KeyError as error:
            raise ValueError(f"the checks lack {error}") from error
        except (TypeError, AttributeError) as error:
            raise ValueError(f"the checks cannot be read: {error}") from error


def perplexities(a: Checks, b: Checks) -> tuple[float, float] | None:
    """Of held-out text under A and B, where both are known: of float32 without toggles, from what the other was held
    against."""
    found = []
    for one, other in ((a, b), (b, a)):
        if one.is_reference:
            found.append(None if other.parity is None else other.parity.reference.perplexity)
        else:
            found.append(None if one.parity is None else one.parity.asked.perplexity)
    return None if found[0] is None or found[1] is None else (found[0], found[1])


def checks_cells(checks: Checks) -> dict[str, str | int | float | bool | None]:
    """The columns that a configuration's checks have in CSV and JSON; None where they were not made."""
    ran = checks.ran
    return {
        "parity": checks.parity_verdict,
        **parity_cells(checks.parity),
        "parity_worst": checks.parity_problem if checks.parity is None else checks.parity.worst,
        "proof": checks.proof_verdict,
        "unproven": None if ran is None else ", ".join(f"{name}={p.level}" for name, p in ran.unproven.items()),
        "evidence": checks.ran_problem if ran is None else "; ".join(_evidence(ran.proofs)),
        "launches": None if ran is None else ran.launches,
        "busy_share": None if ran is None else ran.busy_share,
    }


def in_words(checks: Checks, *, name: str) -> Sequence[str]:
    """Two lines on the configuration ``name``: its parity and its proof; what is wrong in capitals."""
    return f"parity of {name}: {_parity_words(checks)}", f"proof of {name}: {_proof_words(checks)}"


def _parity_words(checks: Checks) -> str:
    verdict = checks.parity_verdict
    if checks.is_reference:
        return "float32 without toggles: the reference itself"
    if checks.parity is None:
        return "not checked" if verdict == "not checked" else f"NOT KNOWN: {checks.parity_problem}"
    cells = parity_cells(checks.parity)
    told = [
        f"{words} {cells[name]:.3g}"
        for name, words in (
            ("loss_diff_max", f"loss over {len(checks.parity.asked.losses)} steps off by at most"),
            ("grad_rel_error_max", "gradients by at most"),
            ("logits_rel_error", "logits by"),
        )
        if cells[name] is not None
    ]
    if cells["grad_cosine_min"] is not None:
        told.append(f"gradient cosine at least {cells['grad_cosine_min']:.6f}")
    if checks.parity.new_tokens:
        first = checks.parity.first_divergence
        told.append("greedy text the same" if first is None else f"greedy text differs from token {first} on")
    if checks.parity.perplexity_ratio is not None:
        told.append(
            f"perplexity {cells['perplexity']:.5g} of held-out text, {checks.parity.perplexity_ratio:.4f} times "
            f"float32's {cells['perplexity_float32']:.5g}"
        )
    word = verdict if checks.parity.ok else f"{verdict.upper()}: {checks.parity.worst}"
    return "; ".join([word, *told])


def _proof_words(checks: Checks) -> str:
    ran = checks.ran
    if ran is None:
        return "not checked" if checks.ran_problem is None else f"NOT KNOWN: {checks.ran_problem}"
    told = [] if ran.launches is None else [f"{ran.launches} launches a step"]
    told += [] if ran.busy_share is None else [f"GPU busy {ran.busy_share:.0%}"]
    if not ran.unproven:
        return "; ".join(["every toggle ran", *told])
    return "; ".join([f"NOT PROVEN: {', '.join(_evidence(ran.unproven))}", *told])


def _evidence(proofs: Mapping[str, Proof]) -> list[str]:
    return [f"{name}={p.level}: {'' if p.shown else 'NOT SHOWN, '}{p.evidence}" for name, p in proofs.items()]
