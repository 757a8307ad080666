"""The worker behind one interface, in a process of its own (the default) or on a thread of this one.

Measured on an H200, a worker on a thread of the window's process loses 10 to 70% of its speed to the window's
share of the interpreter lock; in a spawned process it loses nothing. A process also survives a poisoned CUDA
context: only its end clears one.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

from tqdm import tqdm

from explorer.engine.gather import wake_driver
from explorer.engine.resuming import ResumingWorker
from explorer.engine.runner import Runner
from explorer.engine.want_of_memory import KillCount
from explorer.messages import Command, Event, Shutdown, WorkerLost
from explorer.results.scratch import Scratch, remove_lost

LAST_WORDS_BYTES = 8192


class Worker(Protocol):
    """Takes commands, gives events. All methods return at once but ``close``."""

    @property
    def alive(self) -> bool: ...
    def send(self, command: Command) -> None: ...
    def drain(self) -> list[Event]:
        """All events that came since the last call, in order."""
        ...

    def close(self, timeout_s: float = 1.0) -> None:
        """End the worker, by asking first; a process that does not end in time is killed."""
        ...

    def kill(self) -> None:
        """End the worker now, whatever it is doing.

        Raises:
            RuntimeError: it is a thread, and threads cannot be ended from outside.
        """
        ...

    @property
    def process_id(self) -> int: ...


def open_worker(*, in_process: bool = False) -> ResumingWorker:
    """Start a worker; its first event is WorkerReady.

    Call it on the main thread: on Linux the process is bound to the life of the thread that starts it.
    """
    return ResumingWorker(ThreadWorker if in_process else ProcessWorker)


class _Inbox:
    """Events that arrived, taken out all at once."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.put = self._events.put

    def drain(self) -> list[Event]:
        events = []
        with contextlib.suppress(queue.Empty):
            while True:
                events.append(self._events.get_nowait())
        return events


class ThreadWorker:
    """The worker on a thread of this process."""

    def __init__(self) -> None:
        self._inbox = _Inbox()
        self._runner = Runner(self._inbox.put)
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="worker", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            self._runner.serve()
        except Exception as error:
            self._inbox.put(WorkerLost(exit_code=None, last_words=f"{type(error).__name__}: {error}"))

    @property
    def process_id(self) -> int:
        return os.getpid()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self._closing

    def send(self, command: Command) -> None:
        self._runner.post(command)

    def drain(self) -> list[Event]:
        return self._inbox.drain()

    def close(self, timeout_s: float = 1.0) -> None:
        self._closing = True
        self._runner.post(Shutdown())
        self._thread.join(timeout_s)

    def kill(self) -> None:
        raise RuntimeError("The worker is a thread of this window and cannot be ended alone; close the window.")


class ProcessWorker:
    """The worker in a spawned process: a pipe each way, its end of file means death."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        commands_out, self._commands = context.Pipe(duplex=False)
        self._events, events_in = context.Pipe(duplex=False)
        self._scratch: Scratch | None = None
        self._errors = Path(os.devnull)
        with contextlib.suppress(OSError):  # on a full disk its last words are lost, and nothing else
            self._scratch = Scratch()
            self._errors = self._scratch.path / "errors.log"
            self._errors.touch()
        self._inbox = _Inbox()
        self._closing = False
        self._process = context.Process(
            target=_serve, args=(commands_out, events_in, str(self._errors)), name="gpt2-explorer-worker", daemon=True
        )
        with settings_for_the_child():
            self._process.start()
        # Only the child holds these ends now, so that its death closes them.
        commands_out.close()
        events_in.close()
        self._outbox: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._kills = KillCount()
        self._reader = threading.Thread(target=self._read, name="worker events", daemon=True)
        self._writer = threading.Thread(target=self._write, name="worker commands", daemon=True)
        self._reader.start()
        self._writer.start()

    def _read(self) -> None:
        while True:
            try:
                self._inbox.put(self._events.recv())
            except (EOFError, OSError):
                break
            self._kills.look()
        self._process.join(2.0)
        if not self._closing:
            lost = WorkerLost(
                exit_code=self._process.exitcode, last_words=self._last_words(), for_want_of_memory=self._kills.grew()
            )
            self._inbox.put(lost)
        self._outbox.put(None)
        if self._scratch is not None:
            self._scratch.remove()

    def _write(self) -> None:
        """Send commands: a process that is stopped, or in a call that holds its interpreter, takes few of them."""
        # A dead worker is told of by WorkerLost; a command to it is as lost as it is.
        with contextlib.suppress(BrokenPipeError, OSError):
            while (command := self._outbox.get()) is not None:
                self._commands.send(command)

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            return self._errors.read_bytes()[-LAST_WORDS_BYTES:].decode(errors="replace").strip()
        return ""

    @property
    def process_id(self) -> int:
        pid = self._process.pid
        assert pid is not None
        return pid

    @property
    def alive(self) -> bool:
        return self._process.is_alive() and not self._closing

    def send(self, command: Command) -> None:
        self._outbox.put(command)

    def drain(self) -> list[Event]:
        return self._inbox.drain()

    def close(self, timeout_s: float = 1.0) -> None:
        self._closing = True
        self.send(Shutdown())
        self._process.join(timeout_s)
        self.kill()

    def kill(self) -> None:
        self._closing = True
        self._process.kill()
        self._process.join(2.0)
        self._reader.join(3.0)
        self._writer.join(1.0)
        self._commands.close()
        self._events.close()


@contextlib.contextmanager
def settings_for_the_child() -> Iterator[None]:
    """What the child must find from its first moment on.

    OpenMP threads spin while they wait; beside a window they would take the cores that it draws with. And Ctrl-C in a
    terminal reaches every process: before the child can ignore it, it would end with a traceback on the terminal.
    """
    name = "OMP_NUM_THREADS"
    given = name in os.environ
    if not given:
        os.environ[name] = str(max(1, (os.cpu_count() or 2) - 1))
    if sys.platform != "win32":
        # Which start() would start else, and which lets the signal in again (Python 3.11 to 3.14).
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if sys.platform != "win32":
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if not given:
            del os.environ[name]


def _serve(commands: Connection, events: Connection, errors: str) -> None:
    """The child: its main thread reads commands, one thread works, one sends events."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches every process; the parent decides
    log = os.open(errors, os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 2)
    faulthandler.enable(file=2)
    threading.Thread(target=_beside_the_imports, name="beside the imports", daemon=True).start()
    # The lock that bars of progress share would be a semaphore, which the parent complained of when it ends: it is not
    # given back by os._exit. Theirs is for this process alone.
    tqdm.set_lock(threading.RLock())
    # Daemons may have no children, and proofs are taken in one. The parent still holds this process for a daemon.
    multiprocessing.current_process().daemon = False
    outbox: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
    runner = Runner(outbox.put, owns_process=True)

    def work() -> None:
        try:
            runner.serve()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        outbox.put(None)

    def send() -> None:
        while (event := outbox.get()) is not None:
            events.send(event)
        os._exit(0)

    threading.Thread(target=work, name="worker", daemon=True).start()
    threading.Thread(target=send, name="events", daemon=True).start()
    try:
        while True:
            command = commands.recv()
            runner.post(command)
    except (EOFError, OSError):
        os._exit(0)  # the parent is gone, however it went: nobody wants what this computes


def _beside_the_imports() -> None:
    """What waits for the system, and not for the interpreter: the worker is ready sooner."""
    wake_driver()
    remove_lost()  # here, and not in the window: a state of many GB may lie there


def die_with_parent() -> None:
    """On Linux the kernel ends this process with the parent, also while a C call holds the interpreter lock."""
    if sys.platform != "linux":
        return
    import ctypes

    PR_SET_PDEATHSIG = 1
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
