"""One worker process, and the interpreter that it runs under.

One worker process, seen from the job: it is started, asked one thing at a time, and killed whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.workers.gpu_leases import Kind, Lease
from runner.workers.guardian import MARK, Guardian, kill_group
from runner.workers.process_tree import BoundedLog, ProcessTree, TimeLimit, death_of, has_ended, now, start
from runner.workers.reply import (
    KILLED,
    OUT_OF_MEMORY,
    UNREADY,
    Failure,
    Reply,
    WorkerKilledError,
    WorkerStartError,
    refused_memory,
)

# The interpreter that a worker runs under: where it is, and what it finds in its environment.


def find_python(python: str | None) -> str:
    """Return the interpreter of this name: a path, a program on PATH, a virtual environment's folder; None is this one.

    Raises WorkerStartError if there is none.
    """
    if python is None:
        return sys.executable
    path = Path(python).expanduser()
    if path.is_dir():
        path = path / "bin" / "python"
    found = shutil.which(str(path)) if "/" in str(path) or python.startswith("~") else shutil.which(python)
    if found is None:
        message = (
            f"there is no interpreter python={python}: give a path, a program on PATH or a virtual environment's folder"
        )
        raise WorkerStartError(message)
    return found if Path(found).is_absolute() else str(Path.cwd() / found)


def environment_for(python: str) -> dict[str, str]:
    """Return the job's environment; another interpreter must not find this one's modules through it."""
    environment = dict(os.environ)
    if python != sys.executable:
        for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"):
            environment.pop(name, None)
    return environment


_CHILD = Path(__file__).with_name("worker_main.py")
_START_SECONDS = 120.0
# imports of a runtime on a cold disk take their time, which is not the call's
PREPARE_SECONDS = 300.0
# a shell that waits for a process which died by signal N ends with 128 + N
_SHELL_DEATH = 128
# a worker that has grown beyond this is not kept for the next call
_KEPT_MB = 2048.0
OLDEST_PYTHON = (3, 8)


class Worker:
    """A child process in a session of its own. Not thread-safe: the pool lends it to one thread at a time.

    ``folder``: takes logs of calls, under the next of ``numbers``. ``lease``: goes over to the process at its start and
    ends with it. ``reusable``: whether it may serve again. Raises WorkerStartError if it cannot be asked,
    WorkerKilledError if it was killed.
    """

    def __init__(
        self,
        python: str,
        folder: Path,
        numbers: Iterator[int],
        guardian: Guardian,
        lease: Lease | None = None,
    ) -> None:
        self.python = python
        self.kind: Kind | None = lease.kind if lease else None
        self.served = 0
        self.reusable = False
        self.idle_since = 0.0
        self._folder, self._numbers = folder, numbers
        self._prepared: set[str] = set()
        self._guardian = guardian
        self._returncode: int | None = None
        self._buffer = bytearray()
        # nameless: it goes with the process, even if the job is killed
        handle, name = tempfile.mkstemp(prefix=".worker-", suffix=".log", dir=folder)
        os.close(handle)
        fd = os.open(name, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        Path(name).unlink()
        self._log = BoundedLog(fd)
        # pipes of their own and not 0 and 1: whatever prints at its start must not be taken for an answer
        reader, self._requests = os.pipe()
        self._answers, writer = os.pipe()
        told = (reader, writer, lease.fds[0] if lease else 0)
        environment = guardian.marked(environment_for(python) | (lease.environment if lease else {}))
        self._mark = environment[MARK]
        try:
            fds = (reader, writer, *(lease.fds if lease else ()))
            self._process = start([python, str(_CHILD), *map(str, told)], env=environment, log=fd, fds=fds)
        except OSError as error:
            for mine in (fd, self._requests, self._answers):
                os.close(mine)
            if lease:
                lease.close()
            raise WorkerStartError(f"cannot start the interpreter {python}: {error.strerror or error}") from error
        finally:
            os.close(reader)
            os.close(writer)
        if lease:
            lease.hand_over(self._process.pid)
        os.set_blocking(self._answers, False)
        guardian.add(self._process.pid)
        try:
            self._greet()
        except BaseException:
            self.discard()
            raise

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._returncode is None and not has_ended(self._process.pid)

    def call(
        self, op: str, args: Mapping[str, Any], timeout: float | None, memory_mb: int | None, *, keep_log: bool
    ) -> Reply:
        """Make one call; the parameters are those of `Pool.call`.

        A worker that dies or is stopped is gone with all that it has started when this returns.
        """
        self._log.reset()
        ready = self._prepare(op, args, memory_mb)
        reply = ready if ready and ready.value is None else self._ask(op, args, timeout, memory_mb)
        self.served += 1
        self.reusable = self.reusable and not (self.kind == "gpu" and reply.erred)
        log = self._keep_log() if keep_log or reply.failure or reply.death else None
        if reply is ready and reply.death not in (None, KILLED, "memory", OUT_OF_MEMORY):
            told = f"; what it printed lies in {log}" if log else ""
            failure = Failure("setup", UNREADY, f"importing what runs it ended with {reply.death}{told}")
            reply = replace(reply, failure=failure, death=None)
        if memory_mb is None and (reply.failure or reply.death) and refused_memory(self._said(reply)):
            reply = replace(reply, failure=None, death=OUT_OF_MEMORY)
        return replace(reply, log=log)

    def _prepare(self, op: str, args: Mapping[str, Any], memory_mb: int | None) -> Reply | None:
        """Import what the operation needs; None: that was done before."""
        backend = args.get("backend") or {}
        need = f"{op} {backend.get('name', '')} {backend.get('flavor', '')}"
        if need in self._prepared:
            return None
        reply = self._ask("prepare", {"op": op, "args": args}, PREPARE_SECONDS, memory_mb)
        if reply.value is not None:
            self._prepared.add(need)
        return reply

    def _said(self, reply: Reply) -> str:
        """Return why a call failed, in one line whatever a name in it holds, or what it printed before it died."""
        if reply.failure:
            return " ".join(f"{reply.failure.type}: {reply.failure.message}".split())
        return self._log.text().decode("utf-8", "replace")

    def _keep_log(self) -> Path | None:
        text = self._log.text()
        if not text:
            return None
        path = self._folder / f"call-{next(self._numbers):05d}.log"
        path.write_bytes(text)
        return path

    def _ask(self, op: str, args: Mapping[str, Any], timeout: float | None, memory_mb: int | None) -> Reply:
        """Send one request and wait for its answer."""
        limit = TimeLimit(now(), timeout)
        tree = ProcessTree(self._process.pid, memory_mb)
        line = json.dumps({"op": op, "args": dict(args)}, default=os.fspath) + "\n"
        answer: dict[str, Any] | None = None
        stopped = "interrupted"
        try:
            view = memoryview(line.encode())
            with contextlib.suppress(BrokenPipeError):
                while view:
                    view = view[os.write(self._requests, view) :]
            answer, stopped = self._await(tree, limit)
        finally:
            if answer is None:
                tree.kill()
                self.kill()
        peak = max(tree.peak_mb, (answer or {}).get("peak_mb", 0.0))
        if answer is not None and memory_mb is not None and peak > memory_mb:
            # faster than a look: the answer must not depend on when somebody looked
            self.kill()
            answer, stopped = None, "memory"
        death = None if answer is not None else stopped or self._death()
        answer = answer or {}
        self.reusable = death is None and answer.get("rss_mb", 0.0) < _KEPT_MB
        failure = Failure(**answer["error"]) if answer.get("error") else None
        return Reply(answer.get("value"), failure, death, limit.spent(), peak)

    def kill(self) -> None:
        """Kill its process group and all else that it has started, and reap it. Can be called again."""
        if self._returncode is not None:
            return
        kill_group(self._process.pid)
        self._guardian.sweep(self._mark)
        self._guardian.remove(self._process.pid)
        self._returncode = self._process.wait()
        os.close(self._requests)
        os.close(self._answers)

    def interrupt(self) -> None:
        """Kill it from another thread; the one that waits for an answer sees that, and kills what it has started."""
        if self._returncode is None:
            kill_group(self._process.pid)

    def discard(self) -> None:
        """Kill it and close its log: nothing of it is left."""
        self.kill()
        if self._log.fd >= 0:
            os.close(self._log.fd)
            self._log.fd = -1

    def _death(self) -> str:
        code = self._returncode or 0
        if self._behind and code > _SHELL_DEATH:
            code = _SHELL_DEATH - code
        return death_of(code) or f"exit {code}"

    def _greet(self) -> None:
        """Wait until it can be asked. Raises WorkerStartError if it cannot, WorkerKilledError if it was killed."""
        tree = ProcessTree(self._process.pid, None)
        answer, stopped = self._await(tree, TimeLimit(now(), _START_SECONDS))
        version = answer.get("hello") if answer else None
        # ``python`` may be a script that starts the interpreter and waits for it
        self._behind = (answer or {}).get("pid") != self._process.pid
        if version and tuple(version) >= OLDEST_PYTHON:
            return
        self.kill()
        if not version and not stopped and self._death() == KILLED:
            raise WorkerKilledError(f"{self.python} was killed (SIGKILL) at its start, and so was another one")
        if version:
            why = f"is Python {'.'.join(map(str, version))}, workers need {'.'.join(map(str, OLDEST_PYTHON))} or newer"
        elif stopped:
            why = f"did not answer within {_START_SECONDS:g} s; is it a Python interpreter?"
        else:
            lines = self._log.text().decode(errors="replace").strip().splitlines()
            why = f"ended at its start ({self._death()}): {lines[-1] if lines else 'it printed nothing; is it Python?'}"
        raise WorkerStartError(f"the interpreter {self.python} {why}")

    def _await(self, tree: ProcessTree, limit: TimeLimit) -> tuple[dict[str, Any] | None, str]:
        """Wait for an answer. Return it, or None and why the worker has to be stopped ("" if it ended by itself)."""
        stopped = tree.wait(limit, self._log, self._answers, self._has_answered)
        if stopped:
            return None, stopped
        line = bytes(self._buffer)
        self._buffer.clear()
        with contextlib.suppress(ValueError):
            answer = json.loads(line)
            if isinstance(answer, dict):
                return answer, ""
        return None, "" if has_ended(tree.pid) else "broken answer"

    def _has_answered(self) -> bool:
        """Read what is there; return whether that is a whole line."""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._answers, 1 << 20):
                self._buffer += chunk
        return self._buffer.endswith(b"\n")
