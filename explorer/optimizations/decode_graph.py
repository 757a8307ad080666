"""decode_graph: a token's kernels launched one by one by Python, or all together by one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from explorer.config import RunConfig
from explorer.optimizations.base import Level, Needs, Optimization, Run, Stage
from explorer.optimizations.snippet import Snippet
from explorer.results.environment import DeviceInfo
from explorer.results.proof import Evidence, Profile

FORWARD = '''\
class GraphedForward:
    """The forward pass of a token, as one CUDA graph: recorded at the first call, replayed at each.

    Addresses and shapes stay: the token is copied in, its slot in the cache is counted on the device, and the logits
    come in the same tensor each time.
    """

    def __init__(self, model, cache, batch, first):
        self.model, self.cache, self.first, self.graph = model, cache, first, None
        self.token = torch.zeros(batch, 1, dtype=torch.int64, device=model.device)
        self.slot = torch.tensor([first], device=model.device)

    def __call__(self, token):
        self.token.copy_(token)
        if self.graph is None:
            self.record()
        self.graph.replay()
        return self.logits

    def record(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):  # kernels load and libraries take their workspaces before the recording
                self.forward()
                self.rewind()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.logits = self.forward()

    def forward(self):
        keys = torch.arange(self.cache.layers[0].max_cache_len, device=self.slot.device)
        dtype = self.model.transformer.ln_f.weight.dtype
        mask = torch.zeros(1, 1, 1, len(keys), dtype=dtype, device=keys.device)
        mask = mask.masked_fill_(keys > self.slot, torch.finfo(dtype).min).expand(len(self.token), -1, -1, -1)
        positions = self.slot[None]
        logits = self.model(
            self.token, position_ids=positions, attention_mask=mask, past_key_values=self.cache
        ).logits[:, -1]
        self.slot += 1
        return logits

    def rewind(self):
        self.slot.fill_(self.first)
        for layer in self.cache.layers:
            layer.cumulative_length.fill_(self.first)
'''
"""For exported scripts. The token is chosen outside of it there; ``engine/step_graph.py`` records the choice, too."""


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

    def snippet(self, level: str, config: RunConfig) -> Snippet | None:
        if config.level("decoder") is not None:
            return None
        return Snippet(
            definitions=FORWARD,
            before_decoding="graphed = GraphedForward(model, cache, BATCH, len(prompt))",
            decode="logits = graphed(token)",
        )

    @contextmanager
    def applied(self, run: Run, level: str) -> Iterator[None]:
        run.graphed = True
        try:
            yield
        finally:
            run.graphed = False
