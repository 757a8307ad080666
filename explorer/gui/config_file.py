"""Settings as a TOML file that a person can read, change and keep beside their results."""

from __future__ import annotations

import json
import tomllib

from explorer.config import RunConfig
from explorer.optimizations.registry import normalised


def to_toml(config: RunConfig) -> str:
    """All of ``config``; ``from_toml`` reads it back."""
    values = config.to_dict()
    levels = values.pop("levels")
    # A string of JSON is one of TOML, but for DEL.
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]
    lines += ["", "[levels]", *(f"{name} = {json.dumps(level)}" for name, level in levels.items())]
    return "\n".join(lines).replace("\x7f", "\\u007f") + "\n"


def from_toml(text: str) -> RunConfig:
    """What ``to_toml`` wrote; settings that are left out are the defaults.

    Raises:
        ValueError: it is no TOML, or holds a setting, toggle, level or value that is not allowed.
    """
    values = tomllib.loads(text)
    try:
        return normalised(RunConfig.from_dict(values))
    except TypeError as error:
        raise ValueError(f"a setting is of the wrong kind: {error}") from error
