"""The checkers by name. A configuration can only choose among these; it cannot name code to import."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from runner.checkers.checker import Checker, Tools
from runner.checkers.command.command import CommandCheck
from runner.checkers.interactive import InteractiveCheck
from runner.checkers.python import PythonCheck
from runner.checkers.runtime import RuntimeCheck
from runner.errors import UsageError
from runner.schema.checker import (
    AutoChecker,
    BuildsChecker,
    CommandChecker,
    CompareChecker,
    FiniteChecker,
    InteractiveChecker,
    PythonChecker,
    RunsChecker,
)
from runner.schema.root import Settings
from runner.schema.strategy import SubjectKind

Builder = Callable[[Settings, Tools], Checker]


def build(settings: Settings, tools: Tools) -> Checker:
    """Make the checker that ``settings.checker`` names.

    Raises UsageError for a name that is not known and for settings that the checker cannot follow.
    """
    name = settings.checker.name
    if name not in BUILDERS:
        raise UsageError(f"checker={name}: there is no such checker; there are {', '.join(sorted(BUILDERS))}")
    return BUILDERS[name](settings, tools)


def _command(settings: Settings, tools: Tools) -> Checker:
    checker = settings.checker
    if not isinstance(checker, CommandChecker):
        raise _mixed("command", checker)
    return CommandCheck(checker, tools)


def _interactive(settings: Settings, tools: Tools) -> Checker:
    checker = settings.checker
    if not isinstance(checker, InteractiveChecker):
        raise _mixed("interactive", checker)
    return InteractiveCheck(checker, tools)


def _python(settings: Settings, tools: Tools) -> Checker:
    checker = settings.checker
    if not isinstance(checker, PythonChecker):
        raise _mixed("python", checker)
    check = PythonCheck(checker, tools)
    if check.threshold.lacks_baseline and settings.strategy.subject is not SubjectKind.precision:
        raise UsageError(
            f"checker.max_drop={checker.max_drop} checker.max_rise={checker.max_rise} "
            f"strategy={settings.strategy.name}: which number is good? Give it, checker.baseline=0.76 (only "
            "strategy=precision measures it, on the model in high precision)"
        )
    return check


def _runtime(settings: Settings, tools: Tools) -> Checker:
    checker = settings.checker
    if not isinstance(checker, AutoChecker | BuildsChecker | CompareChecker | FiniteChecker | RunsChecker):
        raise _mixed(checker.name, checker)
    return RuntimeCheck(settings, checker, tools)


def _mixed(name: str, checker: object) -> UsageError:
    return UsageError(
        f"checker.name={name} beside the settings of {type(checker).__name__}: choose it with checker={name}"
    )


BUILDERS: Mapping[str, Builder] = {
    "auto": _runtime,
    "builds": _runtime,
    "command": _command,
    "compare": _runtime,
    "finite": _runtime,
    "interactive": _interactive,
    "python": _python,
    "runs": _runtime,
}
