"""Says before the window opens what Qt lacks on this system, and the line that installs it.

``python -m explorer.gui.qt_check`` exits with 0 and silently where a window can open. It tries in a child process,
because Qt aborts the process that cannot load its platform plugin, and it does not import Qt itself.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

# What pyqtgraph and the window import.
PROBE = "from PySide6 import QtOpenGLWidgets, QtSvg, QtWidgets\nQtWidgets.QApplication([])"
PROBE_TIMEOUT_S = 120.0
# By shared library: the package of Debian and Ubuntu that brings it.
PACKAGES: Mapping[str, str] = {
    "libEGL.so.1": "libegl1",
    "libGL.so.1": "libgl1",
    "libGLX.so.0": "libglx0",
    "libOpenGL.so.0": "libopengl0",
    "libX11-xcb.so.1": "libx11-xcb1",
    "libX11.so.6": "libx11-6",
    "libdbus-1.so.3": "libdbus-1-3",
    "libfontconfig.so.1": "libfontconfig1",
    "libfreetype.so.6": "libfreetype6",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libgthread-2.0.so.0": "libglib2.0-0",
    "libwayland-client.so.0": "libwayland-client0",
    "libwayland-cursor.so.0": "libwayland-cursor0",
    "libwayland-egl.so.1": "libwayland-egl1",
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxcb-glx.so.0": "libxcb-glx0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-image.so.0": "libxcb-image0",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-randr.so.0": "libxcb-randr0",
    "libxcb-render-util.so.0": "libxcb-render-util0",
    "libxcb-render.so.0": "libxcb-render0",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxcb-shm.so.0": "libxcb-shm0",
    "libxcb-sync.so.1": "libxcb-sync1",
    "libxcb-util.so.1": "libxcb-util1",
    "libxcb-xfixes.so.0": "libxcb-xfixes0",
    "libxcb-xkb.so.1": "libxcb-xkb1",
    "libxcb.so.1": "libxcb1",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
    "libxkbcommon.so.0": "libxkbcommon0",
}
HEADLESS = "Without a window the same runs are made by: python main.py run --help"


def main() -> int:
    """0 where a window can open; else 1, with the reason and the remedy on the error output."""
    problem = window_problem()
    if problem is None:
        return 0
    sys.stderr.write(f"The window cannot open. {problem}\n{HEADLESS}\n")
    return 1


def window_problem() -> str | None:
    """Why no window can open here and what to do, or None where one can."""
    try:
        child = subprocess.run(
            [sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"Qt did not start within {PROBE_TIMEOUT_S:g} s."
    if child.returncode == 0:
        return None
    libraries = missing_libraries(child.stderr + "".join(_ldd(file) for file in _files_of_qt(os.environ)))
    return explain(child.returncode, child.stderr, libraries, os.environ)


def missing_libraries(output: str) -> tuple[str, ...]:
    """The shared libraries that ``output`` (of ldd, of a failed import, of Qt) says are missing, sorted."""
    found = set(re.findall(r"([\w+.-]+\.so[.\d]*) => not found", output))
    found |= set(re.findall(r"([\w+.-]+\.so[.\d]*): cannot open shared object file", output))
    if "libxcb-cursor0 is needed" in output and "libxcb-cursor.so.0" not in output:
        # Qt says so whatever its plugin lacks, so it counts only where ldd did not look.
        found.add("libxcb-cursor.so.0")
    return tuple(sorted(found))


def explain(returncode: int, stderr: str, libraries: Iterable[str], environment: Mapping[str, str]) -> str:
    """Words for a probe that failed: a missing package, or screen, or libraries; else what Qt itself said."""
    libraries = tuple(libraries)
    missing_module = re.search(r"No module named '(PySide6|shiboken6)", stderr)
    if missing_module:
        return f"The package {missing_module[1]} is not installed: pip install 'PySide6-Essentials>=6.9,<6.11'"
    chosen = any(environment.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"))
    no_screen = sys.platform == "linux" and not chosen
    reasons = ["There is no screen: neither DISPLAY nor WAYLAND_DISPLAY is set."] if no_screen else []
    if libraries:
        reasons.append(_explain_libraries(libraries))
    if reasons:
        return "\n".join(reasons)
    ended = f"by {signal.Signals(-returncode).name}" if returncode < 0 else f"with status {returncode}"
    return f"Qt ended {ended} and said:\n{stderr.strip() or '(nothing)'}"


def _explain_libraries(libraries: tuple[str, ...]) -> str:
    packages = sorted({PACKAGES[name] for name in libraries if name in PACKAGES})
    unknown = [name for name in libraries if name not in PACKAGES]
    lines = [f"Qt's system libraries are missing: {', '.join(libraries)}."]
    if packages:
        lines.append(f"On Debian or Ubuntu:\n    sudo apt-get install -y {' '.join(packages)}")
    if unknown:
        lines.append(f"Install what brings {', '.join(unknown)} (apt-file search NAME finds it).")
    return "\n".join(lines)


def _files_of_qt(environment: Mapping[str, str]) -> list[Path]:
    """The shared objects whose needs decide whether a window opens: the modules and the platform's plugin."""
    spec = importlib.util.find_spec("PySide6")
    if spec is None or not spec.submodule_search_locations:
        return []
    folder = Path(spec.submodule_search_locations[0])
    asked = environment.get("QT_QPA_PLATFORM")
    if asked:
        platforms = [part.partition(":")[0] for part in asked.split(";")]
    else:
        platforms = ["wayland", "xcb"] if environment.get("WAYLAND_DISPLAY") else ["xcb"]
    files = [folder / f"{module}.abi3.so" for module in ("QtWidgets", "QtSvg", "QtOpenGLWidgets")]
    files += [folder / "Qt" / "plugins" / "platforms" / f"libq{platform}.so" for platform in platforms]
    return [file for file in files if file.exists()]


def _ldd(file: Path) -> str:
    if shutil.which("ldd") is None:
        return ""
    return subprocess.run(["ldd", str(file)], capture_output=True, text=True, check=False).stdout


if __name__ == "__main__":
    raise SystemExit(main())
