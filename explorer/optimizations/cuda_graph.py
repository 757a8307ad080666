"""cuda_graph: a training step's kernels launched one by one by Python, or all together by one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from explorer.config import RunConfig
from explorer.optimizations.base import Level, Needs, Optimization, Run, Stage
from explorer.optimizations.decode_graph import replayed
from explorer.optimizations.snippet import Snippet
from explorer.results.environment import DeviceInfo
from explorer.results.proof import Evidence, Profile

RECORDED = '''\
class Recorded:
    """``train_step``: three times launch by launch, then recorded as one CUDA graph and replayed."""

    def __init__(self, train_step, optimizer):
        self.train_step, self.optimizer = train_step, optimizer
        self.steps, self.graph = 0, None

    def __call__(self, tokens):
        if self.steps < 3:  # kernels load, and the optimizer makes its state
            self.steps += 1
            current, side = torch.cuda.current_stream(), torch.cuda.Stream()
            side.wait_stream(current)
            with torch.cuda.stream(side):
                loss = self.train_step(tokens)
            current.wait_stream(side)
            return loss
        if self.graph is None:
            self.tokens, self.graph = tokens.clone(), torch.cuda.CUDAGraph()
            self.optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
            with torch.cuda.graph(self.graph):
                self.loss = self.train_step(self.tokens)
        self.tokens.copy_(tokens)
        self.graph.replay()
        return self.loss
'''

EAGER_MASK = '''\
def causal_mask(*, q_length, kv_length, device, dtype=torch.float32, **_):
    """Added to the (B, H, T, S) scores. transformers makes its own by a copy from the host, which no graph records."""
    mask = torch.full((1, 1, q_length, kv_length), torch.finfo(dtype).min, dtype=dtype, device=device)
    return mask.triu(kv_length - q_length + 1)
'''


class CudaGraph(Optimization):
    name = "cuda_graph"
    label = "CUDA graph of a step"
    tier = "hardware"
    stage = Stage.LOOP
    workloads = ("train",)
    may_cost_process = True
    levels = (
        Level(id="off", label="off", help="Python launches every kernel of every step."),
        Level(id="on", label="on", help="Forward, backward, clipping and AdamW are recorded once and replayed."),
    )
    help = (
        "With a small batch the GPU is done with a kernel before Python has launched the next one. A CUDA graph "
        "records all launches of a training step once, forward, backward, clipping and optimizer, and replays them by "
        "one call. Each step's batch is copied to where the recording reads it."
    )
    cost = (
        "The first steps of a segment run as before, then one is recorded: part of a second. Shapes and addresses are "
        "fixed, and the recording keeps the memory of a whole step for itself. Nothing is gained where the GPU is "
        "busy all the time anyway."
    )
    expect = "On an H200, GPT-2 124M, B = 8, T = 1024, bf16, compiled: from 26.9 to 21.1 ms a step; at B = 64 nothing."
    source = "pytorch.org/blog/accelerating-pytorch-with-cuda-graphs; docs.pytorch.org: torch.cuda.CUDAGraph"
    code = """\
optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
static = torch.empty_like(tokens)
# run some steps on a side stream first, then:
graph = torch.cuda.CUDAGraph()
optimizer.zero_grad(set_to_none=True)
with torch.cuda.graph(graph):
    loss = model(input_ids=static, labels=static, use_cache=False).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
for tokens in batches:
    static.copy_(tokens)
    graph.replay()
"""
    needs = (
        Needs(
            level="on",
            other="precision",
            allowed=("fp32", "tf32", "bf16"),
            reason="fp16's scaler asks the host after each backward pass whether a gradient was infinite",
        ),
        Needs(
            level="on",
            other="dropout",
            allowed=("off",),
            beside=("checkpointing", ("alternate", "all")),
            reason="to drop the same again, recomputing reads and sets the random state, which cannot be recorded",
        ),
    )
    proof: ClassVar[Mapping[str, Callable[[Profile], Evidence]]] = {"off": replayed(False), "on": replayed(True)}

    def unavailable(self, level: str, device: DeviceInfo) -> str | None:
        if level == "off" or device.kind == "cuda":
            return None
        return "CUDA graphs need a CUDA device; this device is a CPU"

    def snippet(self, level: str, config: RunConfig) -> Snippet:
        written_out = config.level("attention") is None
        return Snippet(
            imports=("from transformers import AttentionMaskInterface",) if written_out else (),
            definitions=f"{EAGER_MASK}\n\n{RECORDED}" if written_out else RECORDED,
            setup='AttentionMaskInterface.register("eager", causal_mask)' if written_out else "",
            before_steps="torch.set_autocast_cache_enabled(False)  # a cast from before would not be recorded",
            optimizer=("capturable=True",),
            step="Recorded(train_step, optimizer)",
        )

    @contextmanager
    def applied(self, run: Run, level: str) -> Iterator[None]:
        from explorer.optimizations.optimizer_state import remade

        # The step count goes to the device: on the host it would be recorded as the number that it is.
        with remade(run, capturable=True):
            run.graphed = True
            try:
                yield
            finally:
                run.graphed = False
