"""sync_every_step: a loss read in each step, for which the host waits. What not to do, to see what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from explorer.config import RunConfig
from explorer.optimizations.base import Level, Optimization, Run, Stage
from explorer.optimizations.snippet import Snippet
from explorer.results.environment import DeviceInfo
from explorer.results.proof import Evidence, Profile


def _reads(wanted: bool) -> Callable[[Profile], Evidence]:
    """Proof that the host read a number from the device in the step, or none, beside the one that a scaler reads."""

    def judge(profile: Profile) -> Evidence:
        if profile.device == "cpu":
            return Evidence(shown=not wanted, seen="on a CPU nothing is waited for")
        unscaled = profile.operator_count("aten::_amp_foreach_non_finite_check_and_unscale_")
        scalers = 1 if unscaled and not profile.operator_count("aten::_fused_adamw_") else 0
        own = f", {scalers} by the gradient scaler" if scalers else ""
        seen = f"the host waited for {profile.device_reads} numbers from the device{own}"
        return Evidence(shown=(profile.device_reads > scalers) == wanted, seen=seen)

    return judge


class SyncEveryStep(Optimization):
    name = "sync_every_step"
    label = "Read each loss"
    tier = "system"
    stage = Stage.LOOP
    workloads = ("train",)
    levels = (
        Level(id="off", label="no", help="Losses are read some steps later, when they are there anyway."),
        Level(id="on", label="yes, waits", help="loss.item() in each step: Python waits for the GPU every time."),
    )
    help = (
        "A progress bar that shows loss.item() makes Python wait until the GPU has done the whole step. Only then does "
        "it launch the next one, and meanwhile the GPU has nothing to do. Left alone, Python runs some steps ahead, "
        "and its own time is hidden behind the GPU's. This toggle brings the mistake back, to show what it costs."
    )
    cost = (
        "Each step gets longer by the time until Python has launched the first kernels of the next. Nothing shows "
        "where the GPU waits for Python anyway, and little where steps are long."
    )
    expect = "A share of the step that grows as steps get shorter; worst in small models whose GPU is just kept busy."
    source = "docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html, avoid unnecessary synchronization"
    code = """\
for step, tokens in enumerate(batches):
    loss = train_step(tokens)
    progress.set_postfix(loss=loss.item())  # waits: better every hundredth step, or losses kept on the device
"""
    proof: ClassVar[Mapping[str, Callable[[Profile], Evidence]]] = {"off": _reads(False), "on": _reads(True)}

    def unavailable(self, level: str, device: DeviceInfo) -> str | None:
        if level == "off" or device.kind == "cuda":
            return None
        return "on a CPU a step is over when its call returns: there is nothing to wait for"

    def snippet(self, level: str, config: RunConfig) -> Snippet:
        return Snippet(after_step="loss.item()  # waits until the device has done the step")

    @contextmanager
    def applied(self, run: Run, level: str) -> Iterator[None]:
        run.reads_every_loss = True
        try:
            yield
        finally:
            run.reads_every_loss = False
