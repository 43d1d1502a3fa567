"""Groups failures into bugs: each is compared with the bugs that are known, and joins the first that it is one of.

Two failures are one bug where all that heals one heals the other: one pass alone may have a part in several bugs. That
is known where the same was found for both, or both need the same passes and one remedy is in both (another release may
pass with fewer of them off); else it is asked, of their own small models. Where nothing is known to heal either, they
are one if they look the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from runner.sweeps.bugs.failure import Failure, ShownRemedy
from runner.text import listed

CHECKED, LIKENESS, FIRST = "checked", "by likeness", "the first of its kind"

Heals = Callable[[ShownRemedy, Failure], "bool | None"]
"""Whether a remedy of one failure heals another one; a check. None: it could not be judged."""


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

    @property
    def remedies(self) -> list[ShownRemedy]:
        """What heals any of them."""
        every = [remedy for member in self.members for remedy in member.failure.remedies]
        return list({one.overrides: one for one in every}.values())

    def shared(self, failure: Failure) -> list[ShownRemedy]:
        """Return what was shown to heal the failure, and one of these."""
        known = {one.overrides for one in self.remedies}
        return [one for one in failure.remedies if one.overrides in known]

    def worth_asking(self, failure: Failure) -> bool:
        """Whether the failure may be of this bug: a remedy is in both, or an operator."""
        return bool(self.shared(failure)) or not {*failure.operators}.isdisjoint(self.smallest.operators)


def grouped(failures: Sequence[Failure], heals: Heals) -> list[Bug]:
    """Return the bugs, the one with most failures first."""
    bugs: list[Bug] = []
    for failure in sorted(failures, key=lambda one: (one.size, str(one.kept.folder))):
        known = sorted((bug for bug in bugs if bug.worth_asking(failure)), key=lambda bug: _rank(failure, bug))
        joined = next(((bug, member) for bug in known if (member := _one_of(failure, bug, heals))), None)
        if joined:
            joined[0].members.append(joined[1])
        else:
            bugs.append(Bug([Member(failure, FIRST)]))
    return sorted(bugs, key=lambda bug: -len(bug.members))


def _rank(failure: Failure, bug: Bug) -> tuple[bool, bool, int]:
    """The likeliest bug comes first: it spares questions."""
    other = bug.smallest
    return not bug.shared(failure), failure.form != other.form, -len({*failure.operators} & {*other.operators})


def _one_of(failure: Failure, bug: Bug, heals: Heals) -> Member | None:
    """Return the failure as a member of a bug, or None."""
    if not failure.remedies and not bug.remedies:
        return Member(failure, LIKENESS, "nothing is known to heal it") if failure.alike(bug.smallest) else None
    known = bug.shared(failure)
    if known and failure.needed == bug.smallest.needed and failure.needed:
        passes = " and ".join(sorted(failure.needed))
        return Member(failure, CHECKED, f"it and the smallest need {passes}, and pass with {known[0].name}")
    shared, found = {one.overrides for one in known}, [one.name for one in known]
    questions = [*((one, failure) for one in bug.remedies), *((one, bug.smallest) for one in failure.remedies)]
    for remedy, asked in questions:
        healed = None if remedy.overrides in shared else heals(remedy, asked)
        if healed is False:
            return None
        found += [remedy.name] if healed else []
    return Member(failure, CHECKED, f"it and another pass with {listed(found)}") if found else None
