"""Bundled files; in a checkout they lie in the top-level folder ``assets/``.

Find one by ``importlib.resources.files("explorer.assets") / name``. An installed copy has the files here and
no need of this module.
"""

from importlib.machinery import SourceFileLoader
from pathlib import Path

_FOLDER = Path(__file__).resolve().parents[2] / "assets"

__path__ = [str(_FOLDER)]
# importlib.resources looks beside the file that the loader names, and not in __path__.
if __spec__ is not None and isinstance(__spec__.loader, SourceFileLoader):
    __spec__.loader.path = str(_FOLDER / "__init__.py")
