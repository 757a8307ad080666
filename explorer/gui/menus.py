"""Menus: every action of the window, with its key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from PySide6.QtGui import QAction, QActionGroup, QKeySequence
from PySide6.QtWidgets import QDockWidget, QMainWindow, QMenu

from explorer.gui.language import later
from explorer.gui.series_page import Kind
from explorer.gui.settings import LanguageChoice, ThemeChoice
from explorer.gui.views import Views
from explorer.gui.wording import keep

THEMES: tuple[tuple[ThemeChoice, str, str], ...] = (
    ("system", later("As the &system"), "Ctrl+Alt+S"),
    ("light", later("&Light"), "Ctrl+Alt+L"),
    ("dark", later("&Dark"), "Ctrl+Alt+D"),
)
LANGUAGES: tuple[tuple[LanguageChoice, str, str], ...] = (
    ("system", later("As the s&ystem"), "Ctrl+Alt+Y"),
    ("en", "English", "Ctrl+Alt+N"),
    ("zh_CN", "简体中文", "Ctrl+Alt+Z"),
)
FIRST_OWN_KEY, LAST_OWN_KEY = 5, 8
"""Ctrl+Shift with a number calls the person's own presets; the numbers below, those that there always are."""


class Menus:
    """Builds the menu bar of ``window``. Actions that follow a state are attributes."""

    def __init__(self, window: QMainWindow) -> None:
        self._window = window
        self._file = self._menu(later("&File"))
        self._edit = self._menu(later("&Edit"))
        self._run = self._menu(later("&Run"))
        self._runs = self._menu(later("Run&s"))
        self._compare = self._menu(later("&Compare"))
        self._lab = self._menu(later("&Lab"))
        self._view = self._menu(later("&View"))
        self._help = self._menu(later("&Help"))

    def add_file(
        self,
        *,
        open_settings: Callable[[], None],
        save_settings: Callable[[], None],
        export: Callable[[], None],
        export_steps: Callable[[], None],
        export_script: Callable[[], None],
        export_report: Callable[[], None],
        save_picture: Callable[[], None],
        save_model: Callable[[], None],
        export_model: Callable[[], None],
    ) -> None:
        menu = self._file
        self._add(menu, "open_settings_action", later("&Open settings…"), open_settings, "Ctrl+Shift+O")
        self._add(menu, "save_settings_action", later("Save se&ttings…"), save_settings, "Ctrl+S")
        menu.addSeparator()
        self._add(self._file, "export_csv_action", later("&Export runs to CSV…"), export, "Ctrl+E")
        self._add(self._file, "export_steps_action", later("Export &steps to CSV…"), export_steps, "Ctrl+Shift+E")
        self._add(self._file, "export_script_action", later("Export as a &script…"), export_script, "Ctrl+Shift+S")
        self._add(menu, "save_model_action", later("Save the &model…"), save_model, "Ctrl+Shift+M")
        self._add(menu, "export_model_action", later("Expo&rt the model…"), export_model, "Ctrl+Alt+X")
        self._add(menu, "export_report_action", later("Export a &report…"), export_report, "Ctrl+Shift+R")
        self._add(menu, "save_picture_action", later("Save a &picture of the view…"), save_picture, "Ctrl+Alt+P")
        self._file.addSeparator()
        self._add(self._file, "quit_action", later("&Quit"), self._window.close, "Ctrl+Q")

    def add_edit(self, *, undo: Callable[[], None], redo: Callable[[], None]) -> None:
        self.undo = self._add(self._edit, "undo_action", later("&Undo a setting"), undo, "Ctrl+Z")
        self.redo = self._add(self._edit, "redo_action", later("&Redo a setting"), redo, "Ctrl+Shift+Z")
        self._edit.addSeparator()
        self._presets = self._menu(later("&Presets"), within=self._edit)

    def add_presets(
        self,
        *,
        names: Mapping[str, str],
        take: Callable[[tuple[str, bool]], None],
        save: Callable[[], None],
        delete: Callable[[], None],
    ) -> None:
        """Into the edit menu. ``names``: the presets that there always are, with their words."""
        self._take_preset = take
        for number, (name, words) in enumerate(names.items()):
            self._add(
                self._presets,
                f"preset_{name}_action",
                words,
                lambda name=name: take((name, False)),
                f"Ctrl+Shift+{number}",
            )
        self._presets.addSeparator()
        self._add(self._presets, "save_preset_action", later("&Save the toggles as a preset…"), save, "Ctrl+Shift+P")
        words = later("&Delete this preset of my own")
        self.delete_preset = self._add(self._presets, "delete_preset_action", words, delete, "Ctrl+Shift+D")
        self._own_presets = QActionGroup(self._window)

    def show_presets(self, names: Sequence[str]) -> None:
        """List the person's own presets; the first four have keys."""
        for action in self._own_presets.actions():
            self._own_presets.removeAction(action)
            self._presets.removeAction(action)
            action.deleteLater()
        for number, name in enumerate(names, start=FIRST_OWN_KEY):
            action = QAction(name.replace("&", "&&"), self._own_presets)
            action.setObjectName(f"own_preset_{number - FIRST_OWN_KEY}_action")
            if number <= LAST_OWN_KEY:
                action.setShortcut(QKeySequence(f"Ctrl+Shift+{number}"))
            action.triggered.connect(lambda *_, name=name: self._take_preset((name, True)))
            self._presets.addAction(action)

    def add_run(
        self,
        *,
        start: Callable[[], None],
        stop: Callable[[], None],
        look_closer: Callable[[], None],
        profile: Callable[[], None],
        summarize_memory: Callable[[], None],
        empty_cache: Callable[[], None],
    ) -> None:
        self.start = self._add(self._run, "start_action", later("&Start"), start, "F5")
        self.stop = self._add(self._run, "stop_action", later("S&top"), stop, "Shift+F5")
        self._run.addSeparator()
        self._run.setToolTipsVisible(True)
        words = later("&Look closer at a step")
        self.look_closer = self._add(self._run, "look_closer_action", words, look_closer, "Ctrl+L")
        self._add(self._run, "profile_action", later("&Profile…"), profile, "F8")
        words = later("&Memory summary…")
        self.summarize_memory = self._add(self._run, "memory_summary_action", words, summarize_memory, "Ctrl+M")
        words = later("&Empty the cache")
        self.empty_cache = self._add(self._run, "empty_cache_action", words, empty_cache, "Ctrl+Alt+M")

    def add_runs(self, *, open_stored: Callable[[], None], take_in: Callable[[], None]) -> None:
        self._add(self._runs, "open_stored_action", later("&Open stored runs…"), open_stored, "Ctrl+O")
        self._add(self._runs, "import_runs_action", later("&Import runs…"), take_in, "Ctrl+I")

    def add_compare(
        self,
        *,
        pin_a: Callable[[], None],
        pin_b: Callable[[], None],
        swap: Callable[[], None],
        compare: Callable[[], None],
        copy: Callable[[], None],
        export: Callable[[], None],
    ) -> None:
        menu = self._compare
        self._add(menu, "pin_a_action", later("Pin the settings, or the selected row, as &A"), pin_a, "Ctrl+Shift+A")
        self._add(menu, "pin_b_action", later("Pin the settings, or the selected row, as &B"), pin_b, "Ctrl+Shift+B")
        self._add(menu, "swap_pins_action", later("S&wap A and B"), swap, "Ctrl+Shift+X")
        menu.addSeparator()
        self.compare = self._add(menu, "compare_action", later("&Compare A with B"), compare, "F6")
        menu.addSeparator()
        self._add(menu, "copy_verdict_action", later("Co&py the verdict"), copy, "Ctrl+Alt+C")
        self._add(menu, "export_comparison_action", later("&Export the comparison…"), export, "Ctrl+Alt+E")

    def add_series(self, *, show: Callable[[Kind], None]) -> None:
        """Into the compare menu."""
        menu = self._compare
        menu.addSeparator()
        self._add(menu, "ladder_action", later("&Ladder…"), lambda: show("ladder"), "Shift+F6")
        self._add(menu, "sweep_action", later("Sw&eep over batch and length…"), lambda: show("sweep"), "Ctrl+F6")
        self._add(menu, "attribution_action", later("A&ttribution…"), lambda: show("attribution"), "Ctrl+Shift+F6")
        self._add(menu, "floor_action", later("A/A &floor of these settings…"), lambda: show("floor"), "Ctrl+Alt+F")

    def add_lab(self, *, start: Callable[[], None], export: Callable[[], None]) -> None:
        self.start_lab = self._add(self._lab, "start_lab_action", later("&Measure the kernels"), start, "F7")
        self._add(self._lab, "export_lab_action", later("&Export the lab's table…"), export, "Ctrl+Alt+K")

    def add_view(
        self,
        *,
        views: Views,
        docks: tuple[QDockWidget, ...],
        freeze: Callable[[bool], None],
        follow: Callable[[], None],
        theme: ThemeChoice,
        set_theme: Callable[[ThemeChoice], None],
        reset_layout: Callable[[], None],
    ) -> None:
        for index, title in enumerate(views.titles()):
            name, key = f"view_{index + 1}_action", f"Ctrl+{index + 1}"
            self._add(self._view, name, title, lambda index=index: views.show_number(index), key)
        self._view.addSeparator()
        for number, dock in enumerate(docks, start=1):
            action = dock.toggleViewAction()
            action.setShortcut(QKeySequence(f"Ctrl+Alt+{number}"))
            self._view.addAction(action)
        self._view.addSeparator()
        self.freeze = QAction(self._window)
        keep(self.freeze.setText, "&Freeze the curves")
        self.freeze.setObjectName("freeze_action")
        self.freeze.setShortcut(QKeySequence("Ctrl+Space"))
        self.freeze.setCheckable(True)
        self.freeze.toggled.connect(freeze)
        self._view.addAction(self.freeze)
        self._add(self._view, "follow_action", later("Show the &whole run"), follow, "Ctrl+0")
        self._view.addSeparator()
        self._themes = self._menu(later("&Theme"), within=self._view)
        group = QActionGroup(self._window)
        for choice, label, key in THEMES:
            action = self._add(self._themes, f"theme_{choice}_action", label, lambda c=choice: set_theme(c), key)
            action.setCheckable(True)
            action.setChecked(choice == theme)
            group.addAction(action)
        self._add(self._view, "reset_layout_action", later("&Reset layout"), reset_layout, "Ctrl+Alt+0")

    def add_languages(self, *, language: LanguageChoice, set_language: Callable[[LanguageChoice], None]) -> None:
        """Into the view menu; their names stand in the languages themselves."""
        self._languages = self._menu(later("&Language"), within=self._view)
        group = QActionGroup(self._window)
        for choice, name, key in LANGUAGES:
            action = self._add(
                self._languages, f"language_{choice}_action", name, lambda c=choice: set_language(c), key
            )
            action.setCheckable(True)
            group.addAction(action)
        self.show_language(language)

    def show_language(self, language: LanguageChoice) -> None:
        """Tick ``language``."""
        for action, (choice, _, _) in zip(self._languages.actions(), LANGUAGES, strict=True):
            action.setChecked(choice == language)

    def add_help(
        self,
        *,
        commands: Callable[[], None],
        keyboard: Callable[[], None],
        measured: Callable[[], None],
        environment: Callable[[], None],
    ) -> None:
        self._add(self._help, "commands_action", later("&Commands…"), commands, "Ctrl+K")
        self._add(self._help, "keyboard_action", later("&Keyboard"), keyboard, "F1")
        self._add(self._help, "measured_action", later("&How is this measured?"), measured, "Shift+F1")
        self._add(self._help, "environment_action", later("This &machine and its versions"), environment, "Ctrl+F1")

    def actions(self) -> list[QAction]:
        """Every action, in the order of the menus, those of menus within menus included."""
        menus = (
            self._file,
            self._edit,
            self._presets,
            self._run,
            self._runs,
            self._compare,
            self._lab,
            self._view,
            self._themes,
            self._languages,
            self._help,
        )
        headings = [menu.menuAction() for menu in menus]
        return [
            action for menu in menus for action in menu.actions() if not action.isSeparator() and action not in headings
        ]

    @staticmethod
    def allow(action: QAction, obstacle: str) -> None:
        """Grey ``action`` with ``obstacle``, or let it be taken where that is empty."""
        action.setEnabled(not obstacle)
        action.setToolTip(obstacle)

    def _menu(self, title: str, *, within: QMenu | None = None) -> QMenu:
        menu = (within or self._window.menuBar()).addMenu("")
        keep(menu.setTitle, title)
        return menu

    def _add(self, menu: QMenu, name: str, text: str, slot: Callable[..., object], key: str) -> QAction:
        action = QAction(self._window)
        keep(action.setText, text)
        action.setObjectName(name)
        action.setShortcut(QKeySequence(key))
        action.triggered.connect(lambda *_: slot())
        menu.addAction(action)
        return action
