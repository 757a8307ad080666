"""Which of the things on this machine do not fit each other, and what to do. Pure functions over ``Facts``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from explorer.engine.facts import Facts, GpuFacts
from explorer.engine.variables import is_on, variable_findings
from explorer.results.environment import Finding

GIB = 2**30
# The oldest torch and the transformers that the toggles are written for: 5.23 deprecates gradient_checkpointing_enable,
# 5.24 renames past_key_values to cache, which 5.17-5.22 silently ignore.
TORCH_FROM = (2, 11)
TRANSFORMERS_FROM, TRANSFORMERS_BEFORE = (5, 17), (5, 23)
# PySide6 6.12.0 aborts pyqtgraph 0.14 after some hundred repaints, 6.11.3 and 6.12.0 break its SVG export.
QT_FROM, QT_BEFORE = (6, 9), (6, 11)
# Source: CUDA toolkit release notes, table "minimum required driver for minor version compatibility".
MINIMUM_DRIVER = {12: "525", 13: "580"}
# Triton compiles for Volta and newer. Source: torch/utils/_triton.py and torch/_inductor, the same limit.
TRITON_CAPABILITY = (7, 0)
# bfloat16 arithmetic begins with Ampere. Source: CUDA programming guide, arithmetic instructions by capability.
BF16_CAPABILITY = (8, 0)
# GPT-2 124M takes about 2 GiB to train before any activation: weights, gradients, two moments, in float32.
LOW_MEMORY_BYTES = 4 * GIB
# A context that does nothing holds about this much; more means that somebody works there.
OTHERS_BYTES = GIB // 2
GET_STARTED = "https://pytorch.org/get-started/locally/"


def findings(facts: Facts) -> tuple[Finding, ...]:
    """What does not fit: problems first, then notes; where there is no problem, one "ok" before them."""
    found = [
        *_torch(facts),
        *_driver(facts),
        *_architectures(facts),
        *_triton(facts),
        *_transformers(facts),
        *_qt(facts),
        *variable_findings(facts),
        *_gpus(facts),
        *_nvml(facts),
        *_datasets(facts),
    ]
    problems = [finding for finding in found if finding.severity == "problem"]
    notes = [finding for finding in found if finding.severity == "note"]
    ok = [] if problems else [Finding(severity="ok", text="Everything here fits together.")]
    return (*problems, *ok, *notes)


def triton_problem(facts: Facts, capability: tuple[int, int] | None) -> str | None:
    """Why Triton kernels cannot run on a device of this ``capability`` (None: the CPU), or None where they can."""
    if facts.versions.get("triton") is None:
        return "triton is not installed"
    if is_on(facts, "TRITON_INTERPRET"):
        return None
    if capability is None:
        return "Triton kernels need a CUDA device"
    if facts.hip is None and capability < TRITON_CAPABILITY:
        return f"Triton needs compute capability 7.0 or newer; this device has {_dotted(capability)}"
    if facts.system == "Linux" and not facts.c_compiler:
        return "Triton needs a C compiler; install gcc, or name one in the variable CC"
    if facts.system == "Linux" and not facts.python_headers:
        return f"Triton needs Python.h; install the development package of Python {facts.python} (python3-dev)"
    return None


def _problem(text: str) -> Finding:
    return Finding(severity="problem", text=text)


def _note(text: str) -> Finding:
    return Finding(severity="note", text=text)


def _release(version: str) -> tuple[int, ...]:
    """The leading numbers: 2.13.0+cpu is (2, 13, 0); nothing that reads as a version is ()."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _torch(facts: Facts) -> Iterator[Finding]:
    torch = facts.versions.get("torch")
    if facts.torch_problem is not None:
        state = "is not installed" if torch is None else f"{torch} is installed but cannot be imported"
        yield _problem(f"torch {state} ({facts.torch_problem}). Install it as {GET_STARTED} says.")
        return
    if torch is not None and () < _release(torch) < TORCH_FROM:
        yield _problem(f"torch {torch} is older than {_dotted(TORCH_FROM)}, which this is written for. Upgrade torch.")
    if facts.cuda is None and facts.hip is None and facts.nvidia_driver_present:
        newest = f"CUDA {_dotted(facts.driver_cuda)}" if facts.driver_cuda else "its CUDA"
        yield _problem(
            f"torch {torch} was built without CUDA although an NVIDIA driver ({facts.driver or 'version unknown'}) is "
            f"here: the GPU stays unused. Install a build for at most {newest}: the command is at {GET_STARTED}."
        )
    if facts.hip is not None:
        yield _note(f"torch was built for ROCm {facts.hip}; this was measured on NVIDIA devices only.")


def _driver(facts: Facts) -> Iterator[Finding]:
    built = _release(facts.cuda or "")[:2]
    supported = facts.driver_cuda
    if len(built) == 2 and supported is not None and built[0] > supported[0]:
        needed = MINIMUM_DRIVER.get(built[0])
        update = f"the driver to {needed} or newer" if needed else "the driver"
        yield _problem(
            f"torch was built for CUDA {facts.cuda}, and the driver {facts.driver or ''} supports CUDA "
            f"{_dotted(supported)} at most. Update {update}, or install a torch for CUDA {supported[0]}: {GET_STARTED}."
        )
        return
    if len(built) == 2 and supported is not None and built > supported:
        yield _note(
            f"torch was built for CUDA {facts.cuda}, newer than the driver's {_dotted(supported)}: it runs, but "
            "what is compiled on the spot (PTX) may be refused. Update the driver if that happens."
        )
    hidden = facts.variables.get("CUDA_VISIBLE_DEVICES")
    if facts.cuda is None or facts.gpus or not facts.nvidia_driver_present:
        return
    said = facts.cuda_problem or "torch gives no reason"
    if hidden is not None:
        yield _problem(f"No GPU is visible: CUDA_VISIBLE_DEVICES is {hidden!r} ({said}). Unset it to use the GPU.")
    else:
        yield _problem(
            f"An NVIDIA driver is here, but torch finds no usable GPU ({said}). See whether nvidia-smi works; after an "
            "update of the driver restart the machine."
        )


def _architectures(facts: Facts) -> Iterator[Finding]:
    if facts.hip is not None or not facts.architectures:
        return
    for gpu in facts.gpus:
        if not any(_runs_on(architecture, gpu.capability) for architecture in facts.architectures):
            yield _problem(
                f"{gpu.name} has compute capability {_dotted(gpu.capability)}, which this torch has no kernels for "
                f"({', '.join(facts.architectures)}). Install a torch that has: {GET_STARTED}."
            )


def _runs_on(architecture: str, capability: tuple[int, int]) -> bool:
    """Whether code for ``architecture`` runs: sm_ within its major version, compute_ (PTX) on all that follow.

    Source: CUDA programming guide, binary and PTX compatibility; sm_90a and the like run on that very one.
    """
    match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([a-z]?)", architecture)
    if match is None:
        return False
    target = (int(match[2]), int(match[3]))
    if match[4] == "a":
        return target == capability
    return target <= capability and (match[1] == "compute" or target[0] == capability[0])


def _triton(facts: Facts) -> Iterator[Finding]:
    installed, pin = facts.versions.get("triton"), facts.triton_pin
    exact = f"triton=={pin}" if pin else "triton"
    if installed is None:
        if facts.system == "Linux" and facts.gpus:
            yield _problem(f"triton is not installed: its kernels cannot run. pip install {exact}")
        elif facts.system == "Windows" and facts.gpus:
            yield _note(
                "triton has no build for Windows, so its kernels cannot run; the distribution triton-windows may."
            )
        return
    if pin is not None and _release(installed) != _release(pin):
        yield _problem(
            f"torch {facts.versions.get('torch')} asks for triton {pin}, and {installed} is here: kernels and "
            f"compiling may fail. pip install {exact}"
        )
    reasons = {triton_problem(facts, gpu.capability): gpu for gpu in facts.gpus}
    for reason, gpu in reasons.items():
        if reason is not None:
            yield _problem(f"Triton kernels cannot run on {gpu.name}: {reason}.")


def _transformers(facts: Facts) -> Iterator[Finding]:
    installed = facts.versions.get("transformers")
    wanted = f"'transformers>={_dotted(TRANSFORMERS_FROM)},<{_dotted(TRANSFORMERS_BEFORE)}'"
    if installed is None:
        yield _problem(f"transformers is not installed: no model can be made. pip install {wanted}")
    elif _release(installed) and not TRANSFORMERS_FROM <= _release(installed) < TRANSFORMERS_BEFORE:
        yield _problem(
            f"transformers is {installed}; the toggles use what 5.23 deprecates and 5.24 renames, and releases before "
            f"5.17 lack. pip install {wanted}"
        )


def _qt(facts: Facts) -> Iterator[Finding]:
    installed, plots = facts.versions.get("qt"), facts.versions.get("pyqtgraph")
    wanted = f"'PySide6-Essentials>={_dotted(QT_FROM)},<{_dotted(QT_BEFORE)}'"
    if installed is None or plots is None:
        missing = " and ".join(name for name, is_here in (("PySide6", installed), ("pyqtgraph", plots)) if not is_here)
        yield _note(f"No window, the command line only: {missing} is not installed. pip install {wanted} pyqtgraph")
    elif _release(installed) >= QT_BEFORE:
        yield _problem(
            f"PySide6 {installed} breaks pyqtgraph {plots}: the window may abort after some hundred repaints. "
            f"pip install {wanted}"
        )
    elif () < _release(installed) < QT_FROM:
        yield _problem(f"PySide6 {installed} is older than {_dotted(QT_FROM)}. pip install {wanted}")


def _gpus(facts: Facts) -> Iterator[Finding]:
    for gpu in facts.gpus:
        yield from _gpu(gpu, hip=facts.hip is not None)
    if facts.wsl and facts.gpus:
        yield _note(
            "WSL2: the driver does not tell memory by process, and what does not fit the GPU may spill into system "
            "memory, slowly, where Linux would report out of memory."
        )


def _gpu(gpu: GpuFacts, *, hip: bool) -> Iterator[Finding]:
    name = f"cuda:{gpu.index} ({gpu.name})"
    if gpu.capability < BF16_CAPABILITY and not hip:
        yield _note(
            f"{name} only emulates bfloat16 (capability {_dotted(gpu.capability)}; 8.0 has it): use fp16 there."
        )
    if gpu.display_attached:
        yield _note(
            f"{name} also drives a screen: its time and memory are shared with whatever is drawn. For figures to keep, "
            "close what draws, or measure from the command line without a desktop."
        )
    if gpu.others_memory_bytes is not None and gpu.others_memory_bytes > OTHERS_BYTES:
        yield _note(
            f"Others hold {gpu.others_memory_bytes / GIB:.1f} GiB on {name}: their work disturbs what is measured. End "
            "them (nvidia-smi lists them), or take another device."
        )
    if gpu.free_memory_bytes is not None and gpu.free_memory_bytes < LOW_MEMORY_BYTES:
        yield _note(
            f"Only {gpu.free_memory_bytes / GIB:.1f} GiB is free on {name}: begin with the model mini or a small batch."
        )


def _nvml(facts: Facts) -> Iterator[Finding]:
    reasons = dict.fromkeys(gpu.nvml_problem for gpu in facts.gpus if gpu.nvml_problem)
    for reason in reasons:
        yield _note(f"Power, temperature and clocks are not read: {reason}. Everything else works.")


def _datasets(facts: Facts) -> Iterator[Finding]:
    if facts.versions.get("datasets") is None:
        yield _note("The text wikitext-2 needs the extra wikitext: pip install 'datasets>=3'. Other texts work.")
