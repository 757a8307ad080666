"""A configuration as options of the command line: lines to be copied into a terminal."""

from __future__ import annotations

import dataclasses
import shlex

from explorer.config import RunConfig

NAMES = {"max_new_tokens": "tokens"}
"""Options that are not called by the name of their field of RunConfig."""
STEPS_UNDER_NSIGHT = 20


def option(field: str) -> str:
    """The option that sets this field of RunConfig."""
    return "--" + NAMES.get(field, field.replace("_", "-"))


def options(config: RunConfig) -> list[str]:
    """The words that make ``run`` and its like take ``config``: what tells the most, and all that is no default."""
    default = RunConfig()
    train = config.workload == "train"
    shown = (
        {"model", "batch", "seq"} if train else {"workload", "model", "weights", "batch", "prompt", "max_new_tokens"}
    )
    words: list[str] = []
    for field in dataclasses.fields(RunConfig):
        value = getattr(config, field.name)
        if field.name in ("levels", "stop", "more_prompts"):
            continue
        if field.name in shown or value != getattr(default, field.name):
            words += [option(field.name), str(value)]
        if field.name == "prompt":
            words += [word for prompt in config.more_prompts for word in (option("prompt"), prompt)]
    for stop in config.stop:
        words += ["--stop", stop]
    for name, level in config.levels:
        words += ["--set", f"{name}={level}"]
    return words


def profile_line(config: RunConfig) -> str:
    """The command that profiles ``config``."""
    return shlex.join(["python", "main.py", "profile", *options(config)])


def nsys_line(config: RunConfig) -> str:
    """The command that has NVIDIA's Nsight Systems record a run of ``config``, its parts named by NVTX ranges.

    On a CUDA device: a configuration that names the CPU leaves the choice to that machine.

    Source: docs.nvidia.com/nsight-systems/UserGuide, "CLI Profile Command Switch Options".
    """
    if config.device == "cpu":
        config = dataclasses.replace(config, device="auto")
    words = ["nsys", "profile", "-t", "cuda,nvtx", "-s", "none"]
    if "on" in (config.level("cuda_graph"), config.level("decode_graph")):
        words += ["--cuda-graph-trace=node"]  # else a graph is one bar, whatever is in it
    words += ["-o", config.workload, "python", "main.py", "run", *options(config)]
    if config.workload == "train":
        words += ["--steps", str(STEPS_UNDER_NSIGHT)]
    return shlex.join([*words, "--nvtx", "--in-process", "--no-store"])
