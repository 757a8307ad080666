"""The GPT-2 sizes that can be named, without importing torch.

Source: Radford et al. 2019, table 2, and the configurations published with the weights; ``mini`` is our own.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What fixes a GPT-2's parameter count: L layers, H heads, width D, V tokens, at most T positions."""

    layers: int
    heads: int
    width: int
    vocabulary: int = 50257
    positions: int = 1024

    @property
    def parameters(self) -> int:
        """Number of parameters N, the output matrix tied to the input embedding."""
        d = self.width
        block = 12 * d * d + 13 * d
        return self.vocabulary * d + self.positions * d + self.layers * block + 2 * d


MODELS: Mapping[str, ModelShape] = MappingProxyType(
    {
        "mini": ModelShape(layers=6, heads=4, width=256, vocabulary=8192),
        "gpt2": ModelShape(layers=12, heads=12, width=768),
        "gpt2-medium": ModelShape(layers=24, heads=16, width=1024),
        "gpt2-large": ModelShape(layers=36, heads=20, width=1280),
        "gpt2-xl": ModelShape(layers=48, heads=25, width=1600),
    }
)


def shape_of(model: str) -> ModelShape | None:
    """The shape of a named model, or of the one saved in the folder ``model``; None where that is no GPT-2 whose
    config.json says it, or one whose blocks are wider within than 4 d.
    """
    if model in MODELS:
        return MODELS[model]
    try:
        said = json.loads((Path(os.path.expanduser(model), "config.json")).read_text(encoding="utf-8"))
        shape = ModelShape(
            layers=int(said["n_layer"]),
            heads=int(said["n_head"]),
            width=int(said["n_embd"]),
            vocabulary=int(said["vocab_size"]),
            positions=int(said["n_positions"]),
        )
        inner = said.get("n_inner")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return shape if inner in (None, 4 * shape.width) else None
