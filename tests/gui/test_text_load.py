"""Text that comes at 3,000 tokens/s into the whole window, and a very long one: neither may hold the window up.

Times are of the window's thread on a core, not of the clock on the wall: other work on the machine is left out.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import numpy as np
import pytest
from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot
from window_bench import CPU, Bench, ScriptedWorker, environment

from explorer.config import RunConfig
from explorer.gui import bridge
from explorer.gui.soak import GAP_UNDER_MS
from explorer.gui.text_panel import MOST_BLOCKS, TextPanel
from explorer.messages import Event, Samples, Text
from explorer.results.sample import Sample

TOKENS_PER_S = 3000
DRAIN_MS = 100
DRAINS = 15
WORDS = ("def ", "return ", "x", " = ", "(", "):", "\n    ", "self", ".", "value", ", ", '"""', "\n\n", "import ")


class Streaming(ScriptedWorker):
    """Has the tokens of 100 ms to tell each time that it is asked, as the worker does: samples and text each 50 ms."""

    run_id = 0
    drains = 0

    def drain(self) -> list[Event]:
        events = super().drain()
        if self.run_id and self.drains < DRAINS:
            for half in range(2):
                count = TOKENS_PER_S * DRAIN_MS // 2000
                steps = range((2 * self.drains + half) * count, (2 * self.drains + half + 1) * count)
                events.append(Samples(run_id=self.run_id, samples=tuple(map(token, steps))))
                text = "".join(WORDS[step * 7 % len(WORDS)] for step in steps)
                events.append(Text(run_id=self.run_id, text=text))
            self.drains += 1
        return events


def token(step: int) -> Sample:
    time_s, step_ms = step / TOKENS_PER_S, 0.25 + step * 37 % 11 / 60
    phase = "steady" if step else "prefill"
    return Sample(step=step, segment=0, phase=phase, time_s=time_s, tokens=1, step_ms=step_ms)  # type: ignore[arg-type]


def test_that_the_window_stays_free_while_3000_tokens_a_second_come(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Streaming(environment(CPU))
    bench.workers.append(worker)
    monkeypatch.setattr(bridge, "open_worker", lambda *, in_process: worker)
    monkeypatch.setattr(bridge, "DRAIN_EVERY_MS", DRAIN_MS)
    window = bench.open()
    window.resize(1440, 1000)
    bench.choose("workload_combo", "generate")
    start = bench.start()
    gaps_ms: list[float] = []
    last_ms = time.thread_time() * 1e3

    def tick() -> None:
        nonlocal last_ms
        now_ms = time.thread_time() * 1e3
        gaps_ms.append(now_ms - last_ms)
        last_ms = now_ms

    ticks = QTimer()
    ticks.setTimerType(Qt.TimerType.PreciseTimer)
    ticks.timeout.connect(tick)
    ticks.start(10)
    worker.run_id = start.run_id
    bench.qtbot.waitUntil(lambda: worker.drains == DRAINS, timeout=20_000)
    bench.qtbot.wait(2 * DRAIN_MS)
    ticks.stop()
    tokens = TOKENS_PER_S * DRAIN_MS * DRAINS // 1000
    assert len(window.log.run(start.run_id).columns) == tokens
    written = "".join(WORDS[step * 7 % len(WORDS)] for step in range(tokens))
    assert window.panels.text.text() == start.config.prompt + written
    assert len(gaps_ms) > DRAINS
    assert np.quantile(gaps_ms, 0.99) < GAP_UNDER_MS
    bench.end(start)


def test_that_a_million_characters_cost_no_more_at_their_end_than_at_their_beginning(qtbot: QtBot) -> None:
    panel = TextPanel()
    qtbot.addWidget(panel)
    panel.resize(320, 600)
    panel.show()
    qtbot.waitExposed(panel)
    panel.begin_run(RunConfig(workload="generate", prompt="", device="cpu", batch=1))
    words = itertools.cycle(WORDS)
    batch = "".join(next(words) for _ in range(TOKENS_PER_S // 3))
    count = 1_000_000 // len(batch) + 1
    bar = panel.text_output.verticalScrollBar()

    def cpu_ms(work: Callable[[], object]) -> float:
        begun_s = time.thread_time()
        work()
        QApplication.processEvents()
        return (time.thread_time() - begun_s) * 1e3

    def scrolled() -> None:
        for part in range(10):
            bar.setValue(bar.maximum() * part // 10)
            QApplication.processEvents()
        bar.setValue(bar.maximum())

    took_ms, early_ms = [], 0.0
    for index in range(count):
        took_ms.append(cpu_ms(lambda: panel.append_text(batch)))
        if index == count // 10:
            early_ms = cpu_ms(scrolled)
    late_ms = cpu_ms(scrolled)
    # Once the screen is full, after three tenths, each line that comes takes one away: from there on all cost the same.
    full_ms = np.median(took_ms[count * 4 // 10 : count * 5 // 10])
    assert np.median(took_ms[-count // 10 :]) < 2 * full_ms
    assert full_ms < 4 * np.median(took_ms[: count // 10])
    assert late_ms < 4 * early_ms
    assert len(panel.text()) >= 1_000_000
    assert panel.text_output.blockCount() <= MOST_BLOCKS
