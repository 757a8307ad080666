"""What is remembered between two openings of the window: settings, layout, theme and language."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from PySide6.QtCore import QByteArray, QSettings

from explorer.config import LIMITS, RunConfig
from explorer.gui.language import ASSETS, LANGUAGES, Language
from explorer.models import MODELS
from explorer.optimizations.registry import normalised

ThemeChoice = Literal["system", "light", "dark"]
LanguageChoice = Literal["system"] | Language
LANGUAGE_CHOICES: tuple[LanguageChoice, ...] = ("system", *LANGUAGES)


def bundled_weights_present() -> bool:
    """Whether the small model's trained weights lie beside the program."""
    return (ASSETS / "mini.safetensors").exists()


def default_config(*, cuda: bool) -> RunConfig:
    """What Start runs for someone who has set nothing: GPT-2 124M trains on a GPU, the small model writes on a CPU."""
    if cuda:
        return RunConfig(model="gpt2", batch=8, seq=1024)
    return RunConfig(workload="generate", model="mini", weights="bundled", batch=4, seq=128)


def longest_seq(model: str) -> int:
    """Most tokens a sequence of ``model`` can have, as far as can be told without opening it."""
    return MODELS[model].positions if model in MODELS else int(LIMITS["seq"][1])


class Settings:
    """The user's settings file. A value that cannot be read counts as absent: it never stops the window."""

    def __init__(self, file: Path | None = None) -> None:
        if file is not None:
            self._store = QSettings(str(file), QSettings.Format.IniFormat)
        else:
            self._store = QSettings(
                QSettings.Format.IniFormat, QSettings.Scope.UserScope, "gpt2-optimization-explorer", "window"
            )

    def config(self) -> RunConfig | None:
        """The last configuration, or None where there is none that can still be used."""
        try:
            values = json.loads(str(self._store.value("config", "")))
            config = normalised(RunConfig.from_dict(values))
        except (ValueError, TypeError):
            return None
        # RunConfig trusts its words to be words; a file can hold anything.
        words = (field.name for field in dataclasses.fields(config) if isinstance(field.default, str))
        return config if all(isinstance(getattr(config, name), str) for name in words) else None

    def theme(self) -> ThemeChoice:
        value = self._store.value("theme", "system")
        for choice in get_args(ThemeChoice):
            if value == choice:
                return choice  # type: ignore[no-any-return]
        return "system"

    def prompts(self) -> list[str]:
        """The prompts that were run before, newest first."""
        try:
            prompts = json.loads(str(self._store.value("prompts", "[]")))
        except ValueError:
            return []
        return [prompt for prompt in prompts if isinstance(prompt, str)] if isinstance(prompts, list) else []

    def presets(self) -> dict[str, tuple[tuple[str, str], ...]]:
        """The person's own presets, each as its toggles with their levels."""
        try:
            presets = json.loads(str(self._store.value("presets", "{}")))
            return {
                str(name): normalised(RunConfig.from_dict({"levels": levels})).levels
                for name, levels in presets.items()
            }
        except (ValueError, TypeError, AttributeError):
            return {}

    def series(self) -> dict[str, Any]:
        """What ladder, sweep and attribution were asked for, by their names."""
        try:
            values = json.loads(str(self._store.value("series", "{}")))
        except ValueError:
            return {}
        return values if isinstance(values, dict) else {}

    def language(self) -> LanguageChoice:
        value = self._store.value("language", "system")
        return next((choice for choice in LANGUAGE_CHOICES if choice == value), "system")

    def layout(self) -> tuple[QByteArray, QByteArray]:
        """Geometry and dock state, empty where they were never saved."""
        return self._bytes("geometry"), self._bytes("docks")

    def remember_config(self, config: RunConfig) -> None:
        self._store.setValue("config", json.dumps(config.to_dict()))

    def remember_theme(self, choice: ThemeChoice) -> None:
        self._store.setValue("theme", choice)

    def remember_prompts(self, prompts: list[str]) -> None:
        self._store.setValue("prompts", json.dumps(prompts))

    def remember_presets(self, presets: Mapping[str, tuple[tuple[str, str], ...]]) -> None:
        self._store.setValue("presets", json.dumps({name: dict(levels) for name, levels in presets.items()}))

    def remember_series(self, values: Mapping[str, Any]) -> None:
        self._store.setValue("series", json.dumps(values))

    def remember_language(self, choice: LanguageChoice) -> None:
        self._store.setValue("language", choice)

    def remember_layout(self, geometry: QByteArray, docks: QByteArray) -> None:
        self._store.setValue("geometry", geometry)
        self._store.setValue("docks", docks)

    def save(self) -> None:
        """Write to disk now; where that cannot be done the settings are simply not remembered."""
        self._store.sync()

    def _bytes(self, key: str) -> QByteArray:
        value = self._store.value(key)
        return value if isinstance(value, QByteArray) else QByteArray()
