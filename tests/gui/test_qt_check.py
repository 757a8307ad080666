"""What Qt lacks is said with the line that installs it. The texts of ldd and Qt were copied from machines without."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from explorer.gui.qt_check import PACKAGES, explain, missing_libraries

ROOT = Path(__file__).parents[2]
LDD_XCB = """\
	libQt6XcbQpa.so.6 => /venv/PySide6/Qt/plugins/platforms/../../lib/libQt6XcbQpa.so.6 (0x00007f1)
	libxcb-cursor.so.0 => /lib/x86_64-linux-gnu/libxcb-cursor.so.0 (0x00007f2)
	libxcb-icccm.so.4 => not found
	libxcb-keysyms.so.1 => not found
	libxcb-icccm.so.4 => not found
	libEGL.so.1 => not found
"""
IMPORT_ERROR = "ImportError: libEGL.so.1: cannot open shared object file: No such file or directory\n"
QT_XCB = """\
qt.qpa.plugin: From 6.5.0, xcb-cursor0 or libxcb-cursor0 is needed to load the Qt xcb platform plugin.
qt.qpa.plugin: Could not load the Qt platform plugin "xcb" in "" even though it was found.
"""
SCREEN = {"DISPLAY": ":0"}


def check(**environment):
    """The check in a process of its own, with these variables and no others that choose Qt's platform."""
    chosen = ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")
    env = {name: value for name, value in os.environ.items() if name not in chosen} | environment
    command = [sys.executable, "-m", "explorer.gui.qt_check"]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False)


def test_that_the_check_is_silent_where_a_window_opens():
    child = check(QT_QPA_PLATFORM="offscreen")
    assert (child.returncode, child.stdout, child.stderr) == (0, "", "")


def test_that_a_platform_which_aborts_qt_ends_the_check_with_qts_own_words():
    child = check(QT_QPA_PLATFORM="nonsense")
    assert child.returncode == 1
    assert "SIGABRT" in child.stderr
    assert 'Could not find the Qt platform plugin "nonsense"' in child.stderr
    assert "python main.py run" in child.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is always a screen")
def test_that_a_machine_without_a_screen_is_told_so():
    child = check()
    assert child.returncode == 1
    assert "There is no screen: neither DISPLAY nor WAYLAND_DISPLAY is set." in child.stderr


def test_that_an_import_which_fails_for_a_library_names_its_package(tmp_path):
    (tmp_path / "PySide6").mkdir()
    (tmp_path / "PySide6" / "__init__.py").write_text(f"raise ImportError({IMPORT_ERROR[13:-1]!r})")
    child = check(PYTHONPATH=str(tmp_path), DISPLAY=":99")
    assert child.returncode == 1
    assert "Qt's system libraries are missing: libEGL.so.1." in child.stderr
    assert "\n    sudo apt-get install -y libegl1\n" in child.stderr


def test_that_without_pyside_the_line_for_pip_is_given(tmp_path):
    (tmp_path / "PySide6").mkdir()
    (tmp_path / "PySide6" / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'PySide6'\")")
    child = check(PYTHONPATH=str(tmp_path), DISPLAY=":99")
    assert child.returncode == 1
    assert "pip install 'PySide6-Essentials>=6.9,<6.11'" in child.stderr


def test_that_each_missing_library_is_found_once_in_what_ldd_and_python_say():
    assert missing_libraries(LDD_XCB) == ("libEGL.so.1", "libxcb-icccm.so.4", "libxcb-keysyms.so.1")
    assert missing_libraries(IMPORT_ERROR) == ("libEGL.so.1",)
    assert missing_libraries("libc.so.6 => /lib/libc.so.6 (0x00007f3)") == ()


def test_that_qts_guess_counts_only_where_ldd_did_not_look():
    assert missing_libraries(QT_XCB) == ("libxcb-cursor.so.0",)
    assert missing_libraries(QT_XCB + LDD_XCB) == missing_libraries(LDD_XCB)


def test_that_the_line_installs_every_missing_library_and_names_those_it_does_not_know():
    text = explain(-6, QT_XCB, ("libglib-2.0.so.0", "libgthread-2.0.so.0", "libxcb-xkb.so.1", "libodd.so.7"), SCREEN)
    assert re.search(r"apt-get install -y (.*)", text)[1] == "libglib2.0-0 libxcb-xkb1"
    assert "Install what brings libodd.so.7" in text
    assert "no screen" not in text


def test_that_a_qt_that_ends_without_a_word_is_told_by_its_signal():
    assert explain(-11, "", (), SCREEN) == "Qt ended by SIGSEGV and said:\n(nothing)"


def test_that_every_package_that_ci_installs_for_qt_is_known_by_its_library():
    script = (ROOT / ".ci" / "run").read_text()
    installed = set(re.search(r'packages="([^"]*)"', script)[1].split())
    libraries = {name for name in installed if name.startswith("lib")}
    assert len(libraries) >= 6
    assert libraries <= set(PACKAGES.values())
