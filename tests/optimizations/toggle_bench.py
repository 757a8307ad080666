"""A small GPT-2 whose weights hide nothing, and ways to look at a run from outside. Imported by this folder's tests."""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import GPT2Config, GPT2LMHeadModel

from explorer.config import RunConfig
from explorer.engine.training import train_step
from explorer.optimizations import registry
from explorer.optimizations.base import Run
from explorer.optimizations.hf_decoder import HfDecoder
from explorer.optimizations.rows import Rows
from explorer.results.environment import DeviceInfo

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
CPU = DeviceInfo(id="cpu", kind="cpu", name="CPU", total_memory_bytes=0, triton_problem="no CUDA device")


CASES = [
    (w, o.name, level.id)
    for o in registry.OPTIMIZATIONS
    for level in o.levels[1:]
    for w in o.workloads
    if w in level.workloads
]
"""Workload, toggle and level, of all that change anything."""
ON_CPU = [case for case in CASES if registry.by_name(case[1]).unavailable(case[2], CPU) is None]
INTERPRETED = [
    (w, name, level)
    for w, name, level in CASES
    if w == "train" and (registry.by_name(name).unavailable(level, CPU) or "").startswith("Triton kernels need")
]
"""Those whose kernels Triton's interpreter runs here."""


def device_info(device: str) -> DeviceInfo:
    """What the toggles are told of ``device``, asked of torch directly."""
    if device == "cpu":
        return CPU
    capability = torch.cuda.get_device_capability()
    return DeviceInfo(
        id="cuda:0",
        kind="cuda",
        name=torch.cuda.get_device_name(),
        total_memory_bytes=0,
        capability=capability,
        bf16=capability >= (8, 0),
    )


def small_gpt2(*, heads: int = 2, width: int = 32, layers: int = 3, dropout: float = 0.0, **config: Any) -> Any:
    """A seeded float32 GPT-2 in which every weight and bias is random and large enough to matter."""
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=96,
            n_positions=128,
            n_embd=width,
            n_layer=layers,
            n_head=heads,
            resid_pdrop=dropout,
            embd_pdrop=dropout,
            attn_pdrop=dropout,
            bos_token_id=None,
            eos_token_id=None,
            attn_implementation="eager",
            **config,
        )
    )
    model.loss_type = "ForCausalLM"  # as the engine sets it
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(noise * 0.1 + 1.0 if ".ln_" in name and name.endswith("weight") else noise * width**-0.5)
    return model


def tokens(batch: int, seq: int, device: str = "cpu") -> torch.Tensor:
    return torch.randint(0, 96, (batch, seq), generator=torch.Generator().manual_seed(3)).to(device)


def config_with(name: str, level: str, **fields: Any) -> RunConfig:
    """``name`` at ``level``, and every toggle that this level needs at the last of the levels it needs."""
    config = registry.with_level(RunConfig(**fields), name, level)
    for need in registry.by_name(name).needs:
        if need.applies(level, registry.levels_of(config)) and config.workload in need.workloads:
            config = registry.with_level(config, need.other, need.allowed[-1])
    return config


def run_of(model: Any, config: RunConfig, device: str = "cpu") -> Run:
    model = model.to(device)
    train = config.workload == "train"
    model.train(train)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0) if train else None
    return Run(config=config, device=torch.device(device), model=model, optimizer=optimizer)


def tolerance_of(config: RunConfig) -> float:
    """The widest of what the toggles in ``config`` claim."""
    claimed = [registry.by_name(n).tolerance.get(level, 1e-5) for n, level in config.levels]
    return max([1e-5, *claimed])


def loss_and_gradients(run: Run, batch: torch.Tensor) -> tuple[float, torch.Tensor]:
    """One training step's loss, and all its gradients, unscaled, as one float64 vector on the CPU."""
    run.model.zero_grad(set_to_none=True)
    with run.autocast():
        loss = run.model(input_ids=batch, labels=batch, use_cache=False).loss
    if run.scaler is None:
        loss.backward()
    else:
        run.scaler.scale(loss).backward()
        run.scaler.unscale_(run.optimizer)
    rows = {"transformer.wte.weight": run.model.config.vocab_size}  # without those of padding
    gradients = torch.cat(
        [p.grad.detach().double()[: rows.get(name)].flatten().cpu() for name, p in run.model.named_parameters()]
    )
    run.model.zero_grad(set_to_none=True)
    return loss.item(), gradients


def decoded_logits(run: Run, prompts: list[torch.Tensor], new: torch.Tensor) -> torch.Tensor:
    """Logits (B, n + 1, V) after each prompt and then after each of ``new`` (B, n), as the run's decoder has them."""
    rows = Rows.empty(len(prompts), max(map(len, prompts)) + new.shape[1] + 1, run.device)
    rows.begin(prompts)
    decoder = (run.decoder or HfDecoder)(run, rows)
    with torch.inference_mode(), run.autocast():
        found = [decoder.prefill().clone()]
        for index, column in enumerate(new.split(1, dim=1)):
            rows.append(column)
            found.append(decoder.decode(rows.prompt + index).clone())
    return torch.stack(found, dim=1)


def reference(model: Any) -> Any:
    """transformers' own unoptimized model in float64, with ``model``'s weights."""
    return copy.deepcopy(model).double()


class OperatorLog(TorchDispatchMode):
    """Counts the operators that really run, by name, and notes softmax's dtype and how wide each one's result was."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()
        self.softmax_dtypes: set[torch.dtype] = set()
        self.widths: defaultdict[str, set[int]] = defaultdict(set)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.seen[name] += 1
        if name == "_softmax":
            self.softmax_dtypes.add(args[0].dtype)
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.ndim:
            self.widths[name].add(result.shape[-1])
        return result


@contextmanager
def running(name: str, level: str, *, device: str = "cpu", dropout: float = 0.0, **fields: Any) -> Iterator[Run]:
    """A run of the small model with a toggle on; skips where it cannot run."""
    config = config_with(name, level, **fields)
    problems = registry.problems(config, device_info(device))
    if problems:
        pytest.skip(str(problems))
    run = run_of(small_gpt2(width=64, dropout=dropout), config, device)
    with ExitStack() as stack:
        registry.enter(stack, run)
        yield run


def operators(run: Run) -> OperatorLog:
    """What one training step, or one pass over a prompt, runs."""
    ids = tokens(2, 24, run.device.type)
    with OperatorLog() as log:
        if run.config.workload == "train":
            loss_and_gradients(run, ids)
        else:
            with torch.no_grad():
                run.model(input_ids=ids, use_cache=True)
    return log


def overflow_once(run: Run) -> None:
    """A step whose gradients are infinite: the scaler skips it and halves its scale."""
    assert run.scaler is not None
    assert run.optimizer is not None
    parameter = next(run.model.parameters())
    run.scaler.scale((parameter * torch.inf).sum()).backward()
    run.scaler.step(run.optimizer)
    run.scaler.update()
    run.model.zero_grad(set_to_none=True)


def requested_bytes() -> int:
    """What live tensors on the device take. What is allocated is more: a block that is only just too large for its
    tensor stays whole, up to a MiB each, and which ones do depends on what was freed before."""
    return torch.cuda.memory_stats()["requested_bytes.all.current"]


def stepped(run: Run, count: int, lr: float = 1e-3) -> None:
    """``count`` training steps on one batch, with the optimizer that the run has now."""
    assert run.optimizer is not None
    for group in run.optimizer.param_groups:
        group["lr"] = lr
    for _ in range(count):
        train_step(run, tokens(2, 16, run.device.type))


def weights(run: Run) -> torch.Tensor:
    return torch.cat([p.detach().double().flatten().cpu() for p in run.model.parameters()])


HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_load_state_dict_pre_hooks",
)


def state_of(run: Run) -> dict[str, Any]:
    """All that a toggle could leave behind: modules, their attributes and hooks, weights, process flags, the run."""
    on_cpu = run.device.type == "cpu"
    modules = {
        name: (
            id(module),
            type(module),
            {
                key: value if isinstance(value, (bool, int, float, str, type(None))) else id(value)
                for key, value in module.__dict__.items()
            },
            [(hooks, list(module.__dict__[hooks])) for hooks in HOOKS],
        )
        for name, module in run.model.named_modules()
    }
    weights = {
        name: (id(p), p.dtype, p.requires_grad, p.grad is None, p.data_ptr() if on_cpu else p.device, p.tolist())
        for name, p in run.model.named_parameters()
    }
    flags = (
        torch.get_default_dtype(),
        torch.backends.cuda.matmul.fp32_precision,
        torch.backends.cudnn.conv.fp32_precision,
        torch.backends.cuda.flash_sdp_enabled(),
        torch.backends.cuda.mem_efficient_sdp_enabled(),
        torch.backends.cuda.cudnn_sdp_enabled(),
        torch.backends.cuda.math_sdp_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.is_autocast_enabled("cuda"),
        torch.is_grad_enabled(),
    )
    return {
        "modules": modules,
        "weights": weights,
        "config": run.model.config.to_dict(),
        "attention": run.model.config._attn_implementation,
        "flags": flags,
        "run": {
            field.name: value if isinstance(value := getattr(run, field.name), (str, bool, RunConfig)) else id(value)
            for field in dataclasses.fields(run)
        },
    }
