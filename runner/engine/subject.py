"""What a trial means in files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from runner.model.files.candidate_store import Store
from runner.model.graph.cut import Cut, CutError
from runner.model.graph.graph_index import Graph, needed
from runner.model.values.recorded import TensorFile
from runner.verdict import Candidate, Invalid, Sample
from strategies.search import Closure, Space, Trial


class Subject(Protocol):
    """Elements with their structure, and a candidate for any set of them."""

    @property
    def space(self) -> Space:
        """The elements, in order."""

    def identity(self) -> dict[str, str]:
        """All that decides, besides the trial, what a candidate is in files: a verdict is kept under it.

        Two subjects with the same identity make the same candidate of the same trial. What the context of a run says
        of its own (the model's content, its inputs, the checker, the backends) need not be in it.
        """

    def names(self, trial: Trial) -> tuple[str, ...]:
        """What a person calls the elements of ``trial``."""

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Write the candidate of ``trial`` into ``folder``, which exists and is empty.

        The empty trial is the control: the most harmless candidate there is.
        """


@dataclass(frozen=True)
class Kept:
    """What a trial keeps of a graph: these nodes of it.

    ``inside``: what is searched is inside one of them. ``carried``: elements that come along where one needs them.
    """

    graph: Graph
    nodes: Trial
    inside: bool = False
    carried: frozenset[int] = frozenset()

    @property
    def present(self) -> Trial:
        """All top-level nodes of the candidate."""
        found = needed(self.graph, self.nodes.elements, self.carried)
        return Trial(self.nodes.elements | found) if found else self.nodes


class Cutting(Subject, Protocol):
    """A subject that cuts models."""

    @property
    def closure(self) -> Closure:
        """Which of its inputs and outputs stay."""

    @property
    def store(self) -> Store:
        """The store of its weights."""

    def cut(self, trial: Trial) -> Cut:
        """Cut a trial out. Raises CutError."""

    def samples(self, made: Cut) -> tuple[Sample, ...]:
        """Return what a cut is fed, and what its outputs should be, for each sample."""

    def kept(self, trial: Trial) -> Kept:
        """Return the top-level nodes of a trial."""


def cutting(subject: Subject) -> Cutting:
    """Return ``subject`` as one that cuts models; only those are reduced."""
    assert hasattr(subject, "cut")
    return cast(Cutting, subject)


def cut_candidate(
    subject: Cutting,
    store: Store,
    trial: Trial,
    folder: Path,
    why_not: Callable[[Cut], str | None],
    *,
    draws: bool | None = None,
) -> Candidate | Invalid:
    """Write the candidate of a trial that is cut out; ``why_not``: why a cut is no question, None or "": it is one.

    ``draws``: whether it draws random numbers; None: that is looked up in it.
    """
    try:
        made = subject.cut(trial)
        if why := why_not(made):
            return Invalid(why)
        samples, path = subject.samples(made), store.write(made.model, folder)
    except CutError as error:
        return Invalid(str(error))
    draws = bool(Graph.of(made.model).drawing) if draws is None else draws
    return Candidate(path, folder, trial, samples, nodes=subject.names(trial), draws=draws, temporary=True)


def kept(subject: Subject, trial: Trial) -> Kept | None:
    """Return the top-level nodes that a trial keeps; None for a subject that cuts no models."""
    return cast(Cutting, subject).kept(trial) if hasattr(subject, "kept") else None


def nodes_of(subject: Subject, trial: Trial) -> Trial:
    """Return what a person is told that a trial has: the nodes of its candidate, where it cuts models."""
    whole = kept(subject, trial) if trial else None
    return whole.present if whole and not whole.inside else trial


def values_digest(samples: Iterable[Mapping[str, TensorFile]]) -> str:
    """Return what stands for the values of samples in the identity of a subject or a run; their order counts."""
    digest = hashlib.sha256()
    for sample in samples:
        for name, value in sample.items():
            digest.update(name.encode() + b"\0" + value.path.read_bytes())
        digest.update(b"\1")
    return digest.hexdigest()
