"""From the menu to a CSV file: asks where, writes, and says what came of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtWidgets import QFileDialog, QWidget

from explorer.config import RunConfig
from explorer.experiments.script import FILE_NAMES, script
from explorer.gui.config_file import from_toml, to_toml
from explorer.gui.file_writer import FileWriter
from explorer.gui.language import from_below, language, tr
from explorer.gui.message_bar import MessageBar
from explorer.gui.picture import picture
from explorer.optimizations.registry import baseline_levels
from explorer.results.atomic import replaced
from explorer.results.blocks import in_words
from explorer.results.comparison_export import write_comparison
from explorer.results.comparison_record import ComparisonRecord, comparison_cells
from explorer.results.export import Cell, segment_rows, write_samples, write_table
from explorer.results.home import home
from explorer.results.log import RunLog
from explorer.results.report import write_report
from explorer.results.step_profile import kept_file

Prepare = Callable[[Path], Callable[[], object]]
"""Given where to, takes from the window what is to be written; what it returns writes it, on another thread."""


class Exporter:
    """Writes ``log`` to files that the person names. What fails is said in ``messages``; the log stays as it is."""

    def __init__(self, log: RunLog, messages: MessageBar, parent: QWidget, writer: FileWriter) -> None:
        self._log = log
        self._messages = messages
        self._parent = parent
        self._writer = writer
        self._folder = home()

    def export_segments(self) -> None:
        """One row a segment."""
        self._export(
            tr("Export runs"),
            "runs.csv",
            lambda path: partial(write_table, path, segment_rows(self._log.runs, toggles=baseline_levels())),
            tr("one row a segment"),
        )

    def export_steps(self) -> None:
        """One row a step."""
        self._export(
            tr("Export steps"),
            "steps.csv",
            lambda path: partial(write_samples, path, [run.as_of_now() for run in self._log.runs]),
            tr("one row a step"),
        )

    def export_script(self, config: RunConfig) -> None:
        """A script in plain PyTorch that does what ``config`` does."""
        try:
            source = script(config)
        except ValueError as error:
            self._messages.show_message(tr("Not exported: {why}.", why=from_below(str(error))), severity="warning")
            return

        self._save(
            tr("Export as a script"),
            FILE_NAMES[config.workload],
            _text(source),
            tr("the script"),
            filters="Python (*.py)",
        )

    def save_picture(self, view: QWidget) -> None:
        """A picture of ``view``."""
        self._save(
            tr("Save a picture"),
            "view.png",
            lambda path: partial(_put, path, picture(view, path)),
            tr("the picture"),
            filters="PNG (*.png);;SVG (*.svg)",
        )

    def model_folder(self) -> str:
        """The new folder that the person names for a model; empty where none."""
        chosen, _ = QFileDialog.getSaveFileName(
            self._parent, tr("Save the model as a new folder"), str(self._folder / "model")
        )
        return chosen

    def served_file(self) -> str:
        """The file that the person names for a model to be served; empty where none."""
        chosen, _ = QFileDialog.getSaveFileName(
            self._parent,
            tr("Export the model for serving"),
            str(self._folder / "model.pt2"),
            "torch.export (*.pt2);;ONNX (*.onnx)",
        )
        return chosen

    def save_settings(self, config: RunConfig) -> None:
        """All settings as TOML."""

        self._save(
            tr("Save the settings"),
            "settings.toml",
            _text(to_toml(config)),
            tr("the settings"),
            filters="TOML (*.toml)",
        )

    def open_settings(self) -> RunConfig | None:
        """The settings in a file that the person names; None where none could be read."""
        chosen, _ = QFileDialog.getOpenFileName(
            self._parent, tr("Open settings"), str(self._folder), tr("TOML (*.toml);;All files (*)")
        )
        if not chosen:
            return None
        try:
            config = from_toml(Path(chosen).read_text("utf-8"))
        except (ValueError, OSError) as error:
            self._messages.show_message(tr("Not opened: {why}", why=from_below(str(error))), severity="problem")
            return None
        self._folder = Path(chosen).parent
        return config

    def save_text(self, text: str) -> None:
        """A generated text with its prompt, as UTF-8."""

        filters = tr("Text (*.txt);;All files (*)")
        self._save(tr("Save the text"), "text.txt", _text(text), tr("the text"), filters=filters)

    def save_memory(self, text: str) -> None:
        """What a summary of memory says, as UTF-8."""

        title, filters = tr("Save the memory summary"), tr("Text (*.txt);;All files (*)")
        self._save(title, "memory.txt", _text(text), tr("the memory summary"), filters=filters)

    def export_comparison(self, comparison: ComparisonRecord | None) -> None:
        """One row, the same as ``main.py compare`` writes; or a page of Markdown."""
        result = None if comparison is None else comparison.result()
        if comparison is None or result is None:
            self._messages.show_message(tr("There is nothing to export yet: compare first."), severity="warning")
            return
        arms = {run.uid: run for run in self._log.runs}
        a, b = (arms[uid] for uid in comparison.run_uids)
        row = comparison_cells(comparison, result, (a, b), toggles=baseline_levels())
        words = in_words(result, a=comparison.names[0], b=comparison.names[1])
        self._save(
            tr("Export the comparison"),
            "comparison.csv",
            lambda path: partial(write_comparison, path, row, words=words),
            tr("the comparison"),
            filters="CSV (*.csv);;Markdown (*.md)",
        )

    def export_report(self, comparison: ComparisonRecord | None) -> None:
        """All runs of the table that have begun a step, with the last comparison, as one HTML file."""
        records = [run for run in self._log.runs if run.segments]
        if not records:
            self._messages.show_message(tr("There is nothing to export yet: start a run first."), severity="warning")
            return
        self._save(
            tr("Export a report"),
            "report.html",
            lambda path: partial(
                write_report,
                path,
                [record.as_of_now() for record in records],
                [] if comparison is None else [copy.deepcopy(comparison)],
                toggles=baseline_levels(),
                say=tr,
                language=language().replace("_", "-"),
            ),
            tr("the report"),
            filters="HTML (*.html)",
        )

    def export_lab(self, rows: Sequence[Mapping[str, Cell]]) -> None:
        """One row a variant, the same as ``main.py kernels`` writes."""
        self._export_rows(tr("Export the lab"), "lab.csv", rows, tr("the lab's table"))

    def export_series(self, kind: str, rows: Sequence[Mapping[str, Cell]]) -> None:
        """The rows of a ladder, sweep or attribution, the same as the command line writes."""
        self._export_rows(tr("Export the table"), f"{kind}.csv", rows, tr("the table"))

    def export_profile(self, rows: Sequence[Mapping[str, Cell]]) -> None:
        """A row a part, a kind and a kernel, the same as ``main.py profile`` writes."""
        self._export_rows(tr("Export the profile"), "profile.csv", rows, tr("the profile"))

    def save_trace(self, kept: str) -> None:
        """The Chrome trace that a profile left in ``kept``."""
        filters = tr("Chrome trace (*.json.gz *.json)")
        self._save(
            tr("Save the Chrome trace"),
            "step.json.gz",
            lambda path: partial(kept_file, Path(kept), path),
            tr("the trace"),
            filters=filters,
        )

    def save_memory_snapshot(self, kept: str) -> None:
        """The allocator's record that a profile left in ``kept``."""
        self._save(
            tr("Save the memory snapshot"),
            "memory.pickle",
            lambda path: partial(kept_file, Path(kept), path),
            tr("the snapshot"),
            filters="Pickle (*.pickle)",
        )

    def _export_rows(self, title: str, name: str, rows: Sequence[Mapping[str, Cell]], what: str) -> None:
        if not rows:
            self._messages.show_message(tr("There is nothing to export yet: measure first."), severity="warning")
            return
        self._save(title, name, lambda path: partial(write_table, path, rows), what, filters="CSV (*.csv)")

    def _export(self, title: str, name: str, prepare: Prepare, what: str) -> None:
        if not any(run.segments for run in self._log.runs):
            self._messages.show_message(tr("There is nothing to export yet: start a run first."), severity="warning")
            return
        self._save(title, name, prepare, what, filters="CSV (*.csv)")

    def _save(self, title: str, name: str, prepare: Prepare, what: str, *, filters: str) -> None:
        chosen, _ = QFileDialog.getSaveFileName(self._parent, title, str(self._folder / name), filters)
        if not chosen:
            return
        path = Path(chosen)
        try:
            write = prepare(path)
        except (ValueError, RuntimeError, OSError) as error:
            self._tell(path, what, str(error))
            return
        if not self._writer.write(write, lambda why: self._tell(path, what, why)):
            self._messages.show_message(tr("Writing {what} to {path}…", what=what, path=path), severity="hint")

    def _tell(self, path: Path, what: str, why: str | None) -> None:
        if why is not None:
            self._messages.show_message(tr("Not exported: {why}", why=from_below(why)), severity="problem")
            return
        self._folder = path.parent
        self._messages.show_message(tr("Exported {what} to {path}.", what=what, path=path), severity="hint")


def _text(text: str) -> Prepare:
    """To write ``text`` as UTF-8."""
    return lambda path: partial(_put, path, text.encode())


def _put(path: Path, content: bytes) -> None:
    with replaced(path) as file:
        file.write(content)
