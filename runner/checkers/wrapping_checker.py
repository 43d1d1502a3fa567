"""A check around another one."""

from __future__ import annotations

from runner.checkers.checker import Checker
from runner.verdict import Verdict


class Around:
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
    return checker.checker if isinstance(checker, Around) else checker
