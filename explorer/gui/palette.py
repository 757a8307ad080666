"""Colours, line styles and number formats that curves, tables and text share. Knows no widget.

Source: Okabe & Ito 2008, "Color Universal Design": eight colours that colour-blind people tell apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QFont, QFontDatabase

from explorer.gui.language import later
from explorer.results.flops import Utilization

TEXT_CONTRAST = 4.5
"""Least contrast of text against its background. Source: WCAG 2.2, success criterion 1.4.3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """The colours of one look, as #rrggbb."""

    background: str
    """Of windows and plots."""
    base: str
    """Of tables and text fields."""
    text: str
    muted: str
    """Captions and axis labels; still readable."""
    grid: str
    """Frames, grid lines and hatching: not text."""
    problem: str


LIGHT = Theme(background="#f6f7f8", base="#ffffff", text="#1c2126", muted="#56606b", grid="#c3c9cf", problem="#b3261e")
DARK = Theme(background="#1d2125", base="#16191c", text="#e3e7ea", muted="#9aa5b0", grid="#434b53", problem="#ff8a80")

# Orange is left to comparison's B, and black and sky blue to nobody: they vanish on one of the two backgrounds
# or sit too close to blue. What is left serves five runs; further ones reuse the colours with another dash.
_RUN_COLOURS = ("#0072b2", "#009e73", "#cc79a7", "#d55e00", "#f0e442")
_RUN_STYLES = (Qt.PenStyle.SolidLine, Qt.PenStyle.DashLine, Qt.PenStyle.DotLine, Qt.PenStyle.DashDotLine)
_A_COLOUR = "#6c8cab"
_B_COLOUR = "#e69f00"
A_STYLE = Qt.PenStyle.SolidLine
B_STYLE = Qt.PenStyle.DashLine


def theme(dark: bool) -> Theme:
    return DARK if dark else LIGHT


def contrast(one: QColor, other: QColor) -> float:
    """WCAG contrast ratio of two colours, 1 to 21. Source: WCAG 2.2, "contrast ratio"."""

    def luminance(colour: QColor) -> float:
        linear = [
            c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
            for c in (colour.redF(), colour.greenF(), colour.blueF())
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@cache
def _readable(colour: str, dark: bool) -> str:
    """``colour`` moved towards black or white by as little as makes it readable as text in that look."""
    look = theme(dark)
    towards = QColor("white" if dark else "black")
    start = QColor(colour)
    mixed = start
    for percent in range(101):
        share = percent / 100
        mixed = QColor.fromRgbF(
            start.redF() + (towards.redF() - start.redF()) * share,
            start.greenF() + (towards.greenF() - start.greenF()) * share,
            start.blueF() + (towards.blueF() - start.blueF()) * share,
        )
        if all(contrast(QColor(mixed.name()), QColor(c)) >= TEXT_CONTRAST for c in (look.background, look.base)):
            break
    return mixed.name()


def run_colour(run_id: int, dark: bool) -> QColor:
    """The colour of run ``run_id`` everywhere it is drawn or named."""
    return QColor(_readable(_RUN_COLOURS[run_id % len(_RUN_COLOURS)], dark))


def run_style(run_id: int) -> Qt.PenStyle:
    """The dash of run ``run_id``: changes when the colours begin again."""
    return _RUN_STYLES[run_id // len(_RUN_COLOURS) % len(_RUN_STYLES)]


def a_colour(dark: bool) -> QColor:
    """Of the first arm of a comparison: grey-blue, never a run's."""
    return QColor(_readable(_A_COLOUR, dark))


def b_colour(dark: bool) -> QColor:
    """Of the second arm of a comparison: orange, never a run's."""
    return QColor(_readable(_B_COLOUR, dark))


def blend(colour: QColor, background: QColor, share: float) -> QColor:
    """Opaque mixture with ``share`` of ``colour``: tints that do not depend on what lies below."""
    return QColor.fromRgbF(
        background.redF() + (colour.redF() - background.redF()) * share,
        background.greenF() + (colour.greenF() - background.greenF()) * share,
        background.blueF() + (colour.blueF() - background.blueF()) * share,
    )


# ---- numbers

NOTHING = "–"
"""Stands where a number was not measured."""


def _four_figures(value: float) -> str:
    """At least three, at most four significant figures without an exponent: 0.590, 9.99, 47.0, 174.4."""
    magnitude = abs(value)
    if 0 < magnitude < 0.9995:
        return f"{value:.3f}"
    if magnitude < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if magnitude < 999.95 else f"{value:,.0f}"


def si_number(value: float) -> str:
    """``value`` with an SI prefix and no unit: 820, 9.99k, 174.4k, 1.20M. NaN gives a dash."""
    if not math.isfinite(value):
        return NOTHING
    for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale * 0.99995:
            return _four_figures(value / scale) + prefix
    return _four_figures(value)


def gib(size_bytes: float) -> str:
    """Memory in GiB, or MiB below one: ``8.91 GiB``, ``512.0 MiB``. Negative means not measured: a dash."""
    if not size_bytes >= 0:
        return NOTHING
    if size_bytes < 2**30:
        return f"{_four_figures(size_bytes / 2**20)} MiB"
    return f"{_four_figures(size_bytes / 2**30)} GiB"


def milliseconds(value_ms: float) -> str:
    """A time in ms, such as ``47.0 ms``; NaN gives a dash."""
    return f"{_four_figures(value_ms)} ms" if math.isfinite(value_ms) else NOTHING


PUBLISHED_MFU = later("MFU, published peak")


def mfu_words(done: Utilization) -> tuple[str, str]:
    """(number, unit) of a utilization: the share of the ceiling where one is known, else TFLOP/s."""
    share = done.published if math.isnan(done.measured) else done.measured
    if math.isfinite(share):
        return f"{share:.1%}", "MFU" if math.isfinite(done.measured) else PUBLISHED_MFU
    return (f"{_four_figures(done.tflop_per_s)}" if math.isfinite(done.tflop_per_s) else NOTHING), "TFLOP/s"


def tabular(font: QFont) -> QFont:
    """``font`` with figures of one width, so that a changing number does not move its neighbours."""
    fixed = QFont(font)
    fixed.setFeature(QFont.Tag("tnum"), 1)
    return fixed


def monospace(point_size: float) -> QFont:
    """The system's fixed-width font at ``point_size``."""
    font = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
    font.setPointSizeF(point_size)
    return font
