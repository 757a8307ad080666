"""The forecast beside the toggles: on real widgets, moved by them."""

from __future__ import annotations

import dataclasses

from PySide6.QtGui import QColor
from pytestqt.qtbot import QtBot
from window_bench import CPU, GPU, Bench, environment, steps

from explorer.config import RunConfig
from explorer.gui.forecast_bar import ForecastBar
from explorer.gui.palette import LIGHT
from explorer.models import MODELS
from explorer.optimizations.forecasting import largest_batch, memory_forecast

GIB = 2**30
SMALL = dataclasses.replace(GPU, total_memory_bytes=24 * GIB, others_memory_bytes=4 * GIB)
FITS = RunConfig(batch=4).with_level("precision", "bf16")


def shown(qtbot: QtBot, config: RunConfig) -> ForecastBar:
    bar = ForecastBar()
    qtbot.addWidget(bar)
    bar.resize(300, 60)
    bar.show_config(config, SMALL)
    return bar


def test_that_the_peak_is_held_against_what_is_free(qtbot: QtBot) -> None:
    bar = shown(qtbot, FITS)
    peak_gib = memory_forecast(FITS, MODELS["gpt2"]).peak_bytes / GIB
    assert bar.words() == f"Memory: about {peak_gib:.1f} GiB in a step, 20.0 GiB free"
    assert "logits: 2.30 GiB" in bar._words.toolTip()


def test_that_what_will_not_fit_names_the_largest_batch_that_does(qtbot: QtBot) -> None:
    config = dataclasses.replace(FITS, batch=64)
    bar = shown(qtbot, config)
    fits = largest_batch(config, MODELS["gpt2"], 20 * GIB)
    assert 4 < fits < 64
    assert bar.words().endswith(f"will not fit into 20.0 GiB; largest batch that does: {fits}")
    assert bar._words.palette().windowText().color() == QColor(LIGHT.problem)


def test_that_nothing_is_forecast_on_a_cpu_in_generation_or_of_an_unknown_model(qtbot: QtBot) -> None:
    bar = shown(qtbot, FITS)
    for config, device in (
        (FITS, CPU),
        (dataclasses.replace(FITS, workload="generate"), SMALL),
        (dataclasses.replace(FITS, model="/nowhere"), SMALL),
        (FITS, None),
    ):
        bar.show_config(FITS, SMALL)
        assert not bar.isHidden()
        bar.show_config(config, device)
        assert bar.isHidden()


def test_that_the_bar_is_as_long_as_its_part_of_what_is_free(qtbot: QtBot) -> None:
    bar = shown(qtbot, FITS)
    qtbot.waitExposed(bar)
    image = bar._bar.grab().toImage()
    ratio = image.width() / bar._bar.width()
    needed = memory_forecast(FITS, MODELS["gpt2"]).needed_bytes / (20 * GIB)
    ground = image.pixelColor(image.width() - round(8 * ratio), image.height() // 2)
    filled = [x for x in range(image.width()) if image.pixelColor(x, image.height() // 2) != ground]
    end = max(x for x in filled if x < image.width() - 4 * ratio)
    assert abs(end / image.width() - needed) < 0.02


def test_that_flipping_a_toggle_moves_the_forecast_and_a_run_is_held_against_it(bench: Bench) -> None:
    bench.here = environment(GPU)
    window = bench.open()
    bar = window.panels.toggles.forecast
    before = bar.words()
    window.panels.toggles.edited.emit(bench.config.with_level("attention", "sdpa"))
    assert bar.words() != before
    start = bench.start()
    expected = memory_forecast(bench.config, MODELS["gpt2"]).peak_bytes
    bench.say(steps(start.run_id, 0, 5, peak_allocated_bytes=expected * 100 // 98))
    assert "the forecast was" in bar.words()
    assert "(-2.0%)" in bar.words()
    bench.end(start)
    assert "(-2.0%)" in bar.words()  # it stays after the run, until a setting changes
    window.panels.toggles.edited.emit(bench.config.with_level("gelu", "torch"))
    assert "a step," in bar.words()
