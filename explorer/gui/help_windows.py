"""Windows of text that can stay open beside the work: keys, how things are measured, the machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from html import escape

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QGuiApplication
from PySide6.QtWidgets import QDialog, QHBoxLayout, QPushButton, QTextBrowser, QVBoxLayout, QWidget

from explorer.gui.language import from_below, tr, without_mnemonic
from explorer.gui.wording import keep
from explorer.results.environment import Environment
from explorer.results.how_measured import HOW_MEASURED


class TextWindow(QDialog):
    """A window of formatted text that does not block the others, with a button that copies all of it."""

    def __init__(self, title: str, html: Callable[[], str], parent: QWidget) -> None:
        """``title``: an English literal; ``html``: the text in the language of the moment."""
        super().__init__(parent)
        self.setObjectName("help_window")
        keep(self.setWindowTitle, title)
        self._html = html
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(640, 520)
        self._browser = browser = QTextBrowser()
        browser.setObjectName("help_text")
        keep(browser.setAccessibleName, title)
        self._copy = copy = QPushButton()
        keep(copy.setText, "Copy")
        copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(browser.toPlainText()))
        close = QPushButton()
        keep(close.setText, "Close")
        keep(close.setAccessibleName, "Close")
        close.clicked.connect(self.close)
        buttons = QHBoxLayout()
        buttons.addStretch(1)
        buttons.addWidget(copy)
        buttons.addWidget(close)
        column = QVBoxLayout(self)
        column.addWidget(browser)
        column.addLayout(buttons)
        self.reword()

    def reword(self) -> None:
        """Show the text in the language of the moment."""
        self._browser.setHtml(self._html())
        self._copy.setAccessibleName(tr("Copy {title}", title=self.windowTitle()))


def keyboard_html(actions: Sequence[QAction]) -> str:
    """Every action that has a shortcut, read from the menus themselves."""
    rows = "".join(
        f"<tr><td><b>{escape(action.shortcut().toString())}</b></td>"
        f"<td>&nbsp;&nbsp;{escape(without_mnemonic(action.text()))}</td></tr>"
        for action in actions
        if not action.shortcut().isEmpty()
    )
    last = tr("Tab and Shift+Tab reach every control.")
    return f"<h3>{tr('Keyboard')}</h3><table cellpadding=4>{rows}</table><p>{last}</p>"


def measured_html() -> str:
    """How each figure comes about."""
    return f"<h3>{tr('How is this measured?')}</h3>" + "".join(f"<p>{tr(words)}</p>" for words in HOW_MEASURED)


def environment_html(environment: Environment | None) -> str:
    """Devices, versions and the judgement on them."""
    if environment is None:
        return f"<p>{tr('The worker has not looked at this machine yet.')}</p>"
    rows = [(f.name, getattr(environment, f.name)) for f in dataclasses.fields(environment)]
    versions = "".join(
        f"<tr><td>{name}</td><td><b>{escape(str(value))}</b></td></tr>"
        for name, value in rows
        if name not in ("devices", "findings") and value is not None
    )
    devices = "".join(
        f"<li><b>{escape(d.name)}</b> ({d.id}), {d.total_memory_bytes / 2**30:.1f} GiB"
        + (", " + tr("compute capability {number}", number="{}.{}".format(*d.capability)) if d.capability else "")
        + "".join(f"<br>{escape(from_below(p))}" for p in (d.triton_problem, d.nvml_problem) if p)
        + "</li>"
        for d in environment.devices
    )
    findings = "".join(f"<li>{tr(f.severity)}: {escape(from_below(f.text))}</li>" for f in environment.findings)
    return (
        f"<h3>{tr('Devices')}</h3><ul>{devices}</ul><h3>{tr('Versions')}</h3><table cellpadding=3>{versions}</table>"
        f"<h3>{tr('Judgement')}</h3><ul>{findings or '<li>' + tr('nothing to remark') + '</li>'}</ul>"
    )
