"""Groups failures into bugs: each is compared with one of each bug that is known, and joins the first that it is.

Two failures are one bug where what heals one heals the other. That is known where the same was found for both; else it
is asked, of their own small models. Where nothing is known to heal either, they are one if they look the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from runner.sweeps.bugs.failure import Failure, Remedy

CHECKED, LIKENESS, FIRST = "checked", "by likeness", "the first of its kind"

Heals = Callable[[Remedy, Failure], bool]
"""Whether a remedy of one failure heals another one; a check."""


@dataclass(frozen=True)
class Member:
    """A failure of a bug, and why it is one of it."""

    failure: Failure
    how: str
    said: str = ""


@dataclass
class Bug:
    """Failures of one kind; the first is the smallest."""

    members: list[Member] = field(default_factory=list)

    @property
    def smallest(self) -> Failure:
        """The failure that stands for all of them."""
        return self.members[0].failure


def grouped(failures: Sequence[Failure], heals: Heals) -> list[Bug]:
    """Return the bugs, the one with most failures first."""
    bugs: list[Bug] = []
    for failure in sorted(failures, key=lambda one: (one.size, str(one.kept.folder))):
        known = sorted((bug for bug in bugs if failure.may_be(bug.smallest)), key=lambda bug: _rank(failure, bug))
        joined = next(((bug, member) for bug in known if (member := _one_of(failure, bug.smallest, heals))), None)
        if joined:
            joined[0].members.append(joined[1])
        else:
            bugs.append(Bug([Member(failure, FIRST)]))
    return sorted(bugs, key=lambda bug: -len(bug.members))


def _rank(failure: Failure, bug: Bug) -> tuple[bool, bool, int]:
    """The likeliest bug comes first: it spares questions."""
    other = bug.smallest
    return not failure.shared(other), failure.form != other.form, -len({*failure.operators} & {*other.operators})


def _one_of(failure: Failure, other: Failure, heals: Heals) -> Member | None:
    """Return the failure as a member of the other's bug, or None."""
    if not failure.remedies and not other.remedies:
        return Member(failure, LIKENESS, "nothing is known to heal it") if failure.alike(other) else None
    if shared := failure.shared(other):
        return Member(failure, CHECKED, f"both pass with {shared[0].name}")
    for remedy in other.remedies:
        if heals(remedy, failure):
            return Member(failure, CHECKED, f"it passes with {remedy.name}, as the smallest does")
    for remedy in failure.remedies:
        if heals(remedy, other):
            return Member(failure, CHECKED, f"the smallest passes with {remedy.name}, as it does")
    return None
