"""``python -m flows.supervisor PARENT COMMAND...``: end a command with its owner.

Knows: processes. Does not know: what they do. Prefect starts processes in sessions of their own,
and a killed process can end none of its children; so each server, worker and DVC run has a
supervisor. It ends the command and all its descendants on a termination signal, when its parent is
gone, and when the command itself is gone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Thread, Timer
from types import FrameType
from typing import Any

import psutil

POLL_SECONDS = 1.0
STEP_SECONDS = 0.1
# Long enough for a flow run to leave its stage and tell the server how it ended.
AWAY_SECONDS = 15.0
HOME_SECONDS = 10.0
KILLED_SECONDS = 5.0
SUPERVISOR_SECONDS = 2 * AWAY_SECONDS + HOME_SECONDS + KILLED_SECONDS + 5.0
MOST_SIGNALS = 4096
TERMINATED_CODE = 128 + signal.SIGTERM
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


class Terminated(BaseException):
    """A signal said that it is time to end; like an interrupt, nothing handles it on the way."""


def supervised(command: Sequence[str]) -> list[str]:
    """The command line that runs ``command`` for as long as this process lives."""
    return [sys.executable, "-m", "flows.supervisor", str(os.getpid()), *command]


@contextmanager
def supervising(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """``command`` at work under a supervisor while the block runs; then it and all it started end.

    ``options`` go to ``subprocess.Popen``. It leads a session of its own, which an interrupt from
    the terminal does not reach. The supervisor inherits what this process holds for it, such as the
    checkout's lock (``preflight.alone``), and holds it until all have ended; the command does not.
    """
    supervisor = subprocess.Popen(
        supervised(command), start_new_session=True, close_fds=False, **options
    )
    try:
        yield supervisor
    finally:
        _end_supervisor(supervisor)


@contextmanager
def nothing_left() -> Iterator[None]:
    """End, after the block, what this process started and a killed supervisor could not end."""
    _adopt()
    try:
        yield
    finally:
        _send(_family(), signal.SIGTERM)
        _send(_alive_after(HOME_SECONDS, _family()), signal.SIGKILL)
        _alive_after(KILLED_SECONDS, _family())


@contextmanager
def raise_terminated() -> Iterator[None]:
    """Raise Terminated at the first SIGTERM in the block, so that everything is tidied up."""
    before = signal.signal(signal.SIGTERM, _terminate_once)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def interrupt_again(unraisable: sys.UnraisableHookArgs) -> None:
    """Python's hook for what it cannot raise: an interrupt that it swallowed is sent once more.

    That happens to one that arrives in the callback of a weak reference or in a finalizer.
    """
    if unraisable.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(unraisable)
        return
    # Later, so that it does not arrive in this hook.
    Timer(STEP_SECONDS, os.kill, (os.getpid(), signal.SIGINT)).start()


def end_with_starter(mark: str, run: str | None) -> None:
    """Interrupt this process, as Ctrl-C would, once the process that started it is gone.

    For what is started by a tool that has no supervisor. To be called by the main thread. A process
    that had a termination signal before is left the time to report how it ended.

    Args:
        mark: an environment variable that the tool gives to what it starts. A process between the
            tool and this one has it too, such as a shell that waits for us and outlives the tool:
            all of them are watched, up to the tool itself.
        run: the process that began it all, where it is known: it may be gone by now.
    """
    ancestors = psutil.Process().parents()
    gone = run is not None and run not in {str(one.pid) for one in ancestors}
    watched = _up_to_first_without(mark, ancestors)
    _hear_interrupts()
    Thread(target=_interrupt_without, args=(watched, gone, _signals_seen()), daemon=True).start()


def _hear_interrupts() -> None:
    """Hear SIGINT, on which each of our tools tidies up, where it was inherited as ignored.

    A shell without job control starts what runs in its background like that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def supervise(parent: int, command: Sequence[str]) -> int:
    """Run ``command`` until it ends, a signal comes or ``parent`` is gone.

    Returns its exit code as a shell states it, and that of SIGTERM where it did not end by itself.
    """
    family: set[psutil.Process] = set()
    code: int | None = None
    try:
        _on_signals(_terminate_once)
        _adopt()
        process = psutil.Popen(command)
        while code is None and os.getppid() == parent:
            family = {one for one in family | _family() if one == process or _lives(one)}
            with suppress(psutil.TimeoutExpired):
                code = process.wait(POLL_SECONDS)
        _on_signals(signal.SIG_IGN)
    except Terminated:
        pass
    _end(family | _family())
    if code is None:
        return TERMINATED_CODE
    return code if code >= 0 else 128 - code


def _end_supervisor(supervisor: subprocess.Popen[bytes]) -> None:
    supervisor.terminate()
    try:
        supervisor.wait(SUPERVISOR_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(supervisor.pid, signal.SIGKILL)
        supervisor.wait()


def _up_to_first_without(mark: str, ancestors: Sequence[psutil.Process]) -> list[psutil.Process]:
    found = []
    for process in ancestors:
        found.append(process)
        with suppress(psutil.Error):
            if mark in process.environ():
                continue
        break
    return found


def _signals_seen() -> int:
    """From where the number of each signal can be read that this process hears from now on."""
    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    return reading


def _interrupt_without(watched: Sequence[psutil.Process], gone: bool, seen: int) -> None:
    while not gone and all(_lives(one) for one in watched):
        time.sleep(POLL_SECONDS)
    with suppress(BlockingIOError):
        if {signal.SIGTERM, signal.SIGINT} & set(os.read(seen, MOST_SIGNALS)):
            time.sleep(AWAY_SECONDS)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(SUPERVISOR_SECONDS)
    os._exit(1)  # something swallowed the interrupt


def _terminate_once(number: int, frame: object) -> None:
    _on_signals(signal.SIG_IGN)  # once is enough, and the end interrupts this process too
    raise Terminated


def _on_signals(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)


def _end(family: set[psutil.Process]) -> None:
    """End what lives in other sessions while our command can report it, then what lives in ours."""
    away = [one for one in family if _session(one) not in {None, os.getsid(0)}]
    # Leaders of sessions first: they may know better how to end what they started.
    for wave in ([one for one in away if one.pid == _session(one)], away):
        _send(wave, signal.SIGTERM)
        _alive_after(AWAY_SECONDS, wave)
    # As Ctrl-C in a terminal would: that is the signal on which each of our tools tidies up.
    os.killpg(os.getpgrp(), signal.SIGINT)
    _send(_alive_after(HOME_SECONDS, family), signal.SIGKILL)
    _alive_after(KILLED_SECONDS, family)


def _adopt() -> None:
    """Where the system can, make orphans below this process its children: else they are lost."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _alive_after(seconds: float, processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Wait for ``processes`` to end; those that have not. A parent need not have noticed it."""
    deadline = time.monotonic() + seconds
    while (alive := [one for one in processes if _lives(one)]) and time.monotonic() < deadline:
        time.sleep(STEP_SECONDS)
    return alive


def _lives(process: psutil.Process) -> bool:
    """Whether it is at work; what was orphaned below us is ours, and is waited for."""
    with suppress(psutil.TimeoutExpired):
        process.wait(0)
        return False
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def _family() -> set[psutil.Process]:
    """All that this process started and that still descends from it."""
    return set(psutil.Process().children(recursive=True))


def _session(process: psutil.Process) -> int | None:
    with suppress(ProcessLookupError):
        return os.getsid(process.pid)
    return None


if __name__ == "__main__":
    sys.exit(supervise(int(sys.argv[1]), sys.argv[2:]))
