"""argv -> the window or the command line. Imports neither torch nor Qt itself."""

from __future__ import annotations

import sys


def main(argv: list[str] | None = None) -> int:
    """Run ``argv`` (default: this process's) and return the exit status."""
    args = sys.argv[1:] if argv is None else argv
    # Without a subcommand the window opens; its own options (--in-process, …) begin with a dash.
    if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help", "--version")):
        from explorer.gui.app import main as window

        return window(args)
    if args[0] == "window-tax":
        from explorer.gui.window_tax import main as window_tax

        return window_tax(args[1:])
    if args[0] == "tour":
        from explorer.gui.tour import main as tour

        return tour(args[1:])
    from explorer.cli import main as command_line

    return command_line(args)
