"""Light and dark: one palette each over Qt's Fusion style, and the few style rules that a palette cannot say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QGuiApplication, QPalette
from PySide6.QtWidgets import QApplication

from explorer.gui.palette import theme
from explorer.gui.settings import ThemeChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class Accents:
    """What the window needs besides the panels' colours. Text colours reach 4.5:1 on window, base and raised."""

    raised: str
    """Buttons, headers, the other rows of a table."""
    disabled: str
    accent: str
    on_accent: str
    go: str
    """Text of the Start button."""
    warning: str
    """Text of what needs attention."""


ACCENTS: Mapping[bool, Accents] = MappingProxyType(
    {
        False: Accents(
            raised="#eceef1", disabled="#8a919c", accent="#0b5cad", on_accent="#ffffff", go="#0b6e4f", warning="#8a4b00"
        ),
        True: Accents(
            raised="#282e34", disabled="#747d88", accent="#5aa9f0", on_accent="#0d1116", go="#3fbf8f", warning="#f0b25a"
        ),
    }
)


def is_dark(choice: ThemeChoice) -> bool:
    """Whether ``choice`` means dark now; the system's word is taken where it says anything."""
    if choice == "system":
        return QGuiApplication.styleHints().colorScheme() == Qt.ColorScheme.Dark
    return choice == "dark"


def palette(*, dark: bool) -> QPalette:
    """The whole palette of one look."""
    look, more = theme(dark), ACCENTS[dark]
    result = QPalette()
    role = QPalette.ColorRole
    for target, colour in (
        (role.Window, look.background),
        (role.WindowText, look.text),
        (role.Base, look.base),
        (role.AlternateBase, more.raised),
        (role.Text, look.text),
        (role.PlaceholderText, look.muted),
        (role.Button, more.raised),
        (role.ButtonText, look.text),
        (role.BrightText, look.problem),
        (role.Highlight, more.accent),
        (role.HighlightedText, more.on_accent),
        (role.Link, more.accent),
        (role.LinkVisited, more.accent),
        (role.ToolTipBase, more.raised),
        (role.ToolTipText, look.text),
        (role.Light, more.raised),
        (role.Midlight, more.raised),
        (role.Mid, look.grid),
        (role.Dark, look.grid),
        (role.Shadow, look.grid),
    ):
        result.setColor(target, QColor(colour))
    for target in (role.WindowText, role.Text, role.ButtonText):
        result.setColor(QPalette.ColorGroup.Disabled, target, QColor(more.disabled))
    result.setColor(QPalette.ColorGroup.Disabled, role.Highlight, QColor(look.grid))
    return result


def style_rules(*, dark: bool) -> str:
    """Rules for what a palette has no role for: captions, headings, the two buttons, messages."""
    look, more = theme(dark), ACCENTS[dark]
    return f"""
    QLabel[role="caption"] {{ color: {look.muted}; font-size: 8pt; }}
    QLabel[role="heading"] {{ color: {look.muted}; font-size: 8pt; font-weight: bold; }}
    QLabel[role="verdict"] {{ font-size: 11pt; font-weight: bold; }}
    QLabel[role="muted"] {{ color: {look.muted}; }}
    QLabel[role="small"] {{ color: {look.muted}; font-size: 8pt; }}
    QLabel[severity="warning"] {{ color: {more.warning}; }}
    QLabel[severity="problem"] {{ color: {look.problem}; }}
    QCheckBox::indicator:unchecked {{ border: 1px solid {look.muted}; border-radius: 2px; background: {look.base}; }}
    QWidget#run_bar {{ border-bottom: 1px solid {look.grid}; }}
    QWidget#message_bar {{ background: {look.base}; border-bottom: 1px solid {look.grid}; }}
    QPushButton#start_button:enabled {{ color: {more.go}; font-weight: bold; }}
    QPushButton#stop_button:enabled {{ color: {look.problem}; font-weight: bold; }}
    QToolTip {{ color: {look.text}; background: {more.raised}; border: 1px solid {look.grid}; }}
    QMainWindow::separator {{ background: {look.grid}; width: 1px; height: 1px; }}
    QMainWindow::separator:hover {{ background: {more.accent}; }}
    QToolBar {{ border: none; padding: 0px; margin: 0px; spacing: 0px; }}
    QDockWidget {{ color: {look.muted}; font-size: 8pt; font-weight: bold; }}
    QDockWidget::title {{ padding: 6px 12px; background: {look.background}; }}
    QStatusBar::item {{ border: none; }}
    QStatusBar {{ border-top: 1px solid {look.grid}; }}
    """


def apply(app: QApplication, *, dark: bool) -> None:
    """Dress the whole application, unless it is dressed so already.

    A style sheet that is set again makes Qt restyle every widget of the process, those on their way out included:
    a second window in one process was seen to die in that. The style goes by name, so that Qt alone owns it.
    """
    rules = style_rules(dark=dark)
    if app.styleSheet() == rules:
        return
    if not app.styleSheet():
        app.setStyle("Fusion")
    app.setPalette(palette(dark=dark))
    app.setStyleSheet(rules)
