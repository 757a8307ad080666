"""data_loading: how a batch of tokens comes to the GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar, Literal, get_args

from explorer.config import RunConfig
from explorer.optimizations.base import DataLoading, Level, Optimization, Run, Stage
from explorer.optimizations.snippet import Snippet
from explorer.results.environment import DeviceInfo
from explorer.results.proof import Evidence, Profile

SCRIPT = '''\
def batches(stream, device, steps):
    """``steps`` batches of token ids, int64 (BATCH, SEQ): windows of the stream at places drawn anew for each batch."""
    for index in range(steps):
        draw = np.random.default_rng([SEED, index])
        starts = draw.integers(0, len(stream) - SEQ, size=(BATCH, 1), endpoint=True)
        batch = torch.from_numpy(stream[starts + np.arange(SEQ)])
'''
SCRIPT_ENDS: Mapping[str, str] = {
    "pinned": """\
        if device.type == "cuda":
            batch = batch.pin_memory()
        yield batch.to(device, non_blocking=True)
""",
    "pageable": """\
        yield batch.to(device)  # waits until the device has done all before it, and has the batch
""",
}


def _copied(source: Literal["pageable", "pinned"], *, ahead: bool) -> Callable[[Profile], Evidence]:
    """Proof that the batch was copied from memory of kind ``source``, pinned by the step itself unless ``ahead``."""

    def judge(profile: Profile) -> Evidence:
        if profile.device == "cpu":
            return Evidence(shown=ahead, seen="nothing is copied on a CPU")
        copies = profile.batch_uploads(source)
        other = profile.batch_uploads("pinned" if source == "pageable" else "pageable")
        pinned = profile.operator_count("aten::pin_memory", "aten::_pin_memory")
        seen = f"{copies} copies of a batch from {source} memory, {other} from other; {pinned} calls to pin memory"
        as_asked = (pinned > 0) == (source == "pinned" and not ahead)
        return Evidence(shown=copies > 0 and not other and as_asked, seen=seen)

    return judge


class BatchLoading(Optimization):
    name = "data_loading"
    label = "Data loading"
    tier = "system"
    stage = Stage.LOOP
    workloads = ("train",)
    levels = (
        Level(id="prefetch", label="pinned, ahead", help="A thread cuts two batches ahead, in pinned memory."),
        Level(id="pinned", label="pinned", help="Each batch is cut and pinned when its step begins."),
        Level(id="pageable", label="pageable, waits", help="Each batch is cut and copied while everything waits."),
    )
    help = (
        "A GPU can fetch a batch by itself while it computes, but only from memory that the operating system has "
        "promised not to move: pinned memory. From ordinary, pageable memory the copy goes through a buffer of the "
        "driver, and PyTorch waits for it and for all work before it. A thread that cuts batches ahead takes that work "
        "out of the step as well."
    )
    cost = (
        "Pinned memory cannot be swapped out, and pinning it takes time: best once, ahead, and used again. The thread "
        "takes part of a core. Nothing is gained on a CPU, which computes where the batch is."
    )
    expect = (
        "Little where a batch is some tokens cut from memory; a lot where steps are short, and where examples are read "
        "from disks and tokenized in the loop. The column data_wait_ms says what a step waited for its batch."
    )
    source = "docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html"
    code = """\
loader = torch.utils.data.DataLoader(dataset, batch_size=8, pin_memory=True, num_workers=2, prefetch_factor=2)
for tokens in loader:
    tokens = tokens.to(device, non_blocking=True)  # the host goes on at once
"""
    proof: ClassVar[Mapping[str, Callable[[Profile], Evidence]]] = {
        "prefetch": _copied("pinned", ahead=True),
        "pinned": _copied("pinned", ahead=False),
        "pageable": _copied("pageable", ahead=False),
    }

    def unavailable(self, level: str, device: DeviceInfo) -> str | None:
        if level == "prefetch" or device.kind == "cuda":
            return None
        return "a CPU computes where the batch is: nothing is copied"

    def snippet(self, level: str, config: RunConfig) -> Snippet:
        return Snippet(batches=SCRIPT + SCRIPT_ENDS[level])

    @contextmanager
    def applied(self, run: Run, level: str) -> Iterator[None]:
        before = run.data_loading
        (run.data_loading,) = (way for way in get_args(DataLoading) if way == level)
        try:
            yield
        finally:
            run.data_loading = before
