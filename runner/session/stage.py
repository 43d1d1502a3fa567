"""Stages: what is tried on an answer to make it smaller in other ways than by leaving out nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from runner.jobs.reduce.nested.subject import Inside
from runner.jobs.reduce.subgraph import Subgraph
from runner.jobs.reduce.trim import Trimming
from runner.session.judge import Judge
from runner.session.subject import Subject
from strategies.outcome import Answer
from strategies.search import Search
from strategies.trial import Trial


@dataclass(frozen=True)
class Standing:
    """An answer as it stands: a trial of ``judge.subject``. ``origin``: the stages that led here."""

    judge: Judge
    trial: Trial
    origin: tuple[str, ...] = ()

    @property
    def _base(self) -> Subject:
        subject = self.judge.subject
        return subject.base if isinstance(subject, Trimming) else subject

    @property
    def owner_kept(self) -> bool:
        """Whether the nodes of the trial are inside an owner, and all of the model around it is still there."""
        return isinstance(self._base, Inside)

    def top_level(self, subject: Subject) -> Trial | None:
        """Return the answer as a trial of ``subject``, where it still consists of nodes of the same graph."""
        own = self.judge.subject
        trial = own.trial if isinstance(own, Trimming) else self.trial
        if isinstance(self._base, Subgraph) and isinstance(subject, Subgraph) and self._base.graph is subject.graph:
            return trial
        return None

    @property
    def size(self) -> int:
        """How many top-level nodes the answer has."""
        base = self._base
        return len(base.level.graph.nodes) if isinstance(base, Inside) else len(self.judge.subject.names(self.trial))


@dataclass(frozen=True)
class Stage:
    """A search over another subject, in which the answer is the whole.

    ``whole``: the answer, as a trial of the judge's subject. ``known``: it is the same candidate as before, so that its
    failure is known. ``purpose``: what its checks are counted as. ``without``: judges a single trial, the answer with
    nothing left of what this stage searches; where that fails too, the failure is elsewhere.
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


class Refiner(Protocol):
    """Says what to try next."""

    def next(self, standing: Standing) -> Stage | None:
        """Return the next stage to try on an answer; None: it is as small as it gets."""
        ...
