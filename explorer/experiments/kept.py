"""What a long experiment has measured so far, in a file beside its CSV: the same command goes on where it ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from explorer.config import RunConfig
from explorer.experiments.compare import BLOCK_STEPS
from explorer.results.atomic import replaced
from explorer.results.environment import Environment


class Kept:
    """Results in plain JSON types, by kind and key. ``put`` writes the file at once, whole or not at all."""

    def __init__(self, path: Path | None, conditions: Mapping[str, Any], *, go_on: bool = True) -> None:
        """``path``: None keeps nothing beyond this experiment. ``conditions``: what all results must have in common.

        ``go_on``: whether what is in the file counts; else the next ``put`` replaces it.

        Raises:
            ValueError: the file was made under other conditions, or is not such a file; the message says which.
        """
        self._path = path
        self._conditions = json.loads(json.dumps(conditions))
        self._results: dict[str, dict[str, Any]] = {}
        if go_on and path is not None and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        remedy = "give another --csv, or delete that file"
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            before = {"block_steps": BLOCK_STEPS, **kept["conditions"]}  # older files do not name it
            self._results = {
                kind: {_as_now(key): value for key, value in some.items()} for kind, some in kept["results"].items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} cannot be read ({error}); {remedy}") from error
        for name, now in self._conditions.items():
            if before.get(name) != now:
                raise ValueError(f"{path} was measured with {name} {before.get(name)}, and now it is {now}; {remedy}")

    def get(self, kind: str, key: str) -> Any | None:
        return self._results.get(kind, {}).get(key)

    def put(self, kind: str, key: str, value: Any) -> None:
        """Keep ``value``.

        Raises:
            ValueError, RuntimeError: the file cannot be written.
        """
        self._results.setdefault(kind, {})[key] = value
        if self._path is not None:
            text = json.dumps({"conditions": self._conditions, "results": self._results}, indent=1)
            self._write(self._path, text)

    def _write(self, path: Path, text: str) -> None:
        with replaced(path) as file:
            file.write(text.encode())


def state_path(csv: Path | None) -> Path | None:
    """Where the results behind ``csv`` are kept."""
    return None if csv is None else csv.with_name(f"{csv.name}.state.json")


def conditions(
    config: RunConfig, here: Environment, *, block_s: float, block_steps: int = BLOCK_STEPS
) -> Mapping[str, Any]:
    """What results must have in common to stand in one table: the device, its versions, the length of blocks.

    Raises:
        ValueError: ``config`` names a device that is not here.
    """
    device = here.device(config.device)
    return {
        "device": device.uuid or device.name,
        "driver": device.driver,
        "torch": here.torch,
        "triton": here.triton,
        "transformers": here.transformers,
        "block_s": block_s,
        "block_steps": block_steps,
    }


def key_of(*configs: RunConfig) -> str:
    """A key for what was measured of these configurations, in this order."""
    return json.dumps([config.to_dict() for config in configs], sort_keys=True)


def _as_now(key: str) -> str:
    """``key`` as ``key_of`` writes it today: configurations had fewer settings once. Any other key as it is."""
    try:
        return key_of(*(RunConfig.from_dict(values) for values in json.loads(key)))
    except (ValueError, TypeError):
        return key
