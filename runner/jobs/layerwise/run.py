"""Runs `strategy=layerwise`: what every tensor holds on the target against what the reference says it should.

The whole model is run with as many tensors marked as outputs at a time as memory allows. Where that makes the failure
go away, fewer are marked, until it shows again or a single tensor hides it. Then the model is taken apart as the
runtime has optimized it, so that each part is judged on good values: what it adds, apart from what it inherits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from runner import machine
from runner.errors import CannotJudge, UsageError
from runner.jobs.job import Job
from runner.jobs.layerwise import table_files
from runner.jobs.layerwise.findings import Findings, overflows, size_of
from runner.jobs.layerwise.marking import Marking
from runner.jobs.layerwise.memory_windows import halves, room_beside, windows
from runner.jobs.layerwise.subject import Layers
from runner.jobs.reduce.subgraph import Subgraph
from runner.loading.load import Loaded, load
from runner.loading.recording_limits import MEMORY
from runner.report.summary import Summary
from runner.schema.backend import OnnxRuntimeBackend
from runner.schema.checker import AutoChecker, CompareChecker, FiniteChecker
from runner.schema.diagnosis import LayerwiseSettings
from runner.schema.root import Settings
from runner.schema.strategy import chosen
from runner.session.judge import Judge
from runner.session.question import NOTHING, study
from runner.session.result import Ending
from runner.session.trust.check_counts import FIRST_LOOK
from runner.status import Status
from runner.text import counted, listed
from runner.verdict import TABLE, Verdict
from runner.workers.leases.lease import OutOfTime
from strategies.outcome import Outcome
from strategies.trial import Trial

log = logging.getLogger(__name__)

NON_FINITE = ("nan", "inf")
WHOLE = "the model as it is"
MOST_HALVINGS = 100
"""Runs that may be spent on marks that hide the failure."""
APART = 3
"""A tensor that is made apart is fed, made and written: so many times its bytes."""
WITHOUT_ARENA = {"enable_cpu_mem_arena": "false"}
"""ONNX Runtime's arena takes the next power of two, and gives nothing back."""


def run(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Compare all tensors and leave the result folder behind. Raises UsageError for a check that compares nothing."""
    if not isinstance(settings.checker, AutoChecker | CompareChecker | FiniteChecker):
        raise UsageError(
            f"strategy=layerwise checker={settings.checker.name}: it does not say what a tensor inside the model "
            "should hold. Take checker=auto, compare or finite"
        )
    if not settings.cut.records:
        raise UsageError("strategy=layerwise cut.record=off: there is nothing to compare with. Set cut.record=auto")
    with Job.opened(_within_memory(settings), folder, command) as job:
        loaded = load(job.settings, job.pool, job.folder)
        base = Subgraph(
            *(loaded.graph, loaded.store, loaded.recorded, loaded.types, loaded.studied, job.folder / "values"),
            cut_policy=job.settings.cut.policy,
            outputs=job.settings.cut.outputs,
        )
        inner = tuple(name for name in _known(base) if name not in base.graph.output_set)
        subject = Layers(base, inner, _lean(job.settings))
        with job.judge(subject, loaded, "tensors") as judge:
            job.drop_stale_results()
            look = _Look(job, loaded, subject, judge)
            summary = look.told(job.ended(look, look.asked))
            job.bundle(summary)
    return summary


def _within_memory(settings: Settings) -> Settings:
    """Return settings by which the reference is recorded in no more memory than the target may take."""
    most = chosen(settings.strategy, LayerwiseSettings).memory_mb
    if most is None or settings.cut.memory is not None:
        return settings
    return replace(settings, cut=replace(settings.cut, memory=f"{max(most // 4, 1)}M"))


def _lean(settings: Settings) -> dict[str, Any]:
    """Return settings of the target by which it takes no more memory than it needs."""
    target = settings.target
    if chosen(settings.strategy, LayerwiseSettings).memory_mb is None or not isinstance(target, OnnxRuntimeBackend):
        return {}
    return {"session_options": {**WITHOUT_ARENA, **target.session_options}}


def _known(base: Subgraph) -> Iterable[str]:
    """Yield the tensors that nodes make of data and that the reference tells, in topological order."""
    values = base.recorded.values
    for name in base.graph.producers:
        held = [sample.get(name) for sample in values]
        known = bool(held) and all(one is not None and one.structure is None for one in held)
        if known and base.has_reference(name) and name not in base.graph.data_independent:
            yield name


def _finite(base: Subgraph) -> Iterable[str]:
    """Yield those of them that can be fed."""
    return (name for name in _known(base) if all(sample[name].finite for sample in base.recorded.values))


@dataclass
class _Look:
    """One run, and the rows of tensors so far: as the whole model makes them, and of good values."""

    job: Job
    loaded: Loaded
    subject: Layers
    judge: Judge
    rows: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    own: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    marking: Marking | None = None
    hidden: list[str] = field(default_factory=list)
    runs: int = 0
    stopped: bool = False

    def interrupted(self, exit_code: int) -> Ending:
        """Return that somebody stopped it: what was measured is in the journal."""
        return Ending(Status.interrupted, f"interrupted; go on with resume={self.job.folder}", code=exit_code)

    def asked(self) -> Ending:
        """Look at all tensors. Raises CannotJudge where the target gives nothing to look at."""
        plain = self.judge.sure(NOTHING, "pre-flight", WHOLE)
        if plain.outcome is Outcome.FAIL:
            study(self.judge, plain, WHOLE)
        if not _rows(plain):
            raise CannotJudge(
                f"{WHOLE} gives no values to compare: {plain.said}; strategy=reduce finds the part that fails"
            )
        self.marking = Marking.of(_rows(plain), bad=self._is_bad)
        self._take(self.rows, _rows(plain))
        marked = self._windows(self.subject.tensors, 1)
        apart = self._windows(tuple(_finite(self.subject.base)), APART) if self._looks_apart else []
        if self.job.settings.plan:
            runs = len(marked) + len(apart)
            said = f"{counted(len(self.subject.tensors), 'tensor')} would be compared in {counted(runs, 'run')}"
            return Ending(Status.planned, f"{said}; stopped after the pre-flight, as asked", remaining=runs)
        self._look_marked(marked)
        self._look_apart(apart)
        return self._ending(plain)

    @property
    def _settings(self) -> LayerwiseSettings:
        return chosen(self.job.settings.strategy, LayerwiseSettings)

    @property
    def _looks_apart(self) -> bool:
        return self._settings.own and self.job.settings.target.holds_inner_values

    @property
    def _findings(self) -> Findings:
        return Findings(self.loaded.graph, self.rows, self.own)

    def _windows(self, tensors: Sequence[str], copies: int) -> list[tuple[str, ...]]:
        """Return the tensors in runs; each takes so many times its bytes."""
        values = self.loaded.recorded.values
        sizes = {name: max(sample[name].size for sample in values) for name in tensors}
        most = self._settings.memory_mb
        room = min(MEMORY, int(machine.memory_mb() * 2**18))
        room = room if most is None else room_beside(self.loaded.graph, sizes, most)
        return windows({name: copies * size for name, size in sizes.items()}, room)

    def _look_marked(self, waiting: Sequence[tuple[str, ...]]) -> None:
        """Look at tensors as outputs; marks that hide the failure are looked at in halves."""
        assert self.marking
        queue, left = list(reversed(waiting)), len(waiting) + MOST_HALVINGS
        while queue and not self.stopped and left:
            window, left = queue.pop(), left - 1
            verdict = self._verdict(self.judge, window, "marked")
            if verdict is None:
                continue
            if self.marking.shows(_rows(verdict)):
                self._take(self.rows, _rows(verdict))
            elif len(window) > 1:
                queue += reversed(halves(window))
            else:
                self.hidden += window
        self.hidden += [name for window in queue for name in window]

    def _look_apart(self, waiting: Sequence[tuple[str, ...]]) -> None:
        """Look at what parts make of good values; those that the runtime has fused away are not there."""
        subject = replace(self.subject, tensors=tuple(name for window in waiting for name in window), apart=True)
        judge = self.judge.stage("apart", subject)
        for window in waiting:
            if verdict := self._verdict(judge, window, "apart"):
                self._take(self.own, (row for row in _rows(verdict) if not row["output"]))

    def _verdict(self, judge: Judge, window: Sequence[str], how: str) -> Verdict | None:
        """Return the verdict on a run that hands out these tensors; None: the budget is spent."""
        subject = judge.subject
        assert isinstance(subject, Layers)
        budget = self.job.means.budget
        spent = budget.checks is not None and self.judge.tally.paid["search"] >= budget.checks
        late = budget.seconds is not None and time.monotonic() - budget.started >= budget.seconds
        trial = Trial.of([subject.places[name] for name in window])
        label = f"{counted(len(window), 'tensor')} {how}"
        known = judge.recall(trial, 0, FIRST_LOOK, label)
        if known:
            self.runs += 1
            return known
        if self.stopped or spent or late:
            self.stopped = True
            return None
        self.runs += 1
        try:
            return judge.sure(trial, FIRST_LOOK, label, "search")
        except OutOfTime as error:
            log.warning("%s", error)
            self.stopped = True
            return None

    def _take(self, into: dict[str, Mapping[str, Any]], rows: Iterable[Mapping[str, Any]]) -> None:
        """Keep rows; of a tensor that was looked at several times (an output of the model) the first."""
        for row in rows:
            into.setdefault(row["tensor"], {**row, "bad": self._is_bad(row)})

    def _is_bad(self, row: Mapping[str, Any]) -> bool:
        """Whether a tensor is wrong as the check means it: of a model that fails by NaN or Inf one that holds these.

        Where the reference ends in NaN or Inf as well (in low precision it rounds what it hands out), such a value is
        wrong whatever the reference has.
        """
        studied = self.judge.studied.signature
        only_finite = isinstance(self.job.settings.checker, FiniteChecker) or (studied and studied.kind in NON_FINITE)
        wrong = bool(row["bad"]) and (not only_finite or row["kind"] in NON_FINITE)
        return wrong or (not self._sane and overflows(row))

    @cached_property
    def _sane(self) -> bool:
        return self.loaded.recorded.healthy(self.loaded.graph.outputs)

    def _ending(self, plain: Verdict) -> Ending:
        found, signature = self._findings, self.judge.studied.signature
        if found.first_bad is None:
            if plain.outcome is Outcome.PASS or not any(row["bad"] for row in self.rows.values()):
                said = f"all {counted(len(self.rows), 'tensor')} are right by this check"
                left = self._left
                if plain.outcome is Outcome.FAIL:
                    raise CannotJudge(f"{WHOLE} fails ({plain.said}), and no tensor is wrong against what was recorded")
                return Ending(Status.could_not_judge if self.stopped else Status.nothing_to_find, said + left)
            raise CannotJudge(f"marking tensors as outputs hides the failure; strategy=reduce finds it{self._left}")
        return Ending(Status.found, self._said(found) + self._left, signature=signature)

    @property
    def _left(self) -> str:
        return "; the budget was reached before all were looked at" if self.stopped else ""

    def _said(self, found: Findings) -> str:
        first, own = found.first_bad, found.largest_own
        assert first and self.marking
        parts = [f"{first['tensor']} is the first wrong tensor, made by {listed(found.culprits)} of right ones"]
        if own:
            parts.append(f"the largest error of its own is that of {own['node']} ({size_of(own, 'own')})")
        if self.hidden:
            parts.append(f"marking {listed(self.hidden)} hides the failure")
        return "; ".join(parts)

    def told(self, ending: Ending) -> Summary:
        """Return what is reported, and write the rows of all tensors beside it."""
        job, found = self.job, self._findings
        summary = job.summary(self.judge, ending, self.loaded)
        if ending.status not in (Status.found, Status.nothing_to_find, Status.could_not_judge) or not self.rows:
            return summary
        rows = table_files.full_rows(self.loaded.graph, self.rows, self.own)
        table_files.write(job.folder, rows)
        layers = {
            "tensors": len(self.rows),
            "runs": self.runs,
            "first_bad": found.first_bad,
            "largest_own": found.largest_own,
            "marking": self.marking.word if self.marking else "same",
            "hidden": self.hidden,
            "suspects": list(found.suspects),
            "outputs": [row for row in rows if row.get("output")],
            "worst": sorted((row for row in rows if row.get("bad")), key=lambda row: -row["of_limit"])[:MOST_WORST],
            "files": list(table_files.FILES),
        }
        return replace(summary, layers=layers, culprits=found.culprits)


MOST_WORST = 20
"""Rows of the worst tensors that the report shows."""


def _rows(verdict: Verdict) -> list[Mapping[str, Any]]:
    """Return the rows of a verdict; a journal may hold anything."""
    held = verdict.metrics.get(TABLE)
    return [row for row in held if isinstance(row, dict) and isinstance(row.get("tensor"), str)] if held else []
