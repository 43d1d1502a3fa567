"""The runs of a look at all tensors of a model: with marks, in as few runs as memory allows, and taken apart."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from runner import machine
from runner.jobs.job import Job
from runner.jobs.layerwise.findings import Findings, overflows
from runner.jobs.layerwise.marking import Marking
from runner.jobs.layerwise.memory_windows import halves, room_beside, windows
from runner.jobs.layerwise.subject import Layers
from runner.jobs.reduce.first_look.inner_values_subject import known
from runner.loading.recording_limits import MEMORY
from runner.report.sections.layers_section import NON_FINITE
from runner.schema.checker import FiniteChecker
from runner.schema.diagnosis import LayerwiseSettings
from runner.schema.strategy import chosen
from runner.session.judge import Judge
from runner.session.trust.check_counts import FIRST_LOOK
from runner.verdict import Verdict, rows_of
from runner.workers.leases.lease import OutOfTime
from strategies.outcome import Outcome
from strategies.trial import Trial

log = logging.getLogger(__name__)

MOST_HALVINGS = 100
"""Runs that may be spent on marks that hide the failure."""
APART = 3
"""A tensor that is made apart is fed, made and written: so many times its bytes."""

Window = tuple[str, ...]


@dataclass
class Look:
    """One look, and the rows of tensors so far: as the whole model makes them (``rows``), and of good values (``own``).

    ``subject``: the tensors that are marked. ``hidden``: those whose mark hides the failure. ``unanswered``: those with
    whose mark the model gives no values; ``silent``: what the first such run said. ``own_unknown``: what was said where
    there are no values of parts. ``peak_mb``: the most memory of a worker. ``stopped``: the budget ended it.
    """

    job: Job
    subject: Layers
    judge: Judge
    marking: Marking
    rows: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    own: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    hidden: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    silent: str = ""
    own_unknown: str = ""
    peak_mb: float = 0.0
    runs: int = 0
    stopped: bool = False

    @property
    def findings(self) -> Findings:
        """What is known so far; of a model of which nothing but the outputs was seen nothing is."""
        inner = not self.subject.tensors or self.own or not self.rows.keys().isdisjoint(self.subject.tensors)
        hides = self.marking.hides or bool(self.silent)
        return Findings(self.subject.base.graph, self.rows if inner else {}, self.own, hides=hides)

    @property
    def not_asked(self) -> list[str]:
        """The tensors of which nothing is known, since nobody asked any more."""
        known = {*self.rows, *self.own, *self.hidden, *self.unanswered}
        return [name for name in self.subject.tensors if name not in known]

    @cached_property
    def marked(self) -> list[Window]:
        """The tensors that are marked in each run."""
        return self._windows(self.subject.tensors, 1)

    @cached_property
    def apart(self) -> list[Window]:
        """The tensors whose own errors each run tells; only finite values can be fed."""
        if not self._settings.own or not self.job.settings.target.holds_inner_values:
            return []
        return self._windows([*known(self.subject.base, finite=True)], APART)

    def take(self, into: dict[str, Mapping[str, Any]], rows: Iterable[Mapping[str, Any]]) -> None:
        """Keep rows; of a tensor that was looked at several times (an output of the model) the first."""
        for row in rows:
            into.setdefault(row["tensor"], {**row, "bad": self.is_bad(row)})

    def is_bad(self, row: Mapping[str, Any]) -> bool:
        """Whether a tensor is wrong as the check means it: of a model that fails by NaN or Inf one that holds these.

        Where the reference ends in NaN or Inf as well (in low precision it rounds what it hands out), such a value is
        wrong whatever the reference has.
        """
        studied = self.judge.studied.signature
        only_finite = isinstance(self.job.settings.checker, FiniteChecker) or (studied and studied.kind in NON_FINITE)
        wrong = bool(row["bad"]) and (not only_finite or row["kind"] in NON_FINITE)
        return wrong or (not self.is_sane and overflows(row))

    def look(self) -> None:
        """Look at tensors as outputs, then at what parts make of good values.

        Where marks hide the failure, or leave no answer, and the parts do not show it, the marks are looked at in
        halves: less is hidden.
        """
        hiding = [window for window in self.marked if not self._shows(window)]
        self._look_apart()
        queue, left = [half for window in reversed(hiding) for half in reversed(halves(window))], MOST_HALVINGS
        if any(row["bad"] for row in self.own.values()):
            return
        while queue and left and not self.stopped:
            window, left = queue.pop(), left - 1
            if not self._shows(window):
                queue += reversed(halves(window))

    def _shows(self, window: Window) -> bool:
        """Look at tensors as outputs; return whether the failure shows with these, or the budget is spent."""
        verdict = self._verdict(self.judge, window, "marked as outputs")
        if verdict is None:
            return True
        rows = rows_of(verdict)
        if rows and self.marking.shows(rows):
            self.take(self.rows, rows)
            return True
        self.silent = self.silent or ("" if rows else verdict.said)
        if len(window) == 1:
            (self.hidden if rows else self.unanswered).extend(window)
        return False

    def _look_apart(self) -> None:
        """Look at what parts make of good values; tensors that the runtime has fused away are not there."""
        tensors = tuple(name for window in self.apart for name in window)
        judge = self.judge.stage("apart", replace(self.subject, tensors=tensors, apart=True)) if tensors else self.judge
        for window in self.apart:
            if verdict := self._verdict(judge, window, "made of good values"):
                rows = rows_of(verdict)
                self.take(self.own, (row for row in rows if not row["output"]))
                if not rows and verdict.outcome is not Outcome.PASS:
                    self.own_unknown = self.own_unknown or verdict.said

    @property
    def _settings(self) -> LayerwiseSettings:
        return chosen(self.job.settings.strategy, LayerwiseSettings)

    @cached_property
    def is_sane(self) -> bool:
        """Whether the reference's outputs are finite."""
        base = self.subject.base
        return base.recorded.healthy(base.graph.outputs)

    def _windows(self, tensors: Sequence[str], copies: int) -> list[Window]:
        """Return the tensors in runs; each takes so many times its bytes."""
        base, most = self.subject.base, self._settings.memory_mb
        every = {name: max(sample[name].size for sample in base.recorded.values) for name in known(base)}
        room = min(MEMORY, int(machine.memory_mb() * 2**18)) if most is None else room_beside(base.graph, every, most)
        return windows({name: copies * every[name] for name in tensors}, room)

    def _verdict(self, judge: Judge, window: Window, how: str) -> Verdict | None:
        """Return the verdict on a run that hands out these tensors; None: the budget is spent."""
        subject = judge.subject
        assert isinstance(subject, Layers)
        trial = Trial.of([subject.places[name] for name in window])
        verdict = judge.recall(trial, 0, FIRST_LOOK, how)
        if verdict is None and not self._spent:
            try:
                verdict = judge.sure(trial, FIRST_LOOK, how, "search")
            except OutOfTime as error:
                log.warning("%s", error)
        self.stopped = self.stopped or verdict is None
        self.runs += verdict is not None
        self.peak_mb = max(self.peak_mb, verdict.peak_rss_mb if verdict else 0.0)
        return verdict

    @property
    def _spent(self) -> bool:
        budget = self.job.means.budget
        paid = budget.checks is not None and self.judge.tally.paid["search"] >= budget.checks
        return paid or (budget.seconds is not None and time.monotonic() - budget.started >= budget.seconds)
