"""From the menu to a CSV file: asks where, writes, and says what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from PySide6.QtWidgets import QFileDialog, QWidget

from explorer.config import RunConfig
from explorer.experiments.script import FILE_NAMES, script
from explorer.gui.config_file import from_toml, to_toml
from explorer.gui.language import from_below, language, tr
from explorer.gui.message_bar import MessageBar
from explorer.gui.picture import save_picture
from explorer.optimizations.registry import baseline_levels
from explorer.results.atomic import replaced
from explorer.results.blocks import in_words
from explorer.results.comparison_export import write_comparison
from explorer.results.comparison_record import ComparisonRecord, comparison_cells
from explorer.results.export import Cell, text_writer, write_rows, write_samples, write_segments
from explorer.results.log import RunLog
from explorer.results.report import write_report
from explorer.results.step_profile import kept_file


class Exporter:
    """Writes ``log`` to files that the person names. What fails is said in ``messages``; the log stays as it is."""

    def __init__(self, log: RunLog, messages: MessageBar, parent: QWidget) -> None:
        self._log = log
        self._messages = messages
        self._parent = parent
        self._folder = Path.home()

    def export_segments(self) -> None:
        """One row a segment."""
        self._export(
            tr("Export runs"),
            "runs.csv",
            lambda p: write_segments(p, self._log.runs, toggles=baseline_levels()),
            tr("one row a segment"),
        )

    def export_steps(self) -> None:
        """One row a step."""
        self._export(tr("Export steps"), "steps.csv", lambda p: write_samples(p, self._log.runs), tr("one row a step"))

    def export_script(self, config: RunConfig) -> None:
        """A script in plain PyTorch that does what ``config`` does."""
        try:
            source = script(config)
        except ValueError as error:
            self._messages.show_message(tr("Not exported: {why}.", why=from_below(str(error))), severity="warning")
            return

        def write(path: Path) -> None:
            with replaced(path) as file:
                file.write(source.encode())

        self._save(
            tr("Export as a script"), FILE_NAMES[config.workload], write, tr("the script"), filters="Python (*.py)"
        )

    def save_picture(self, view: QWidget) -> None:
        """A picture of ``view``."""
        self._save(
            tr("Save a picture"),
            "view.png",
            lambda path: save_picture(view, path),
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

        def write(path: Path) -> None:
            with replaced(path) as file:
                file.write(to_toml(config).encode())

        self._save(tr("Save the settings"), "settings.toml", write, tr("the settings"), filters="TOML (*.toml)")

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

        def write(path: Path) -> None:
            with replaced(path) as file:
                file.write(text.encode())

        self._save(tr("Save the text"), "text.txt", write, tr("the text"), filters=tr("Text (*.txt);;All files (*)"))

    def save_memory(self, text: str) -> None:
        """What a summary of memory says, as UTF-8."""

        def write(path: Path) -> None:
            with replaced(path) as file:
                file.write(text.encode())

        title, filters = tr("Save the memory summary"), tr("Text (*.txt);;All files (*)")
        self._save(title, "memory.txt", write, tr("the memory summary"), filters=filters)

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
            lambda path: write_comparison(path, row, words=words),
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
            lambda path: write_report(
                path,
                records,
                [] if comparison is None else [comparison],
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
            lambda path: kept_file(Path(kept), path),
            tr("the trace"),
            filters=filters,
        )

    def save_memory_snapshot(self, kept: str) -> None:
        """The allocator's record that a profile left in ``kept``."""
        self._save(
            tr("Save the memory snapshot"),
            "memory.pickle",
            lambda path: kept_file(Path(kept), path),
            tr("the snapshot"),
            filters="Pickle (*.pickle)",
        )

    def _export_rows(self, title: str, name: str, rows: Sequence[Mapping[str, Cell]], what: str) -> None:
        if not rows:
            self._messages.show_message(tr("There is nothing to export yet: measure first."), severity="warning")
            return

        def write(path: Path) -> None:
            with replaced(path) as file, text_writer(file) as text:
                write_rows(text, rows)

        self._save(title, name, write, what, filters="CSV (*.csv)")

    def _export(self, title: str, name: str, write: Callable[[Path], None], what: str) -> None:
        if not any(run.segments for run in self._log.runs):
            self._messages.show_message(tr("There is nothing to export yet: start a run first."), severity="warning")
            return
        self._save(title, name, write, what, filters="CSV (*.csv)")

    def _save(self, title: str, name: str, write: Callable[[Path], None], what: str, *, filters: str) -> None:
        chosen, _ = QFileDialog.getSaveFileName(self._parent, title, str(self._folder / name), filters)
        if not chosen:
            return
        path = Path(chosen)
        try:
            write(path)
        except (ValueError, RuntimeError, OSError) as error:
            self._messages.show_message(tr("Not exported: {why}", why=from_below(str(error))), severity="problem")
            return
        self._folder = path.parent
        self._messages.show_message(tr("Exported {what} to {path}.", what=what, path=path), severity="hint")
