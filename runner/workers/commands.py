"""Runs commands of the user's: time, memory and output in bounds, nothing left behind.

Each in a session of its own, or forked by a process that has imported what the command would.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.exit_codes import CannotJudge, UsageError
from runner.workers.gpu_leases import CHAIN, Lease, Stopped
from runner.workers.guardian import MARK, Guardian, kill_group
from runner.workers.process_tree import JUDGED_BYTES, BoundedLog, ProcessTree, TimeLimit, death_of, now, start
from runner.workers.worker import PREPARE_SECONDS

# A fork server, seen from the job: an interpreter that has imported modules once and forks a process for each check.
# A check that is forked costs no start of an interpreter and no imports; apart from that it is a command like any other
# (`run_command`). It is the server's child and not the job's, so it is the server that reaps it and says how it ended.

_CHILD = Path(__file__).with_name("fork_server_main.py")
# beyond this what a check has left behind resists being killed: the server is ended with it
_CLEAN_SECONDS = 10.0
_LAST_WORDS = 500
#: a fork takes some milliseconds, and a second on a machine that swaps
FORK_SECONDS = 30.0


class ForkServer:
    """Forks one process at a time for ``script``. Not thread-safe: it is lent to one check at a time.

    ``python``: the interpreter, as a command names it. ``env``: the environment in which ``modules`` are imported.
    ``unasked``: nobody has named them, so each has to be the installed one, as the script finds it too, and to print
    nothing when it is imported; ``python`` has to be an interpreter, or a script that becomes one. ``patience``:
    seconds that the imports may take. ``script`` may be empty: what it starts then are programs, whose descendants it
    finds wherever they go, also without an environment. Raises UsageError where they cannot be imported, Stopped where
    it was killed with all checks meanwhile.
    """

    def __init__(
        self,
        python: str,
        script: str,
        modules: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        guardian: Guardian,
        unasked: bool = False,
        patience: float = PREPARE_SECONDS,
    ) -> None:
        self.python, self.script = python, script
        self._guardian = guardian
        self._closed = False
        self._control, theirs = socket.socketpair()
        self._answers = self._control.makefile("rb", buffering=0)  # what is not read yet can be waited for
        self._env, kills = guardian.marked(env), guardian.kills
        # its number and its folder, as it says itself
        self._there = (0, "")
        told = json.dumps(list(modules))
        options = () if script else ("-I", "-S", "-X", f"utf8={sys.flags.utf8_mode}")
        words = [python, *options, str(_CHILD), str(theirs.fileno()), told, script, "unasked" if unasked else ""]
        with theirs, tempfile.TemporaryFile() as log:
            try:
                self._process = start(words, cwd=cwd, env=self._env, log=log, fds=(theirs.fileno(),))
            except OSError as error:
                self._answers.close()
                self._control.close()
                raise UsageError(f"checker.preload: cannot start {python}: {error.strerror or error}") from error
            theirs.close()
            guardian.add(self.pid)
            try:
                try:
                    wrong = self._greeting(patience)
                finally:
                    # from now on it is idle most of the time: when checks are killed, it may stay
                    guardian.remove(self.pid)
            except BaseException:
                self.close()
                raise
            log.seek(0)
            said = log.read()[-_LAST_WORDS:].decode("utf-8", "replace").strip()
        # where another process or folder answers, a script waits for the interpreter's end, or goes elsewhere; one that
        # becomes the interpreter (pyenv's) has nothing left to do for a check
        if unasked and not wrong and self._there != (self.pid, str(cwd.resolve())):
            wrong = "is a script that starts an interpreter, and may do more for each check"
        if unasked and said:
            wrong = wrong or "prints something when it imports them, as each check would"
        if wrong:
            self.close()
            if guardian.kills != kills:
                raise Stopped("all checks were killed while their fork server started")
            raise UsageError(
                f"checker.preload=[{', '.join(modules)}]: {python} {wrong}. Name modules that can be imported there, "
                f"or leave checker.preload out" + (f". It printed: {said}" if said else "")
            )

    @property
    def pid(self) -> int:
        """The server's own process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can fork."""
        return self._process.returncode is None and self._process.poll() is None

    def fork(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], log: int, lease: Lease | None
    ) -> ForkedCheck:
        """Start ``argv`` as `subprocess.Popen` would, output to the descriptor ``log``.

        Raises OSError and ValueError as that does, CannotJudge where the server has ended.
        """
        if any("\0" in text for text in (*argv, *env, *env.values())):
            raise ValueError("embedded null byte")
        held = lease.fds if lease else ()
        # what an interpreter and its imports change in their environment when they start stays (LC_CTYPE, say)
        own = {name: text for name, text in env.items() if self._env.get(name) != text} if self.script else dict(env)
        request: dict[str, Any] = {"argv": list(argv), "cwd": str(cwd), "env": own, "lease": held, "chain": CHAIN}
        request["program"] = not self.script
        line = json.dumps(request).encode() + b"\n"
        # no limit of the check's runs yet: a server that was stopped, or hangs in a fork, must not be waited for always
        self._control.settimeout(FORK_SECONDS)
        with contextlib.suppress(OSError):  # the answer says that it is gone
            socket.send_fds(self._control, [b" "], [log, *held])
            self._control.sendall(line)
        answer = self.answer()
        self._control.settimeout(None)
        if "error" in answer:
            raise OSError(*filter(None, (answer.get("errno"), answer["error"])))
        if "pid" not in answer:
            raise self.ended()
        return ForkedCheck(self, int(answer["pid"]))

    def answer(self) -> dict[str, Any]:
        """Wait for an answer and return it; empty where the server has ended, or says nothing in time."""
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(self._answers.readline())
            if isinstance(found, dict):
                return found
        return {}

    def fileno(self) -> int:
        """The descriptor that can be read when there is an answer."""
        return self._control.fileno()

    def clean(self) -> None:
        """Have all that the last check has started killed, and the check reaped; the server ends if it cannot."""
        self._control.settimeout(_CLEAN_SECONDS)
        with contextlib.suppress(OSError):
            self._control.sendall(b".")
            # the word that the check has ended may still be there, too
            while (answer := self.answer()) and "left" not in answer:
                pass
            if answer:
                self._control.settimeout(None)
                return
        self.close()

    def ended(self) -> CannotJudge:
        """Return the error that says that the server has ended, and see that it has."""
        self.close()
        code = self._process.returncode
        return CannotJudge(
            f"the fork server of checker.preload ({self.python}, process {self.pid}) ended while a check ran "
            f"({death_of(code) or f'exit {code}'}), so that check says nothing. Go on with resume=RUN, and without "
            "checker.preload if a check ends the process that started it"
        )

    def close(self) -> None:
        """End it with all that it has started. Can be called again."""
        self._answers.close()
        self._control.close()
        if self._closed:
            return
        self._closed = True
        if self.alive:
            ProcessTree(self.pid, None).kill()
        self._guardian.sweep(self._env[MARK])
        self._process.wait()

    def _greeting(self, patience: float) -> str:
        """Wait until it is ready; return what is wrong, or ""."""
        self._control.settimeout(patience)
        answer = self.answer()
        self._control.settimeout(None)
        if "cwd" in answer:
            self._there = (int(answer["pid"]), str(answer["cwd"]))
            return ""
        if "wrong" in answer:
            return str(answer["wrong"])
        if self._process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)  # its socket closes a moment before it ends
        code = self._process.returncode
        if code is None:
            return f"did not import them within {patience:g} s"
        return f"ended while it imported them ({death_of(code) or f'exit {code}'})"


class ForkServers:
    """Servers of one kind, each lent to one check at a time: as many as there are checks at once. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[ForkServer] = []
        self._ended = False

    @contextlib.contextmanager
    def lent(self, python: str, script: str, start: Callable[[], ForkServer]) -> Iterator[ForkServer]:
        """Lend one of this interpreter and script; ``start`` makes it where there is none, and may raise.

        It is kept, unless what is done with it raises.
        """
        server = self._taken(python, script) or start()
        try:
            yield server
        except BaseException:
            server.close()
            raise
        with self._lock:
            kept = server.alive and not self._ended
            if kept:
                self._idle.append(server)
        if not kept:
            server.close()

    def close(self) -> None:
        """End those that are idle; one that is at work ends with its check."""
        with self._lock:
            self._ended, idle, self._idle = True, self._idle, []
        for server in idle:
            server.close()

    def _taken(self, python: str, script: str) -> ForkServer | None:
        while True:
            with self._lock:
                found = self._idle.pop() if self._idle else None
            if found is None or (found.alive and (found.python, found.script) == (python, script)):
                return found
            found.close()  # of another interpreter, which holds memory for nothing


class Starters(ForkServers):
    """Servers without modules, which start the commands that are not forked; none but on Linux."""

    def __init__(self, guardian: Guardian) -> None:
        super().__init__()
        self._guardian = guardian
        self._ended = sys.platform != "linux"

    @contextlib.contextmanager
    def starter(self) -> Iterator[ForkServer | None]:
        """Lend one for a command; None: it has to be started otherwise."""
        with contextlib.ExitStack() as stack:
            server = None
            if not self._ended:
                with contextlib.suppress(UsageError, OSError):
                    server = stack.enter_context(self.lent(sys.executable, "", self._start))
            yield server

    def _start(self) -> ForkServer:
        where: Mapping[str, Any] = {"cwd": Path("/"), "env": os.environ, "guardian": self._guardian}
        return ForkServer(sys.executable, "", (), patience=FORK_SECONDS, **where)


class ForkedCheck:
    """A process that a server has forked, which leads a session of its own.

    ``returncode``: its exit code, negative if it died by a signal; None: the server has not said that.
    """

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.server, self.pid = server, pid
        self.returncode: int | None = None
        self._answered = False

    def answered(self) -> bool:
        """Whether the server has said how it ended, or says no more (`lost`)."""
        if not self._answered and select.select([self.server], [], [], 0)[0]:
            self._answered = True
            answer = self.server.answer()
            if "ended" in answer:
                self.returncode = int(answer["ended"])
        return self._answered

    @property
    def lost(self) -> bool:
        """Whether the server is gone, so that nobody knows how it ends."""
        return self.returncode is None and (self._answered or not self.server.alive)

    def wait(self) -> None:
        """Have it reaped, and all killed that it has started."""
        self.server.clean()


@dataclass(frozen=True)
class CommandEnd:
    """How a command ended.

    ``returncode``: its exit code, negative if it died by a signal; None if it was stopped or did not start. ``death``:
    as in ``Reply``: a signal, ``timeout``, ``memory`` or `OUT_OF_MEMORY`. ``cannot_start``: one line that says why it
    did not start. ``left_out``: bytes of its output, from the middle, that the log does not hold.
    """

    returncode: int | None
    death: str | None
    cannot_start: str | None
    seconds: float
    peak_rss_mb: float
    left_out: int = 0


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
) -> CommandEnd:
    """Run ``argv`` (no shell) in ``cwd`` with the whole environment ``env`` and wait for its end.

    Stdout and stderr go to ``log`` (its middle is left out beyond 32 MiB), stdin is empty. ``timeout``: seconds.
    ``memory_mb``: resident MiB of the command and its descendants together; None: a share of what the machine has
    (`machine.share_mb`), and then the death is `OUT_OF_MEMORY`. What it has started and left behind is killed when it
    ends, wherever that has gone. ``lease``: goes over to the command and to all that it starts. ``server``: forks the
    process, in place of a start of the interpreter that ``argv`` names. Raises OSError only if ``log`` cannot be
    written, CannotJudge where the server ends.
    """
    began = now()
    fd = os.open(log, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        marked = guardian.marked({**env, **(lease.environment if lease else {})})
        try:
            process = (
                server.fork(argv, cwd=cwd, env=marked, log=fd, lease=lease)
                if server
                else start(list(argv), cwd=cwd, env=marked, log=fd, fds=lease.fds if lease else ())
            )
        except (OSError, ValueError, IndexError) as error:
            if lease:
                lease.close()
            return CommandEnd(None, None, _why(argv, cwd, error), now() - began, 0.0)
        guardian.add(process.pid)
        if lease:
            lease.hand_over(process.pid)
        bounded = BoundedLog(fd, JUDGED_BYTES)
        return _supervise(process, TimeLimit(began, timeout), memory_mb, bounded, guardian, marked[MARK])
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
    kills = guardian.kills
    forked = process if isinstance(process, ForkedCheck) else None
    tree = ProcessTree(process.pid, memory_mb, forked.server.pid if forked else None)
    stopped = "interrupted"
    try:
        # the first look comes at once: a short command is to be measured as well
        stopped = tree.look(alone=True) or (
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
            guardian.sweep(mark)
        guardian.remove(process.pid)
        process.wait()
        left_out = log.trim()
    code = None if stopped else process.returncode
    if forked and lost and not stopped:
        if guardian.kills == kills:
            raise forked.server.ended()
        code = -signal.SIGKILL
    death = stopped or (death_of(code) if code is not None else None)
    return CommandEnd(code, death, None, limit.spent(), tree.peak_mb, left_out)


def _why(argv: Sequence[str], cwd: Path, error: Exception) -> str:
    if not argv:
        return "the command is empty"
    if not Path(cwd).is_dir():
        return f"the folder to run it in does not exist: {cwd}"
    if isinstance(error, FileNotFoundError):
        return f"no such program: {argv[0]} (neither on PATH nor a file in {cwd}, or its #! line names no program)"
    if isinstance(error, PermissionError):
        return f"not allowed to run {argv[0]}: is it executable?"
    return f"{argv[0]}: {getattr(error, 'strerror', None) or error}"
