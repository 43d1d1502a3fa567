"""Fork servers for a command that runs a Python script: what it imports is imported once (``checker.preload``)."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from runner.errors import UsageError
from runner.workers.fork_server import ForkServer
from runner.workers.guardian import Guardian

_PYTHON = re.compile(r"python[\d.]*[a-z]?|\{python\}")


class Preloaded:
    """As many servers as there are checks at once. Safe for threads.

    ``words``: the command's, with placeholders. ``modules``: to be imported, in this order; none: there are no servers.
    ``env``: the environment that all checks have in common. Raises UsageError for a command that is not `PYTHON
    SCRIPT.py ...`, and for a module that has no name of one.
    """

    def __init__(
        self, words: Sequence[str], modules: Sequence[str], *, cwd: Path, env: Mapping[str, str], guardian: Guardian
    ) -> None:
        if modules:
            _confirm(words, modules)
        self._modules = tuple(modules)
        self._cwd, self._env, self._guardian = cwd, env, guardian
        self._lock = threading.Lock()
        self._idle: list[ForkServer] = []
        self._started = False

    @contextmanager
    def server(self, argv: Sequence[str], *, fresh: bool) -> Iterator[ForkServer | None]:
        """Lend a server for one check; None where there are none, or it is to share nothing with others (``fresh``).

        The first check has one started, whether it uses it or not: what is wrong with the modules is said before any
        check counts. Raises UsageError where they cannot be imported.
        """
        if not self._modules or (fresh and self._started):
            yield None
            return
        server = self._taken(argv[0], argv[1])
        self._started = True
        if fresh:
            self._give_back(server)
            yield None
            return
        try:
            yield server
        except BaseException:
            server.close()
            raise
        self._give_back(server)

    def close(self) -> None:
        """End those that are idle; one that is at work ends with its check's error."""
        with self._lock:
            idle, self._idle = self._idle, []
        for server in idle:
            server.close()

    def _give_back(self, server: ForkServer) -> None:
        with self._lock:
            self._idle.append(server)

    def _taken(self, python: str, script: str) -> ForkServer:
        while True:
            with self._lock:
                found = self._idle.pop() if self._idle else None
            if found and found.alive and (found.python, found.script) == (python, script):
                return found
            if not found:
                return ForkServer(python, script, self._modules, cwd=self._cwd, env=self._env, guardian=self._guardian)
            found.close()  # of another interpreter, which holds memory for nothing


def _confirm(words: Sequence[str], modules: Sequence[str]) -> None:
    fitting = len(words) > 1 and _PYTHON.fullmatch(Path(words[0]).name) and re.fullmatch(r"[^-].*\.py", words[1])
    if not fitting:
        raise UsageError(
            f"checker.preload={list(modules)}: it needs a command that runs a script, checker.command='python check.py "
            f"{{model}}', and this one is {' '.join(words[:2])!r} ... . Write it so, without options of Python, or "
            "leave checker.preload out"
        )
    wrong = next((name for name in modules if not all(part.isidentifier() for part in name.split("."))), None)
    if wrong is not None:
        raise UsageError(
            f"checker.preload: {wrong!r} is no name of a module. Write names as in Python's import: "
            "checker.preload=[onnx,onnxruntime]"
        )
    if sys.platform != "linux":
        raise UsageError(
            "checker.preload works on Linux only: what forked checks leave behind cannot be found elsewhere. Leave it "
            "out, or write the check as a function: checker=python checker.file=check.py"
        )


def common_environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return what all checks have in their environment; ``own``: ``checker.env``."""
    # what a check prints and what it raises come in the order in which they happened
    return {"PYTHONUNBUFFERED": "1", **os.environ, **own}
