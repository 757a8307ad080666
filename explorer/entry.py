"""argv -> the window or the command line. Imports neither torch nor Qt itself.

Exit status: 0 done, 1 it failed, 2 the request was wrong, 130 stopped by Ctrl-C (what was measured is written).
"""

from __future__ import annotations

import importlib
import os
import sys

from explorer.commands import WITH_PARSERS_OF_THEIR_OWN


def main(argv: list[str] | None = None) -> int:
    """Run ``argv`` (default: this process's) and return the exit status. What goes wrong becomes a line of words."""
    try:
        status = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:  # also while Python still imports
        return 130
    except BrokenPipeError:  # who read the output has gone, as `head` does
        # Else Python would try again to write the rest when it ends, and complain.
        # Source: docs.python.org/3/library/signal.html, note on SIGPIPE.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except (RuntimeError, OSError) as error:  # the worker, the device or a disk
        sys.stderr.write(f"error: {error}\n")
        return 1


def _run(args: list[str]) -> int:
    # Without a subcommand the window opens; its own options (--in-process, …) begin with a dash.
    if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help", "--version")):
        from explorer.gui.opening import main as window

        return window(args)
    if args[0] in WITH_PARSERS_OF_THEIR_OWN:
        return int(importlib.import_module(WITH_PARSERS_OF_THEIR_OWN[args[0]][0]).main(args[1:]))
    from explorer.cli import main as command_line

    return command_line(args)
