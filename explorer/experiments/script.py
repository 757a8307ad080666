"""A configuration as a script that runs without this program: plain PyTorch and transformers, made to be read.

The pieces come from the toggles' ``snippet``; ``script_training`` and ``script_generation`` put them in their places.
"""

from __future__ import annotations

import dataclasses
import shlex
import textwrap
from pathlib import PurePath

from explorer import __version__
from explorer.config import RunConfig
from explorer.experiments import script_generation, script_training
from explorer.experiments.script_parts import Parts, visible
from explorer.optimizations import registry

FILE_NAMES = {"train": "train.py", "generate": "generate.py"}


def script(config: RunConfig) -> str:
    """The source of a script that does what ``config`` does.

    Raises:
        ValueError: a toggle stands at a level that no script can do yet, or there are several prompts.
    """
    config = registry.normalised(config)
    if config.workload == "generate" and len(config.prompts) > 1:
        raise ValueError(f"a script continues one prompt, and there are {len(config.prompts)}")
    parts = Parts()
    levels = registry.levels_of(config)
    for optimization in sorted(registry.OPTIMIZATIONS, key=lambda o: o.stage):
        level = levels[optimization.name]
        if config.workload not in optimization.workloads or level == optimization.levels[0].id:
            continue
        snippet = optimization.snippet(level, config)
        if snippet is None:
            raise ValueError(f"{optimization.name}={level} cannot be exported as a script yet")
        parts.add(snippet, f"{optimization.label.lower()}: {optimization.level(level).label}")
    write = script_training.write if config.workload == "train" else script_generation.write
    return write(config, parts, header(config))


def header(config: RunConfig) -> str:
    """The script's docstring: what it does, where it comes from, how it is run."""
    name = FILE_NAMES[config.workload]
    toggles = ", ".join(f"{n} {level}" for n, level in config.levels) or "none, nothing optimized"
    what = "Trains" if config.workload == "train" else "Writes text with"
    option = "--steps 50" if config.workload == "train" else "--tokens 100"
    command = textwrap.wrap(
        f"python main.py {command_line(config)}", 108, break_on_hyphens=False, break_long_words=False
    )
    lines = [
        *textwrap.wrap(f"{what} GPT-2 ({PurePath(config.model).name}). Toggles: {toggles}.", 112),
        "",
        f"    python {name} {option}",
        "",
        "Needs torch 2.11 or newer, transformers 5.17 to 5.22, tokenizers and numpy. Exported by the GPT-2",
        f"Optimization Explorer {__version__}, where the same is:",
        "",
        *(f"    {line}" for line in command),
    ]
    return '"""' + visible("\n".join(lines)).replace("\\", "\\\\").replace('"""', "'''") + '\n"""\n'


def command_line(config: RunConfig) -> str:
    """The options of ``main.py run`` that ask for ``config``."""
    words = ["run"]
    for field in dataclasses.fields(RunConfig):
        value = getattr(config, field.name)
        if field.name == "stop":
            words += [f"--stop={shlex.quote(stop)}" for stop in config.stop]
        elif field.name not in ("levels", "more_prompts") and (value != field.default or field.name == "batch"):
            option = "tokens" if field.name == "max_new_tokens" else field.name.replace("_", "-")
            words += [f"--{option}", shlex.quote(str(value))]
    for name, level in config.levels:
        words += ["--set", f"{name}={level}"]
    return " ".join(words)
