"""Which toggles of a configuration a profile proves. Imports no torch: a stored profile can be judged anywhere."""

from __future__ import annotations

from collections.abc import Mapping

from explorer.config import RunConfig
from explorer.optimizations import registry
from explorer.results.proof import Evidence, Profile, Proof

UNSTATED = Evidence(shown=False, seen="this toggle does not say what a profile must show")


def proof_of(config: RunConfig, profile: Profile) -> Mapping[str, Proof]:
    """By toggle that plays a part in ``config``'s workload: its level, and whether ``profile`` shows that it ran."""
    levels = registry.levels_of(config)
    proofs = {}
    for optimization in registry.OPTIMIZATIONS:
        if config.workload not in optimization.workloads:
            continue
        level = levels[optimization.name]
        judge = optimization.proof.get(level)
        evidence = UNSTATED if judge is None else judge(profile)
        plain = profile.as_written
        if judge is not None and not evidence.shown and plain is not None and optimization.name != "compile":
            # Fused with others its work has no name of its own: what the same code does uncompiled must do.
            evidence = judge(plain)
            evidence = Evidence(shown=evidence.shown, seen=f"{evidence.seen} (with compile=off)")
        proofs[optimization.name] = Proof(level=level, shown=evidence.shown, evidence=evidence.seen)
    return proofs
