"""decode_graph: a token's kernels launched one by one by Python, or all together by one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from explorer.optimizations.base import Level, Needs, Optimization, Run, Stage
from explorer.results.environment import DeviceInfo
from explorer.results.proof import Evidence, Profile


def replayed(wanted: bool) -> Callable[[Profile], Evidence]:
    """Proof that kernels were launched many by one call (as many calls were saved as blocks were passed), or singly."""

    def judge(profile: Profile) -> Evidence:
        if profile.launches is None:
            return Evidence(shown=not wanted, seen="no GPU: nothing is launched")
        kernels = sum(kernel.count for kernel in profile.kernels)
        shown = kernels - profile.launches >= profile.blocks_passed > 0 if wanted else kernels == profile.launches
        return Evidence(shown=shown, seen=f"{kernels} kernels by {profile.launches} launches")

    return judge


class DecodeGraph(Optimization):
    name = "decode_graph"
    label = "CUDA graph of a token"
    tier = "system"
    stage = Stage.LOOP
    workloads = ("generate",)
    levels = (
        Level(id="off", label="off", help="Python launches every kernel of every token."),
        Level(id="on", label="on", help="A whole token, sampling included, is recorded once and replayed."),
    )
    help = (
        "A small model's token takes Python longer to launch than the GPU to compute. A CUDA graph records the "
        "launches once, from the token's embedding to the choice of the next one, and replays them by a single call. "
        "The chosen token stays on the device, where the next replay reads it; the host reads tokens by eights, while "
        "later ones are computed."
    )
    cost = (
        "Recording takes part of a second when a segment begins, and memory for a token's intermediate results. "
        "Shapes and addresses are fixed: it needs a static cache. Peaks of memory are not seen within a graph."
    )
    expect = (
        "On an H200, GPT-2 124M, B = 1: some 10 ms of launches a token become one call; what remains is the kernels' "
        "own time and the microsecond between two of them."
    )
    source = "pytorch.org/blog/accelerating-pytorch-with-cuda-graphs; docs.pytorch.org: torch.cuda.CUDAGraph"
    code = """\
graph = torch.cuda.CUDAGraph()
decode(token, slot)  # run it some times on a side stream first
with torch.cuda.graph(graph):
    token.copy_(decode(token, slot).argmax(-1))
    slot += 1
for _ in range(new_tokens):
    graph.replay()
"""
    needs = (
        Needs(level="on", other="kv_cache", allowed=("static",), reason="a graph's shapes and addresses are fixed"),
        Needs(
            level="on",
            other="precision",
            allowed=("tf32", "fp32"),
            reason="autocast's cast weights live outside of the graph",
        ),
    )
    proof: ClassVar[Mapping[str, Callable[[Profile], Evidence]]] = {"off": replayed(False), "on": replayed(True)}

    def unavailable(self, level: str, device: DeviceInfo) -> str | None:
        if level == "off" or device.kind == "cuda":
            return None
        return "CUDA graphs need a CUDA device; this device is a CPU"

    @contextmanager
    def applied(self, run: Run, level: str) -> Iterator[None]:
        run.graphed = True
        try:
            yield
        finally:
            run.graphed = False
