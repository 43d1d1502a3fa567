"""What every checker is, checks around another check, and the checker that settings choose.

What every checker is: candidate in, verdict out; a crash of what is under test is a result, not an error.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from runner.schema.installed_choices import implementation
from runner.schema.root import Settings
from runner.verdict import Verdict

if TYPE_CHECKING:
    from runner.verdict import Candidate
    from runner.workers.guardian import Guardian
    from runner.workers.pool import Pool


class Checker(Protocol):
    """Judges candidates. `check` may be called from several threads at once. Most have nothing to settle.

    ``name``: the registry's name. ``wants_feeds``: whether it needs values for the candidate's inputs.
    """

    @property
    def name(self) -> str:
        """The name under which the registry knows it."""

    @property
    def wants_feeds(self) -> bool:
        """Whether candidates need recorded values (`Candidate.samples`)."""

    def check(self, candidate: Candidate) -> Verdict:
        """Judge one candidate.

        Raises nothing for what a model or a user's check does. ``UsageError`` where the configuration cannot be
        followed (it would write over a user's file), ``CannotJudge`` where the check itself has changed since the run
        began, ``NotTried`` where the machine did not let it be made, ``KeyboardInterrupt`` where a person stops
        answering.
        """

    def settle(self, verdict: Verdict) -> None:
        """Hear the verdict on the whole model (fresh or from a journal), once, before the search."""
        return

    def reset(self) -> bool:
        """Forget what `settle` fixed: another failure of the same model will be studied.

        Return whether verdicts depend on that: those so far then say nothing about another failure.
        """
        return False

    def identity(self) -> dict[str, str]:
        """What the verdicts depend on besides the candidate: settings, argv, digests of the files it names."""

    def describe(self) -> str:
        """The exact command or function, for messages."""


@dataclass(frozen=True)
class Tools:
    """What a checker works with.

    ``run_folder``: logs are named relative to it. ``cwd``: where the user stands; commands run there and relative
    paths of the configuration start there. ``ending``: is closed after the last check, and takes what has to end then.
    """

    pool: Pool
    guardian: Guardian
    run_folder: Path
    cwd: Path
    ending: ExitStack = field(default_factory=ExitStack)

    def relative(self, path: Path) -> str:
        """``path`` as it is written into a verdict."""
        return Path(os.path.relpath(path, self.run_folder)).as_posix()

    def at(self, path: str) -> Path:
        """A path of the configuration, from where the user stands (``~`` is expanded)."""
        return self.cwd / Path(path).expanduser()


# A check around another one.


class DelegatingChecker:
    """What it does not say for itself, the check that it stands around says. The model is run in any case."""

    checker: Checker

    @property
    def name(self) -> str:
        """The name of the checker."""
        return self.checker.name

    @property
    def wants_feeds(self) -> bool:
        """A model that is run, or built, wants its inputs."""
        return True

    def settle(self, verdict: Verdict) -> None:
        """Hand it on."""
        self.checker.settle(verdict)

    def reset(self) -> bool:
        """Hand it on."""
        return self.checker.reset()

    def identity(self) -> dict[str, str]:
        """The checker's."""
        return self.checker.identity()

    def describe(self) -> str:
        """The checker's."""
        return self.checker.describe()


def inner(checker: Checker) -> Checker:
    """Return the check that another one stands around; itself where none does."""
    return checker.checker if isinstance(checker, DelegatingChecker) else checker


def feeds_inputs(checker: Checker) -> bool:
    """Whether a check feeds the inputs that it is given, as far as that is known."""
    made = inner(checker)
    return bool(getattr(made, "takes_inputs", made.wants_feeds))


# From the settings of a checker to the check. A configuration chooses among settings; it names no code to import.


def build(settings: Settings, tools: Tools) -> Checker:
    """Make the checker that ``settings.checker`` is about.

    Raises UsageError for a name that is not known, or of another checker, and for settings that it cannot follow.
    """
    made: Checker = implementation("checker", settings.checker)(settings.checker, tools, settings)
    return made
