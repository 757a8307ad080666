"""The lab's operations as calls that can be timed, and the same in float64.

Letters as in ``results/lab.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import explorer.kernels.reference as reference
from explorer.results.lab import Case

Function = Callable[..., Any]
CHECKED_ROWS = 4096
"""Of a large case as many rows are compared with float64; of logits, where float64 takes more, ``CHECKED_LOGITS``."""
CHECKED_LOGITS = 256
CHAIN = 8
"""small_operations: so many times three operations."""
LAYERS = 8
"""item: linear layers of a step."""
BACKENDS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """One variant of one case, with its inputs on the device."""

    call: Callable[[], Any]
    """Does it once; returns its results."""
    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    """To be entered around all calls."""
    wall: bool = False
    """Whether the host's part belongs to its time."""
    error: Callable[[Any], float] | None = None
    """How far results are from float64; None where there is nothing to compare."""


def prepare(case: Case, variant: str, device: torch.device) -> Prepared:
    """Inputs for ``case`` on ``device``, always the same, and the call of ``variant``.

    Raises:
        ValueError: the variant cannot do this.
        ImportError: it needs Triton, which cannot be imported.
    """
    inputs = _Inputs(case, device)
    match case.operation:
        case "attention" | "attention_backward" | "attention_support":
            return _attention(case, variant, inputs)
        case "linear_cross_entropy":
            return _linear_cross_entropy(variant, inputs)
        case "layout":
            return _layout(variant, inputs)
        case "small_operations":
            return _small_operations(variant, inputs)
        case "item":
            return _item(variant, inputs)
        case _:
            return _row_wise(case, variant, inputs)


class _Inputs:
    """Random tensors of a case's dtype; from a generator of their own, which no graph's recording can spoil."""

    def __init__(self, case: Case, device: torch.device) -> None:
        self.shape, self.device = case.shape, device
        self.dtype: torch.dtype = getattr(torch, case.dtype)
        self._generator = torch.Generator(device).manual_seed(0)

    def randn(self, *shape: int, scale: float = 1.0) -> Tensor:
        drawn = torch.randn(shape, dtype=self.dtype, device=self.device, generator=self._generator)
        return drawn if scale == 1.0 else drawn.mul_(scale)

    def targets(self, count: int, below: int) -> Tensor:
        return torch.randint(below, (count,), device=self.device, generator=self._generator)


# ---- operations on rows


def _hf_gelu(x: Tensor) -> Tensor:
    # transformers' NewGELUActivation, as GPT-2 has it.
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def _torch_gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def _torch_layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, weight.shape, weight, bias)


def _torch_add_layer_norm(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    h = x + residual
    return h, F.layer_norm(h, weight.shape, weight, bias)


def _functions(operation: str, variant: str) -> Function:
    """``variant`` of a row-wise operation, forward."""
    if variant == "triton":
        return _tritons(operation)
    if variant == "compile":
        # What is compiled is what a model has: transformers' GeLU, torch's LayerNorm.
        return _compiled(_functions(operation, "hf" if "gelu" in operation else "torch"))
    match operation, variant:
        case "gelu", "hf":
            return _hf_gelu
        case "gelu", "torch":
            return _torch_gelu
        case "bias_gelu", "hf":
            return lambda x, bias: _hf_gelu(x + bias)
        case "bias_gelu", "torch":
            return lambda x, bias: _torch_gelu(x + bias)
        case "layer_norm", "torch":
            return _torch_layer_norm
        case "add_layer_norm", "torch":
            return _torch_add_layer_norm
        case "linear_cross_entropy", "hf":
            # transformers' ForCausalLMLoss: the logits as float32.
            return lambda x, weight, target: F.cross_entropy((x @ weight.t()).float(), target)
        case "linear_cross_entropy", "torch":
            return lambda x, weight, target: F.cross_entropy(x @ weight.t(), target)
        case _:
            raise AssertionError((operation, variant))


def _tritons(operation: str) -> Function:
    match operation:
        case "gelu":
            from explorer.kernels.gelu import gelu as found
        case "bias_gelu":
            from explorer.kernels.bias_gelu import bias_gelu as found
        case "layer_norm":
            from explorer.kernels.layer_norm import layer_norm as found
        case "add_layer_norm":
            from explorer.kernels.layer_norm import add_layer_norm as found
        case "linear_cross_entropy":
            from explorer.kernels.linear_cross_entropy import linear_cross_entropy as found
        case "attention":
            from explorer.kernels.attention import causal_attention as found
        case _:
            raise AssertionError(operation)
    return found


def _compiled(function: Function) -> Function:
    # Not reset after use, it would refuse to compile for one more shape after eight.
    torch.compiler.reset()
    return torch.compile(function, dynamic=False)


@contextmanager
def _kept_for_more_backward_passes() -> Iterator[None]:
    """Compiled functions may not give away what they saved: the backward pass is called many times."""
    import torch._functorch.config as settings

    with settings.patch(donated_buffer=False):
        yield


def _row_wise(case: Case, variant: str, inputs: _Inputs) -> Prepared:
    name = case.operation.removesuffix("_backward")
    rows, columns = inputs.shape
    function, exact = _functions(name, variant), getattr(reference, name)
    tensors = [inputs.randn(rows, columns)]
    tensors += [inputs.randn(rows, columns)] if name == "add_layer_norm" else []
    tensors += [inputs.randn(columns)] * (name != "gelu")
    tensors += [inputs.randn(columns)] if "layer_norm" in name else []
    few = min(rows, CHECKED_ROWS)
    part = [_first(x, rows, few).double() for x in tensors]
    if case.operation == name:

        def error(results: Any) -> float:
            return _error(_tuple(results), _tuple(exact(*part)), rows, few)

        def forward() -> Any:
            with torch.no_grad():
                return function(*tensors)

        return Prepared(call=forward, error=error)
    for x in (*tensors, *part):
        x.requires_grad_()
    with _kept_for_more_backward_passes():
        results = _tuple(function(*tensors))
    upstream = [inputs.randn(rows, columns) for _ in results]

    def backward_error(gradients: Any) -> float:
        wanted = torch.autograd.grad(_tuple(exact(*part)), part, [_first(g, rows, few).double() for g in upstream])
        return _error(gradients, wanted, rows, few)

    return Prepared(
        call=lambda: torch.autograd.grad(results, tensors, upstream, retain_graph=True),
        around=_kept_for_more_backward_passes,
        error=backward_error,
    )


def _linear_cross_entropy(variant: str, inputs: _Inputs) -> Prepared:
    """Loss and gradients: ours makes both at once, so both are timed."""
    rows, width, columns = inputs.shape
    x = inputs.randn(rows, width).requires_grad_()
    weight = inputs.randn(columns, width, scale=0.02).requires_grad_()
    target = inputs.targets(rows, columns)
    function = _functions("linear_cross_entropy", variant)

    def call() -> tuple[Tensor, ...]:
        return torch.autograd.grad(function(x, weight, target), (x, weight))

    def error(gradients: tuple[Tensor, ...]) -> float:
        few = min(rows, CHECKED_LOGITS)
        part = x.detach()[:few].double().requires_grad_()
        wide = weight.detach().double().requires_grad_()
        loss = reference.linear_cross_entropy(part, wide, target[:few])
        # The loss is a mean: of few rows each weighs more.
        wanted = torch.autograd.grad(loss * (few / rows), (part, wide))
        return _error(gradients, wanted, rows, few)

    return Prepared(call=call, error=error)


def _first(x: Tensor, rows: int, few: int) -> Tensor:
    """The first ``few`` rows of what has a row each; what has not, as a whole. Detached."""
    return (x[:few] if x.ndim > 1 and x.shape[0] == rows else x).detach().clone()


def _error(results: tuple[Tensor, ...], exact: tuple[Tensor, ...], rows: int, few: int) -> float:
    """The largest norm of a difference over the norm; sums over all rows are compared where all were computed."""
    found = []
    for result, wanted in zip(results, exact, strict=True):
        if result.shape != wanted.shape and result.shape[0] == rows:
            result = result[:few]
        elif few < rows:
            continue
        found.append(float((result.detach().double() - wanted.detach()).norm() / wanted.detach().norm()))
    return max(found)


def _tuple(results: Any) -> tuple[Tensor, ...]:
    return results if isinstance(results, tuple) else (results,)


# ---- attention


def _naive(q: Tensor, k: Tensor, v: Tensor, beyond: Tensor) -> Tensor:
    """As transformers' eager attention: the whole matrix, its softmax in float32."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(beyond, torch.finfo(scores.dtype).min)
    return torch.softmax(scores, -1, dtype=torch.float32).to(v.dtype) @ v


def _attention(case: Case, variant: str, inputs: _Inputs) -> Prepared:
    shape = inputs.shape
    q, k, v = (inputs.randn(*shape) for _ in range(3))
    tokens = shape[2]
    function: Function
    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    if variant == "naive":
        beyond = _beyond(tokens, inputs.device)
        function = lambda q, k, v: _naive(q, k, v, beyond)  # noqa: E731
    elif variant == "triton":
        if case.detail not in ("", "causal"):
            raise ValueError(f"it is causal by itself and takes no other mask; this case is {case.detail}")
        function = _tritons("attention")
    else:
        around = _only(variant)
        mask = ~_beyond(tokens, inputs.device) if case.detail == "mask" else None
        causal = case.detail in ("", "causal")
        function = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)  # noqa: E731
    if case.operation == "attention":

        def forward() -> Tensor:
            with torch.no_grad():
                return function(q, k, v)

        def error(result: Tensor) -> float:
            exact = reference.causal_attention(*(x[:1, :1].double() for x in (q, k, v)))
            return _error((result[:1, :1],), (exact,), 1, 1)

        return Prepared(call=forward, around=around, error=error)
    upstream = inputs.randn(*shape)
    for x in (q, k, v):
        x.requires_grad_()
    if case.operation == "attention_support":
        return Prepared(call=lambda: torch.autograd.grad(function(q, k, v), (q, k, v), upstream), around=around)
    with around():
        result = function(q, k, v)

    def backward_error(gradients: tuple[Tensor, ...]) -> float:
        part = tuple(x.detach()[:1, :1].double().requires_grad_() for x in (q, k, v))
        exact = torch.autograd.grad(reference.causal_attention(*part), part, upstream[:1, :1].double())
        return _error(tuple(g[:1, :1] for g in gradients), exact, 1, 1)

    return Prepared(
        call=lambda: torch.autograd.grad(result, (q, k, v), upstream, retain_graph=True),
        around=around,
        error=backward_error,
    )


def _beyond(tokens: int, device: torch.device) -> Tensor:
    """(T, T), True above the diagonal."""
    return torch.ones(tokens, tokens, dtype=torch.bool, device=device).triu(1)


def _only(variant: str) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: sdpa_kernel(BACKENDS[variant])


# ---- the article's other experiments


def _layout(variant: str, inputs: _Inputs) -> Prepared:
    """torch's GeLU of as many numbers, lying in memory one way or another."""
    rows, columns = inputs.shape
    wide = inputs.randn(rows, 2 * columns if variant.startswith("strided") else columns)
    match variant:
        case "contiguous":
            return Prepared(call=lambda: _torch_gelu(wide))
        case "transposed":
            return Prepared(call=lambda: _torch_gelu(wide.t()))
        case "strided":
            return Prepared(call=lambda: _torch_gelu(wide[:, ::2]))
        case "strided_copied":
            return Prepared(call=lambda: _torch_gelu(wide[:, ::2].contiguous()))
        case "transposed_copied":
            return Prepared(call=lambda: _torch_gelu(wide.t().contiguous()))
        case _:
            raise AssertionError(variant)


def _chain(x: Tensor) -> Tensor:
    for _ in range(CHAIN):
        x = torch.tanh(x * 1.01 + 0.1)
    return x


def _small_operations(variant: str, inputs: _Inputs) -> Prepared:
    x = inputs.randn(*inputs.shape)

    def error(result: Tensor) -> float:
        return _error((result,), (_chain(x.double()),), len(x), len(x))

    match variant:
        case "eager":
            return Prepared(call=lambda: _chain(x), wall=True, error=error)
        case "compile":
            compiled = _compiled(_chain)
            return Prepared(call=lambda: compiled(x), wall=True, error=error)
        case "graph" if inputs.device.type == "cpu":
            raise ValueError("CUDA graphs need a CUDA device")
        case "graph":
            return _graphed(x, error)
        case _:
            raise AssertionError(variant)


def _graphed(x: Tensor, error: Callable[[Any], float]) -> Prepared:
    _chain(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"):
        result = _chain(x)

    def replay() -> Tensor:
        graph.replay()
        return result

    return Prepared(call=replay, wall=True, error=error)


def _item(variant: str, inputs: _Inputs) -> Prepared:
    """A step whose loss is asked for each time, or never."""
    (width,) = inputs.shape
    layers = [inputs.randn(width, width, scale=width**-0.5).requires_grad_() for _ in range(LAYERS)]
    x = inputs.randn(width, width)

    def step() -> Tensor:
        h = x
        for weight in layers:
            h = torch.tanh(h @ weight)
        loss = h.float().square().mean()
        gradients = torch.autograd.grad(loss, layers)
        with torch.no_grad():
            for weight, gradient in zip(layers, gradients, strict=True):
                weight.sub_(gradient, alpha=1e-6)
        return loss.detach()

    return Prepared(call=(lambda: step().item()) if variant == "item_each_step" else step, wall=True)
