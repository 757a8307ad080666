"""A line of a live plot: set as a whole ten times a second, and never asked how far its data reach."""

from __future__ import annotations

from typing import Any

import pyqtgraph as pg
from PySide6.QtCore import QRectF


class Curve(pg.PlotCurveItem):  # type: ignore[misc]  # pyqtgraph has no types
    """As pyqtgraph's, but it takes the whole of what its view shows for its own place.

    Where the ranges of a plot are set by hand nobody else needs the extent of the data, and to look for it anew after
    each ``setData`` took more of a redraw than the points themselves.
    """

    def __init__(self) -> None:
        super().__init__(antialias=False, connect="finite", skipFiniteCheck=False)

    def boundingRect(self) -> QRectF:
        view = self.getViewBox()
        # Not the item's own viewRect: PlotCurveItem in pyqtgraph 0.14 keeps the one of the first range.
        return QRectF() if view is None else view.viewRect()

    def setData(self, *args: Any, **kargs: Any) -> None:
        """As pyqtgraph's; an empty line that stays empty costs nothing."""
        if len(args) == 2 and not kargs and not len(args[1]) and (self.yData is None or not len(self.yData)):
            return
        super().setData(*args, **kargs)
