"""Runs a command of the user's in a session of its own: time, memory and output in bounds, nothing left behind."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.workers.fork_server import ForkedCheck, ForkServer
from runner.workers.gpu_leases import Lease
from runner.workers.guardian import MARK, Guardian, kill_group
from runner.workers.process_tree import BoundedLog, ProcessTree, Telling, TimeLimit, death_of, now
from runner.workers.reply import KILLED


@dataclass(frozen=True)
class CommandEnd:
    """How a command ended.

    ``returncode``: its exit code, negative if it died by a signal; None if it was stopped or did not start. ``death``:
    as in ``Reply``: a signal, ``timeout``, ``memory`` or `OUT_OF_MEMORY`. ``cannot_start``: one line that says why it
    did not start. ``unread``: bytes of its output that came faster than they could be read.
    """

    returncode: int | None
    death: str | None
    cannot_start: str | None
    seconds: float
    peak_rss_mb: float
    unread: int = 0


def run_command(  # noqa: PLR0913 - one command's own limits
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float | None,
    memory_mb: int | None,
    log: Path,
    guardian: Guardian,
    lease: Lease | None = None,
    server: ForkServer | None = None,
    telling: Telling | None = None,
) -> CommandEnd:
    """Run ``argv`` (no shell) in ``cwd`` with the whole environment ``env`` and wait for its end.

    Stdout and stderr go to ``log`` (its middle is left out beyond some MiB), stdin is empty. ``timeout``: seconds.
    ``memory_mb``: resident MiB of the command and its descendants together; None: a share of what the machine has
    (`machine.share_mb`), and then the death is `OUT_OF_MEMORY`. What it has started and left behind is killed when it
    ends, wherever that has gone. ``lease``: goes over to the command and to all that it starts. ``server``: forks the
    process, in place of a start of the interpreter that ``argv`` names. ``telling``: finds what stays of the log's
    middle. Raises OSError only if ``log`` cannot be written, CannotJudge where the server ends, and what ``telling``
    raises.
    """
    start = now()
    fd = os.open(log, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        marked = guardian.marked({**env, **(lease.environment if lease else {})})
        try:
            process = (
                server.fork(argv, cwd=cwd, env=marked, log=fd, lease=lease)
                if server
                else subprocess.Popen(
                    list(argv),
                    cwd=cwd,
                    env=marked,
                    stdin=subprocess.DEVNULL,
                    stdout=fd,
                    stderr=fd,
                    pass_fds=lease.fds if lease else (),
                    start_new_session=True,
                )
            )
        except (OSError, ValueError, IndexError) as error:
            if lease:
                lease.close()
            return CommandEnd(None, None, _why(argv, cwd, error), now() - start, 0.0)
        guardian.add(process.pid)
        if lease:
            lease.hand_over(process.pid)
        try:
            log_file = BoundedLog(fd, telling)
            end = _supervise(process, TimeLimit(start, timeout), memory_mb, log_file, guardian, marked[MARK])
            return dataclasses.replace(end, unread=log_file.unread)
        finally:
            if lease:
                lease.settle()
    finally:
        os.close(fd)


def _supervise(
    process: subprocess.Popen[bytes] | ForkedCheck,
    limit: TimeLimit,
    memory_mb: int | None,
    log: BoundedLog,
    guardian: Guardian,
    mark: str,
) -> CommandEnd:
    start, kills = now(), guardian.kills
    forked = process if isinstance(process, ForkedCheck) else None
    tree = ProcessTree(process.pid, memory_mb, start, forked.server.pid if forked else None)
    stopped = "interrupted"
    try:
        # the first look comes at once: a short command is to be measured as well
        stopped = tree.look() or (
            tree.wait(limit, log, forked.server.fileno(), forked.answered) if forked else tree.wait(limit, log)
        )
    finally:
        # also when this thread is interrupted: nothing may run on
        lost = forked is not None and forked.lost
        if forked and not lost:
            # whatever its check has started is below the server, which finds it there
            kill_group(process.pid)
        else:
            tree.kill()
            guardian.sweep(mark, process.pid, now() - start)
        guardian.remove(process.pid)
        process.wait()
        log.trim()
    seconds = limit.spent()
    if stopped:
        return CommandEnd(None, stopped, None, seconds, tree.peak_mb)
    if forked and lost:
        if guardian.kills == kills:
            raise forked.server.ended()
        return CommandEnd(-signal.SIGKILL, KILLED, None, seconds, tree.peak_mb)
    assert process.returncode is not None
    return CommandEnd(process.returncode, death_of(process.returncode), None, seconds, tree.peak_mb)


def _why(argv: Sequence[str], cwd: Path, error: Exception) -> str:
    if not argv:
        return "the command is empty"
    if not Path(cwd).is_dir():
        return f"the folder to run it in does not exist: {cwd}"
    if isinstance(error, FileNotFoundError):
        return f"no such program: {argv[0]} (neither on PATH nor a file, seen from {cwd}; or its #! line names none)"
    if isinstance(error, PermissionError):
        return f"not allowed to run {argv[0]}: is it executable?"
    return f"{argv[0]}: {getattr(error, 'strerror', None) or error}"
