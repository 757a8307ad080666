"""A view as a picture: PNG at twice its size on the screen, or SVG, whose lines and letters stay sharp."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PySide6.QtCore import QBuffer, QIODevice, QPoint, QRect
from PySide6.QtGui import QPainter, QPixmap
from PySide6.QtSvg import QSvgGenerator
from PySide6.QtWidgets import QGraphicsItem, QGraphicsView, QWidget

PNG_SCALE = 2.0


def picture(view: QWidget, path: Path) -> bytes:
    """``view`` as it stands, in the format that the ending of ``path`` says.

    Raises:
        ValueError: neither .png nor .svg.
    """
    size = view.size()
    drawn = QBuffer()
    drawn.open(QIODevice.OpenModeFlag.WriteOnly)
    match path.suffix.lower():
        case ".png":
            pixmap = QPixmap(size * PNG_SCALE)
            pixmap.setDevicePixelRatio(PNG_SCALE)
            pixmap.fill(view.palette().window().color())
            view.render(pixmap)
            pixmap.save(drawn, "PNG")
        case ".svg":
            generator = QSvgGenerator()
            generator.setOutputDevice(drawn)
            generator.setSize(size)
            generator.setViewBox(QRect(QPoint(0, 0), size))
            generator.setResolution(view.logicalDpiX())  # else letters come out smaller than the room made for them
            generator.setTitle(view.window().windowTitle())
            painter = QPainter()
            painter.begin(generator)
            painter.fillRect(view.rect(), view.palette().window())
            with _drawn_anew(view):
                view.render(painter, QPoint(0, 0))
            painter.end()
        case _:
            raise ValueError(f"{path} ends neither in .png nor in .svg")
    return bytes(drawn.data().data())


@contextmanager
def _drawn_anew(view: QWidget) -> Iterator[None]:
    """Axes keep themselves as bitmaps; within, they are drawn as lines and letters."""
    none = QGraphicsItem.CacheMode.NoCache
    items = [item for plot in view.findChildren(QGraphicsView) for item in plot.items() if item.cacheMode() != none]
    before = [item.cacheMode() for item in items]
    for item in items:
        item.setCacheMode(none)
    try:
        yield
    finally:
        for item, mode in zip(items, before, strict=True):
            item.setCacheMode(mode)
