"""``in_process=True``: a check that runs in the process that asked for it, without a worker between them.

What is lost with it: a check that crashes ends that process, one that hangs hangs it, its memory is not watched, and a
GPU that it uses is not leased. Verdicts are never used again, since nothing says what the function depends on.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from runner.api.pickled_functions import returns_nothing
from runner.backends.user_functions import judged
from runner.checkers.checker import Tools
from runner.checkers.python import PythonCheck
from runner.errors import UsageError
from runner.schema.checker import PythonChecker
from runner.schema.root import Settings
from runner.schema.run import LeaseMode
from runner.schema.settings import settings
from runner.workers.reply import Failure, Reply

_ISOLATED = ("timeout", "memory_mb", "python")
FILE = '''\
"""In place of a check that ran in the process of the program that called winnow (run {number})."""


def check(model, inputs, expected):
    raise RuntimeError("the check of this run was a function of a program (in_process=True); call that again")
'''

# settings are written into files, and a function need not fit into one
_FUNCTION: ContextVar[Callable[..., Any]] = ContextVar("function")


@settings
class InProcessChecker(PythonChecker):
    """A function of the program that asked, called by that program's own process."""

    implementation = "runner.api.in_process_check:InProcessCheck"
    needs_caller = True


@contextlib.contextmanager
def giving(function: Callable[..., Any] | None) -> Iterator[None]:
    """Let checks in this process call ``function`` inside; None: there are none."""
    before = None if function is None else _FUNCTION.set(function)
    try:
        yield
    finally:
        if before is not None:
            _FUNCTION.reset(before)


def without_worker(given: Settings, asked: Mapping[str, Any]) -> Settings:
    """Return the settings of a run whose check is called in this process; ``asked``: what was given of the checker.

    Raises UsageError where something is wanted that only a process of its own can give.
    """
    wanted = [f"checker={{{key!r}: {asked[key]!r}}}" for key in _ISOLATED if asked.get(key) is not None]
    wanted += [f"workers: {given.workers.count} checks at once"] * (given.workers.count > 1)
    wanted += ["workers: a lease of a GPU"] * (given.workers.lease is LeaseMode.gpu)
    wanted += [f"resume={given.resume!r}"] * (given.resume is not None)
    if wanted:
        raise UsageError(
            f"in_process=True: {wanted[0]} needs a check in a process of its own. Leave out one of the two"
        )
    checker = given.checker
    assert isinstance(checker, PythonChecker)
    held = {name: getattr(checker, name) for name in vars(checker)}
    return replace(given, checker=InProcessChecker(**held | {"timeout": None}))


class InProcessCheck(PythonCheck):
    """A check whose function is called here."""

    def __init__(self, settings: PythonChecker, tools: Tools, run: Settings | None = None) -> None:
        super().__init__(settings, tools, run)
        self._function = _FUNCTION.get()

    def describe(self) -> str:
        """Return the function's name."""
        return f"{getattr(self._function, '__qualname__', 'the function')} (in the calling process)"

    def _called(self, arguments: Mapping[str, Any], *, fresh: bool) -> Reply:
        begun = time.monotonic()
        value, failure = None, None
        try:
            value = judged(self._function, dict(arguments), silent=returns_nothing(self._function), told=False)
        except Exception as error:  # noqa: BLE001 - it returned what is no verdict
            failure = Failure("check", type(error).__name__, str(error))
        return Reply(value, failure, None, time.monotonic() - begun, 0.0)
