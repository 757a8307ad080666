"""The window: panels around the curves, menus, and what is remembered of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QCloseEvent, QGuiApplication
from PySide6.QtWidgets import QApplication, QDockWidget, QMainWindow, QTabWidget, QToolBar, QWidget

from explorer.config import RunConfig
from explorer.gui import help_windows, speech, theme
from explorer.gui.bridge import Bridge, EarlyWorker
from explorer.gui.command_palette import CommandPalette
from explorer.gui.compare_control import CompareControl
from explorer.gui.compare_panel import ComparePanel
from explorer.gui.diagnosis_control import DiagnosisControl
from explorer.gui.diagnosis_panel import DiagnosisPanel
from explorer.gui.exporting import Exporter
from explorer.gui.file_writer import FileWriter
from explorer.gui.intent import Intent
from explorer.gui.lab_control import LabControl
from explorer.gui.lab_panel import LabPanel
from explorer.gui.language import later, tr
from explorer.gui.memory_control import MemoryControl
from explorer.gui.menus import Menus
from explorer.gui.message_bar import MessageBar
from explorer.gui.model_export_control import ModelExportControl
from explorer.gui.overview_panel import OverviewPanel
from explorer.gui.panels import Panels
from explorer.gui.pin_bar import PinBar
from explorer.gui.pins import Pins
from explorer.gui.plots_panel import PlotsPanel
from explorer.gui.preset_bar import PRESET_WORDS
from explorer.gui.preset_control import PresetControl
from explorer.gui.profile_control import ProfileControl
from explorer.gui.run_bar import RunBar
from explorer.gui.run_control import RunControl
from explorer.gui.runs_table import RunsTable
from explorer.gui.series_control import SeriesControl
from explorer.gui.series_panel import SeriesPanel
from explorer.gui.settings import LanguageChoice, Settings, ThemeChoice, default_config
from explorer.gui.status_bar import StatusBar
from explorer.gui.stored_control import StoredControl
from explorer.gui.stored_runs import StoredRuns
from explorer.gui.text_panel import TextPanel
from explorer.gui.toggles_panel import TogglesPanel
from explorer.gui.views import Views
from explorer.gui.wording import keep, retranslate
from explorer.optimizations.base import Optimization
from explorer.results.effect import NOT_YET, effect
from explorer.results.log import RunLog

DEFAULT_SIZE_PX = (1440, 900)
SMALLEST_SIZE_PX = (1080, 640)
SIDE_WIDTHS_PX = (288, 304)
TABLE_HEIGHT_PX = 148


class MainWindow(QMainWindow):
    """The whole of it. ``open_worker`` is called once the window is on the screen."""

    def __init__(
        self,
        settings: Settings,
        *,
        store: Path | None,
        in_process: bool,
        cuda_expected: bool,
        worker: EarlyWorker | None = None,
    ) -> None:
        """``store``: the file that runs are kept in; None: they are not kept. ``worker``: one that runs already."""
        super().__init__()
        self.setObjectName("main_window")
        self.setWindowTitle("GPT-2 Optimization Explorer")
        self.setMinimumSize(*SMALLEST_SIZE_PX)
        self.resize(*DEFAULT_SIZE_PX)
        self._settings = settings
        self._closed = False
        remembered = settings.config()
        config = remembered or default_config(cuda=cuda_expected)

        self.log = RunLog()
        self.intent = Intent(config, self)
        self.pins = Pins(self)
        self.stored = StoredRuns(store, self)
        self.bridge = Bridge(self.log, self.stored.recorder, in_process=in_process, worker=worker, parent=self)
        self.messages = MessageBar()
        runs = RunsTable(self.log)
        self.panels = Panels(
            run_bar=RunBar(),
            toggles=TogglesPanel(config),
            plots=PlotsPanel(self.log),
            pins=PinBar(),
            compare=ComparePanel(),
            text=TextPanel(),
            diagnosis=DiagnosisPanel(),
            overview=OverviewPanel(self.log, runs.selected, runs.colour, runs.dashes),
            lab=LabPanel(),
            series=SeriesPanel(),
            runs=runs,
            status=StatusBar(),
        )
        self._lay_out()
        self.control = RunControl(self.intent, self.bridge, self.panels, self.messages, untouched=remembered is None)
        self.comparing = CompareControl(
            self.pins,
            self.intent,
            self.bridge,
            self.panels,
            self.messages,
            self.log,
            self.stored.recorder,
            show_panel=lambda: self._views.show_view(self.panels.compare),
        )
        self._writer = FileWriter(self)
        self.lab = LabControl(
            self.panels.lab,
            self.bridge,
            self.messages,
            self.log,
            folder=None if store is None else store.parent,
            writer=self._writer,
            wanted_device=lambda: self.intent.config.device,
            show_panel=lambda: self._views.show_view(self.panels.lab),
        )
        self.diagnosing = DiagnosisControl(
            self.panels.diagnosis,
            self.intent,
            self.bridge,
            runs,
            self.messages,
            self.log,
            device=self.control.device,
            show_panel=lambda: self._bring_up(self._diagnosis_dock),
        )
        self.panels.series.take(settings.series())
        self.series = SeriesControl(
            self.panels.series,
            self.intent,
            self.bridge,
            self.messages,
            self.log,
            self.stored.recorder,
            folder=None if store is None else store.parent,
            writer=self._writer,
            show_panel=lambda: self._views.show_view(self.panels.series),
            runs_changed=runs.refresh,
        )
        self.presets = PresetControl(
            self.panels.toggles.presets,
            self.intent,
            self.messages,
            own=settings.presets(),
            remember=settings.remember_presets,
            device=self.control.device,
        )
        self.bridge.worker_ready.connect(self.presets.show_current)
        details = self.panels.toggles.details
        details.measured = self._measured
        self.bridge.run_ended.connect(lambda _: details.reword())
        self.bridge.segment_started.connect(lambda _: details.reword())
        details.reword()
        self.storing = StoredControl(
            self.stored,
            self.log,
            self.bridge,
            self.panels,
            self.messages,
            self,
            diagnose=self.diagnosing.show_run,
        )
        self._theme: ThemeChoice = settings.theme()
        self._language: LanguageChoice = settings.language()
        self._build_menus()
        self.control.state_changed.connect(self._show_state)
        self.diagnosing.changed.connect(self._show_state)
        self._diagnosis_dock.visibilityChanged.connect(self.diagnosing.refresh)
        self.intent.changed.connect(self._show_state)
        self.intent.changed.connect(self._show_fitting_dock)
        self._show_state()
        self._default_layout = self.saveState()
        geometry, docks = settings.layout()
        self.restoreGeometry(geometry)
        self.restoreState(docks)
        self._apply_theme()
        QGuiApplication.styleHints().colorSchemeChanged.connect(self._apply_theme)

    def open_worker(self) -> None:
        """Start the worker, whose first word is worker_ready, and open the file of runs."""
        if not self._closed:
            self.bridge.open()
            self.stored.open()

    def set_theme(self, choice: ThemeChoice) -> None:
        """Dress the window as ``choice`` says, and remember it."""
        self._theme = choice
        self._settings.remember_theme(choice)
        self._apply_theme()

    def set_language(self, choice: LanguageChoice) -> None:
        """Say everything in the language that ``choice`` means, and remember it; runs go on.

        Where this machine has no font for it the window stays as it is, and says what to install.
        """
        wanted = speech.spoken(choice)
        lacking = speech.missing_font(wanted)
        if lacking is not None:
            self._menus.show_language(self._language)
            self.messages.show_message(lacking, severity="warning")
            return
        self._language = choice
        self._settings.remember_language(choice)
        self._menus.show_language(choice)
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        speech.speak(app, wanted)
        retranslate(self)
        self._views.reword()
        for part in (
            self.panels.toggles,
            self.panels.plots,
            self.panels.overview,
            self.panels.runs,
            self.panels.status,
            self.panels.text.pair,
            self.control,
            self.presets,
            self.comparing,
            self.lab,
            self.diagnosing,
            self.series,
            self.memory,
            self.profiling,
            self.storing,
        ):
            part.reword()
        for text in self.findChildren(help_windows.TextWindow):
            text.reword()

    def closeEvent(self, event: QCloseEvent) -> None:
        if not self._closed:
            self._closed = True
            self._settings.remember_config(self.intent.config)
            self._settings.remember_series(self.panels.series.values())
            self._settings.remember_layout(self.saveGeometry(), self.saveState())
            self._settings.save()
            self.hide()  # at once, while the worker takes its last second
            self.storing.close()
            self.bridge.close()
            self._writer.close()
            self.profiling.close()
            self.stored.close()
        super().closeEvent(event)

    def _lay_out(self) -> None:
        self._strip("run_toolbar", self.panels.run_bar)
        self.addToolBarBreak()
        self._strip("message_toolbar", self.messages)
        self._toggles_dock = self._dock("toggles_dock", later("Optimizations"), self.panels.toggles)
        self._views = Views(self.panels.pins)
        self._views.add(self.panels.plots, later("Curves"))
        self._views.add(self.panels.compare, later("Compare"))
        self._views.add(self.panels.overview, later("Overview"))
        self._views.add(self.panels.lab, later("Lab"))
        self._views.add(self.panels.series, later("Series"))
        self.setCentralWidget(self._views)
        self._text_dock = self._dock("text_dock", later("Text"), self.panels.text)
        self._diagnosis_dock = self._dock("diagnosis_dock", later("Diagnosis"), self.panels.diagnosis)
        self._runs_dock = self._dock("runs_dock", later("Runs"), self.panels.runs)
        self.setStatusBar(self.panels.status)
        # The toggles keep their whole height; the table needs the width more than the text needs the height.
        self.setCorner(Qt.Corner.BottomLeftCorner, Qt.DockWidgetArea.LeftDockWidgetArea)
        self.setCorner(Qt.Corner.BottomRightCorner, Qt.DockWidgetArea.BottomDockWidgetArea)
        self.addDockWidget(Qt.DockWidgetArea.LeftDockWidgetArea, self._toggles_dock)
        self.addDockWidget(Qt.DockWidgetArea.RightDockWidgetArea, self._text_dock)
        self.addDockWidget(Qt.DockWidgetArea.BottomDockWidgetArea, self._runs_dock)
        self.setTabPosition(Qt.DockWidgetArea.AllDockWidgetAreas, QTabWidget.TabPosition.North)
        self.tabifyDockWidget(self._text_dock, self._diagnosis_dock)
        self._bring_up(self._diagnosis_dock if self.intent.config.workload == "train" else self._text_dock)
        self._size_docks()

    def _strip(self, name: str, content: QWidget) -> None:
        """A row over the whole width that neither moves nor closes."""
        strip = QToolBar()
        strip.setObjectName(name)
        strip.setMovable(False)
        strip.setContextMenuPolicy(Qt.ContextMenuPolicy.PreventContextMenu)
        strip.toggleViewAction().setVisible(False)
        strip.addWidget(content)
        self.addToolBar(strip)

    def _dock(self, name: str, title: str, content: QWidget) -> QDockWidget:
        dock = QDockWidget()
        keep(dock.setWindowTitle, title)
        dock.setObjectName(name)
        dock.setWidget(content)
        return dock

    def _measured(self, optimization: Optimization) -> str:
        """What a toggle was seen to do in this session."""
        seen = effect(self.log.runs, optimization.name, optimization.levels[0].id)
        return tr(NOT_YET) if seen is None else seen.told(tr)

    def _show_fitting_dock(self, new: RunConfig, old: RunConfig) -> None:
        """Of the text and the diagnosis, which share a place, the one that the new workload is about."""
        dock = self._diagnosis_dock if new.workload == "train" else self._text_dock
        if new.workload != old.workload and not dock.isHidden():
            dock.raise_()

    def _bring_up(self, dock: QDockWidget) -> None:
        dock.show()
        dock.raise_()

    def _size_docks(self) -> None:
        self.resizeDocks([self._toggles_dock, self._text_dock], list(SIDE_WIDTHS_PX), Qt.Orientation.Horizontal)
        self.resizeDocks([self._runs_dock], [TABLE_HEIGHT_PX], Qt.Orientation.Vertical)

    def _build_menus(self) -> None:
        exporter = Exporter(self.log, self.messages, self, self._writer)
        self.panels.compare.export_wanted.connect(lambda: exporter.export_comparison(self.comparing.record))
        self.panels.text.save_wanted.connect(exporter.save_text)
        self.panels.text.history.show_prompts(self._settings.prompts())
        self.panels.text.history.changed.connect(self._settings.remember_prompts)
        self._menus = menus = Menus(self)

        def open_settings() -> None:
            config = exporter.open_settings()
            if config is not None:
                self.control.take(config)

        self.serving = ModelExportControl(self.bridge, self.intent, self.messages)
        menus.add_file(
            open_settings=open_settings,
            save_settings=lambda: exporter.save_settings(self.intent.config),
            save_model=lambda: self.control.save_model(exporter.model_folder),
            export_model=lambda: self.serving.export(exporter.served_file),
            save_picture=lambda: exporter.save_picture(self._views.current()),
            export=exporter.export_segments,
            export_steps=exporter.export_steps,
            export_script=lambda: exporter.export_script(self.intent.config),
            export_report=lambda: exporter.export_report(self.comparing.record),
        )
        menus.add_edit(undo=self.control.undo, redo=self.control.redo)
        bar = self.panels.toggles.presets
        menus.add_presets(names=PRESET_WORDS, take=self.presets.take, save=bar.save, delete=bar.delete)
        self.presets.names_changed.connect(lambda: menus.show_presets(self.presets.names))
        self.presets.current_changed.connect(menus.delete_preset.setEnabled)
        menus.show_presets(self.presets.names)
        menus.delete_preset.setEnabled(False)
        self.memory = MemoryControl(
            self.bridge, self.messages, self, device=self.control.device, save=exporter.save_memory
        )
        self.profiling = ProfileControl(self.intent, self.bridge, exporter, self, device=self.control.device)
        menus.add_run(
            start=self.control.start,
            stop=self.control.stop,
            look_closer=self.diagnosing.look_closer,
            profile=self.profiling.open_and_start,
            summarize_memory=self.memory.summarize,
            empty_cache=self.memory.empty_cache,
        )
        menus.add_runs(open_stored=self.storing.open, take_in=self.storing.take_in)
        menus.add_compare(
            pin_a=lambda: self.comparing.pin(0),
            pin_b=lambda: self.comparing.pin(1),
            swap=self.pins.swap,
            compare=self.comparing.compare,
            copy=self.comparing.copy,
            export=lambda: exporter.export_comparison(self.comparing.record),
        )

        menus.add_series(show=self.series.show)
        self.panels.series.export_wanted.connect(
            lambda kind: exporter.export_series(kind, self.panels.series.pages[kind].rows)
        )

        def export_lab() -> None:
            exporter.export_lab(self.lab.cells)

        self.panels.lab.export_wanted.connect(export_lab)
        menus.add_lab(start=self.lab.start, export=export_lab)
        menus.add_view(
            views=self._views,
            docks=(self._toggles_dock, self._text_dock, self._runs_dock, self._diagnosis_dock),
            freeze=self.panels.plots.set_frozen,
            follow=self.panels.plots.follow,
            theme=self._theme,
            set_theme=self.set_theme,
            reset_layout=self._reset_layout,
        )
        menus.add_languages(language=self._language, set_language=self.set_language)
        menus.add_help(
            commands=lambda: CommandPalette(menus.actions(), self).show(),
            keyboard=lambda: self._show_help(later("Keyboard"), lambda: help_windows.keyboard_html(menus.actions())),
            measured=lambda: self._show_help(later("How is this measured?"), help_windows.measured_html),
            environment=lambda: self._show_help(later("This machine"), self._environment_html),
        )

    def _environment_html(self) -> str:
        return help_windows.environment_html(self.log.environment)

    def _show_help(self, title: str, html: Callable[[], str]) -> None:
        help_windows.TextWindow(title, html, self).show()

    def _show_state(self, *_: object) -> None:
        self._menus.start.setEnabled(not self.bridge.going)
        self._menus.stop.setEnabled(self.bridge.going)
        self._menus.compare.setEnabled(not self.bridge.experimenting)
        self._menus.start_lab.setEnabled(not self.bridge.going)
        self._menus.allow(self._menus.look_closer, self.diagnosing.obstacle())
        self._menus.allow(self._menus.summarize_memory, self.memory.obstacle())
        self._menus.allow(self._menus.empty_cache, self.memory.obstacle_to_emptying())
        self.panels.pins.show_state(comparing=self.comparing.comparing)
        self.lab.show_state()
        self.series.show_state()
        self._menus.undo.setEnabled(self.intent.undo_target is not None)
        self._menus.redo.setEnabled(self.intent.redo_target is not None)
        if self.bridge.going:
            self._settings.remember_config(self.intent.config)

    def _reset_layout(self) -> None:
        self.restoreState(self._default_layout)
        self._size_docks()

    def _apply_theme(self, *_: object) -> None:
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        dark = theme.is_dark(self._theme)
        theme.apply(app, dark=dark)
        self.panels.toggles.forecast.apply_theme(dark)
        self.panels.plots.apply_theme(dark)
        self.panels.pins.apply_theme(dark)
        self.panels.compare.apply_theme(dark)
        self.panels.text.apply_theme(dark)
        self.panels.runs.apply_theme(dark)
        self.panels.overview.apply_theme(dark)
        self.panels.lab.apply_theme(dark)
        self.panels.diagnosis.apply_theme(dark)
        self.panels.series.apply_theme(dark)
        self.profiling.window.apply_theme(dark)
