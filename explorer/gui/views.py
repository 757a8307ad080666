"""The middle of the window: views that share one place, their tabs, and what stands beside the tabs."""

from __future__ import annotations

from PySide6.QtWidgets import QHBoxLayout, QStackedWidget, QTabBar, QVBoxLayout, QWidget

from explorer.gui.language import tr

ROW_HEIGHT_PX = 34


class Views(QWidget):
    """Tabs over a stack. A QTabWidget would cut what stands in its corner to the height of its tabs."""

    def __init__(self, beside: QWidget, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._tabs = QTabBar()
        self._tabs.setObjectName("view_tabs")
        self._tabs.setDrawBase(False)
        self._tabs.setExpanding(False)
        self._tabs.setUsesScrollButtons(True)  # what stands beside them must not lie over them
        self._stack = QStackedWidget()
        self._stack.setObjectName("views")
        self._tabs.currentChanged.connect(self._stack.setCurrentIndex)
        row = QHBoxLayout()
        row.setContentsMargins(4, 4, 4, 0)
        row.setSpacing(8)
        row.addWidget(self._tabs)
        row.addWidget(beside, 1)
        head = QWidget()
        head.setObjectName("view_row")
        head.setFixedHeight(ROW_HEIGHT_PX)
        head.setLayout(row)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(head)
        column.addWidget(self._stack, 1)

    def add(self, view: QWidget, title: str) -> None:
        """Add ``view`` as the last one; ``title``: an English literal."""
        self._stack.addWidget(view)
        self._tabs.setTabData(self._tabs.addTab(tr(title)), title)

    def show_view(self, view: QWidget) -> None:
        """Bring ``view`` to the front."""
        self._tabs.setCurrentIndex(self._stack.indexOf(view))

    def titles(self) -> list[str]:
        """The title of every view in English, in the order of the tabs."""
        return [self._tabs.tabData(index) for index in range(self._tabs.count())]

    def reword(self) -> None:
        """Show the titles in the language of the moment."""
        for index, title in enumerate(self.titles()):
            self._tabs.setTabText(index, tr(title))

    def current(self) -> QWidget:
        """The view in front."""
        return self._stack.currentWidget()

    def show_number(self, index: int) -> None:
        """Bring the view of the tab ``index`` to the front."""
        self._tabs.setCurrentIndex(index)
