"""Many comparisons and checks in one experiment: each measured once, kept, and found again by the next run."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from explorer.config import RunConfig
from explorer.experiments.alone import PROBE_STEPS, alone
from explorer.experiments.check import check, unchecked, wanted
from explorer.experiments.compare import BLOCK_STEPS, Compared, Limits, compare, too_few
from explorer.experiments.kept import Kept, key_of
from explorer.experiments.steps import AskedToStop, FreshWorker, Steps, ready
from explorer.messages import Compare, Start
from explorer.optimizations import registry
from explorer.results.blocks import Blocks
from explorer.results.checks import Checks
from explorer.results.environment import DeviceInfo
from explorer.results.measured import Measured
from explorer.results.point import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """What the parts of one experiment share."""

    kept: Kept
    limits: Limits
    block_s: float
    download: bool
    asked_to_stop: AskedToStop
    on_part: Callable[[str, int], None]
    """Hears what begins now, and how many parts are left with it."""
    on_pair: Callable[[Blocks], None]
    block_steps: int = BLOCK_STEPS
    timing: bool = True
    """Whether anything is timed; otherwise what was timed before is found again, and only checks are made."""
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    """Run ids, a new one each time."""
    work_ids: Iterator[int] = field(default_factory=lambda: itertools.count(-1, -1))
    """The same for work that is no run: checks."""
    on_begin: Callable[[Compare | Start], None] = lambda command: None
    """Hears each command that makes samples, before it is sent."""
    on_compared: Callable[[Compare, Measured], None] = lambda command, measured: None

    def known(self, a: RunConfig, b: RunConfig) -> Measured | None:
        """What an earlier part or run measured of these arms."""
        values = self.kept.get("comparisons", key_of(a, b))
        return None if values is None else Measured.from_dict(values)

    def compared(
        self, a: RunConfig, b: RunConfig, *, name: str, left: int, a_alone: bool = True
    ) -> Steps[Measured | None]:
        """Compare ``a`` and ``b``, unless that was done or nothing is to be timed any more; keeps it.

        The worker must be ready, and is so afterwards. ``name``: what this part is called; ``left``: parts to do, with
        this one; ``a_alone``: whether A's peak of memory is to be measured. Returns what is known of it, or None.
        """
        known = self.known(a, b)
        if (known is not None and known.done) or not self.timing or self.asked_to_stop():
            return known
        self.on_part(name, left)
        command = Compare(
            run_ids=(next(self.ids), next(self.ids)),
            arms=(a, b),
            block_s=self.block_s,
            block_steps=self.block_steps,
            seed=a.seed,
            a_alone=a_alone,
            download=self.download,
        )
        self.on_begin(command)
        found = yield from compare(command, limits=self.limits, asked_to_stop=self.asked_to_stop, on_pair=self.on_pair)
        measured = Measured(
            blocks=found.blocks,
            ended_by=found.ended_by,
            peak_bytes=found.peak_bytes,
            joules_per_token=found.joules_per_token,
            problem=self._problem(found),
        )
        self.kept.put("comparisons", key_of(a, b), measured.to_dict())
        self.on_compared(command, measured)
        if not found.worker_usable and not self.asked_to_stop():
            yield from ready((FreshWorker(),))
        return measured

    def _problem(self, found: Compared) -> str | None:
        """Why ``found`` has no ratio; None where it has one, or was stopped before it could."""
        if found.problem is not None:
            return str(found.problem)
        if found.ended_by == "stopped" or found.blocks.interval() is not None:
            return None
        return too_few(found.blocks, self.limits)

    def known_alone(self, config: RunConfig, *, probe: bool) -> Point | None:
        """What an earlier part or run measured of ``config`` by itself; a probe is also answered by a full one."""
        for kind in ("alone", "probes") if probe else ("alone",):
            values = self.kept.get(kind, key_of(config))
            if values is not None:
                return Point.from_dict(values)
        return None

    def measured_alone(self, config: RunConfig, *, probe: bool, name: str, left: int) -> Steps[Point | None]:
        """Measure ``config`` by itself, unless that was done or an end is wanted; keeps it.

        The worker must be ready, and is so afterwards. ``probe``: only see whether it fits. ``name`` and ``left``: as
        in ``compared``. Returns what is known of it, or None.
        """
        known = self.known_alone(config, probe=probe)
        if (known is not None and known.done and (probe or known.timed)) or self.asked_to_stop():
            return known
        self.on_part(name, left)
        steps = PROBE_STEPS if probe else None
        start = Start(run_id=next(self.ids), config=config, steps=steps, download=self.download)
        self.on_begin(start)
        point, usable = yield from alone(
            start, block_s=self.block_s, limits=self.limits, asked_to_stop=self.asked_to_stop
        )
        self.kept.put("probes" if probe else "alone", key_of(config), point.to_dict())
        if not usable and not self.asked_to_stop():
            yield from ready((FreshWorker(),))
        return point

    def unchecked(self, configs: Iterable[RunConfig], *, parity: bool, proof: bool) -> int:
        """How many checks of ``configs`` are still to be made."""
        known = [self._checks(config) for config in configs]
        return sum((parity and not one.parity_done) + (proof and not one.proof_done) for one in known)

    def checked(
        self,
        names: Mapping[RunConfig, str],
        *,
        parity: bool,
        proof: bool,
        on_checks: Callable[[Mapping[RunConfig, Checks]], None],
    ) -> Steps[Mapping[RunConfig, Checks]]:
        """Check what ``names`` names in what was not checked before; keeps it. To be done when all is timed.

        ``on_checks`` hears what is known so far whenever there is more.
        """
        known = {config: self._checks(config) for config in names}
        on_checks(known)
        command = wanted(known, run_id=next(self.work_ids), parity=parity, proof=proof, download=self.download)
        if command is None or self.asked_to_stop():
            return known
        parts = [f"parity of {names[config]}" for config in command.parity]
        parts += [f"proof of {names[config]}" for config in command.proof]

        def begin() -> None:
            if parts:
                self.on_part(parts.pop(0), len(parts) + 1)

        def on_found(config: RunConfig, checks: Checks) -> None:
            known[config] = checks
            self.kept.put("checks", key_of(config), checks.to_dict())
            on_checks(known)
            begin()

        begin()
        return (yield from check(command, known, asked_to_stop=self.asked_to_stop, on_found=on_found))

    def _checks(self, config: RunConfig) -> Checks:
        values = self.kept.get("checks", key_of(config))
        if values is None:
            return unchecked(config)
        # What failed is tried again.
        return dataclasses.replace(Checks.from_dict(values), parity_problem=None, ran_problem=None)


def must_run(configs: Mapping[str, RunConfig], device: DeviceInfo) -> None:
    """See before a long experiment that each configuration, by its name, can run on ``device``.

    Raises:
        ValueError: one cannot; the message names it and says why.
    """
    for name, config in configs.items():
        for toggle, reason in registry.problems(config, device).items():
            raise ValueError(f"{name}: {toggle}={config.level(toggle)} cannot run on {device.name}: {reason}")
