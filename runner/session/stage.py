"""What a kind of run adds to a session: what comes before its search, stages that refine its answer, and its cause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from runner.judgment import SHOWN
from runner.session.cause import Cause, Inside
from runner.session.judge import Judge
from runner.session.subject import Kept, Subject, kept
from runner.verdict import Verdict
from strategies.outcome import Answer
from strategies.search import Done, Search
from strategies.trial import Trial

if TYPE_CHECKING:
    from runner.session.inquiry import Inquiry
    from runner.session.run_stages import HandedOver
    from runner.session.session import Session


@dataclass(frozen=True)
class Standing:
    """An answer as it stands: a trial of ``judge.subject``.

    ``origin``: the bodies that it is in, from the outermost on. ``inside``: what was shown of its nodes in the last of
    these; None: nothing, they fail alone.
    """

    judge: Judge
    trial: Trial
    origin: tuple[str, ...] = ()
    inside: Inside | None = None

    @property
    def proven_inside(self) -> bool:
        """Whether the nodes inside its owner are shown to be the cause."""
        return self.inside is not None and self.inside.cause.status in SHOWN

    @property
    def _kept(self) -> Kept | None:
        return kept(self.judge.subject, self.trial)

    @property
    def owner_kept(self) -> bool:
        """Whether the nodes of the trial are inside an owner, and all of the model around it is still there."""
        return self._kept is not None and self._kept.inside

    def top_level(self, subject: Subject) -> Trial | None:
        """Return the answer as a trial of ``subject``, where it still consists of nodes of the same graph."""
        own, whole = self._kept, kept(subject, subject.space.whole)
        same = own and whole and own.graph is whole.graph and not own.inside
        return own.nodes if own and same else None

    @property
    def size(self) -> int:
        """How many top-level nodes the answer has."""
        return len(self._kept.present) if self._kept else len(self.judge.subject.names(self.trial))


@dataclass(frozen=True)
class Stage:
    """A search over another subject, in which the answer is the whole.

    ``whole``: the answer, as a trial of the judge's subject. ``known``: it is the same candidate as before, so that its
    failure is known. ``purpose``: what its checks are counted as. ``without``: judges a single trial, the answer with
    nothing left of what this stage searches; where that fails too, the failure is elsewhere. ``prove``: shows what it
    found to be the cause.
    """

    name: str
    label: str
    judge: Judge
    start: Callable[[dict[Trial, Answer]], Search]
    origin: tuple[str, ...]
    whole: Trial
    purpose: str = "search"
    known: bool = False
    without: Judge | None = None
    prove: ProveInside | None = None


Refine = Callable[[Standing], "Stage | None"]
"""Returns the next stage to try on an answer; None: it is as small as it gets."""


class Opening(Protocol):
    """What is asked about the user's file, and the check, before the whole model."""

    def examine(self, session: Session) -> Verdict:
        """Return the verdict of the whole, once that is what is studied. Raises CannotJudge."""
        ...

    def confirm(self, session: Session, answer: Trial | None) -> None:
        """Raise CannotJudge for an answer that is none, or of a check that passes nothing."""
        ...


ProveCause = Callable[["Session", "HandedOver"], "tuple[HandedOver, Cause | None]"]
"""Finds out whether the failure arises inside an answer; returns the one that stands then, and what is known of it."""

ProveInside = Callable[["Session", "Inquiry", "Done"], "tuple[Inquiry, Done, Inside] | None"]
"""Finds out whether the failure arises in what a stage found; returns the answer that stands. None: none is shown."""
