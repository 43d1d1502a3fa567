"""Runs `strategy=layerwise`: what every tensor holds on the target against what the reference says it should.

The whole model is run with as many tensors marked as outputs at a time as memory allows. Where that makes the failure
go away, fewer are marked, until it shows again or a single tensor hides it. Then the model is taken apart as the
runtime has optimized it, so that each part is judged on good values: what it adds, apart from what it inherits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runner.candidate import Phase
from runner.engine.check_trials import Judge
from runner.engine.session_question import NOTHING, SessionResult, study
from runner.errors import CannotJudge, UsageError
from runner.jobs.job import Job
from runner.jobs.layerwise import findings
from runner.jobs.layerwise.findings import Findings
from runner.jobs.layerwise.look import BREAKS, Layers, Look, Marking
from runner.jobs.reduce.first_look import known
from runner.jobs.reduce.subgraph import Subgraph
from runner.judgment import Status, measured
from runner.reference.expected_outputs import unlike_expected
from runner.reference.load import Loaded, load
from runner.report.diagnosis_sections import ending_in, size_of
from runner.report.result_parts import Layers as LayersFound
from runner.report.summary import Summary
from runner.schema.backend import OnnxRuntimeBackend
from runner.schema.checker import AutoChecker, CompareChecker, FiniteChecker
from runner.schema.diagnosis import LayerwiseSettings
from runner.schema.root import Settings
from runner.schema.strategy import chosen
from runner.text import counted, listed
from runner.verdict import Verdict, rows_of
from strategies.outcome import Outcome

WHOLE = "the model as it is"
WITHOUT_ARENA = {"enable_cpu_mem_arena": "false"}
"""ONNX Runtime's arena takes the next power of two, and gives nothing back."""
MOST_WORST = 20
"""Rows of the worst tensors that the report shows."""
REDUCE = "strategy=reduce finds the part that fails"


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
        inner = tuple(name for name in known(base) if name not in base.graph.output_set)
        subject = Layers(base, inner, _lean(job.settings))
        with job.judge(subject, loaded, "tensors") as judge:
            job.drop_stale_results()
            asked = _Layerwise(job, loaded, judge, Look(job, subject, judge, Marking()))
            summary = asked.told(job.ended(asked, asked.ending))
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


@dataclass(frozen=True)
class _Layerwise:
    """What is asked, and what is said of the answer."""

    job: Job
    loaded: Loaded
    judge: Judge
    look: Look

    def interrupted(self, exit_code: int) -> SessionResult:
        """Return that somebody stopped it: what was measured is in the journal."""
        return SessionResult(Status.interrupted, "", code=exit_code)

    def ending(self) -> SessionResult:
        """Look at all tensors. Raises CannotJudge where the target gives nothing to look at."""
        look, plain = self.look, self.judge.sure(NOTHING, Phase.PREFLIGHT, WHOLE)
        settings = self.job.settings
        if plain.outcome is Outcome.FAIL:
            study(self.judge, plain, WHOLE)
        measure = measured(plain.metrics)
        if plain.outcome is Outcome.FAIL and (why := unlike_expected(settings, self.loaded.recorded, measure)):
            raise CannotJudge(why)
        if not rows_of(plain):
            raise CannotJudge(f"{WHOLE} gives no values to compare: {plain.said}; {REDUCE}")
        look.take(look.rows, rows_of(plain))
        look.marking.begin(look.rows, look.is_bad, fails=plain.outcome is Outcome.FAIL)
        if settings.plan:
            runs = len(look.marked) + len(look.apart)
            tensors = {*look.rows, *(name for window in (*look.marked, *look.apart) for name in window)}
            said = f"{counted(len(tensors), 'tensor')} would be compared in {counted(runs, 'run')}"
            return SessionResult(Status.planned, f"{said}; stopped before that, as asked", remaining=runs)
        look.look()
        if look.findings.first_bad:
            self._refuse_broken_reference()
            return SessionResult(Status.found, self._said(plain), signature=self.judge.studied.signature)
        return self._nothing(plain)

    def _nothing(self, plain: Verdict) -> SessionResult:
        """Return how it ends where no tensor is wrong that is made of right ones."""
        look = self.look
        if any(row["bad"] for row in look.rows.values()):
            hides = look.marking.hides
            said = (
                "marking tensors as outputs hides the failure"
                if hides
                else "it is not known which tensor is wrong first"
            )
            raise CannotJudge(f"{said}{self._left}; {REDUCE}")
        if plain.outcome is Outcome.FAIL:
            raise CannotJudge(f"{WHOLE} fails ({plain.said}), but no tensor differs from the recorded values; {REDUCE}")
        seen = counted(len(look.rows), "tensor")
        if look.stopped or look.unanswered or (look.silent and look.not_asked):
            return SessionResult(
                Status.could_not_judge, f"{seen} compared, none of them wrong by this check{self._left}"
            )
        return SessionResult(Status.nothing_to_find, f"all of {seen} are right by this check{self._left}")

    def _refuse_broken_reference(self) -> None:
        """Raise CannotJudge where the reference ends in NaN or Inf, and the target is finite where that begins."""
        found = self.look.findings
        if found.first_bad and found.reference_is_wrong and not self.look.is_sane:
            raise CannotJudge(
                f"the reference is not finite from {found.first_bad.tensor} of {listed(found.culprits)} on, and the "
                "target is: the reference is wrong"
            )

    def _said(self, plain: Verdict) -> str:
        found = self.look.findings
        first, own, hidden = found.first_bad, found.largest_own, self.look.hidden
        assert first
        makers = listed(found.culprits)
        outside = "" if plain.outcome is Outcome.FAIL else f"{WHOLE} is not judged ({plain.reason}), but inside it "
        if plain.outcome is Outcome.PASS:
            outside = f"{WHOLE} passes, but inside it "
        parts = [f"{outside}{first.tensor} of {makers} is the first wrong tensor with right inputs"]
        if own:
            place = f"{ending_in(own)}{own.node}"
            parts.append(f"{place} has the largest error with right inputs ({size_of(own.kind, own.own)})")
        if self.look.marking.word == BREAKS:
            parts.append("it fails once tensors are marked as outputs")
        elif self.look.marking.hides:
            parts.append(f"marking {listed(hidden) or 'tensors as outputs'} hides the failure")
        return "; ".join(parts) + self._left

    @property
    def _left(self) -> str:
        """What is not known, and why."""
        look, parts = self.look, []
        if look.unanswered:
            parts.append(f"with {listed(look.unanswered)} marked as an output there is no answer ({look.silent})")
        elif look.silent and look.not_asked:
            parts.append(f"with tensors marked as outputs there is no answer ({look.silent})")
        parts += [f"the errors with right inputs are not known: {look.own_unknown}"] if look.own_unknown else []
        if look.stopped:
            parts.append(f"the budget was reached before {counted(len(look.not_asked), 'tensor')} could be compared")
        return "".join(f"; {part}" for part in parts)

    @property
    def _warnings(self) -> Iterator[str]:
        path, most = self.job.settings.result.path, chosen(self.job.settings.strategy, LayerwiseSettings).memory_mb
        if path:
            yield f"result.path={path}: strategy=layerwise hands no model over; nothing is written there"
        if most is not None and self.look.peak_mb > most:
            yield f"strategy.memory_mb={most} was not kept: a worker took {self.look.peak_mb:.0f} MiB"

    def told(self, ending: SessionResult) -> Summary:
        """Return what is reported, and write the rows of all tensors beside it."""
        look = self.look
        found = look.findings if ending.status is Status.found else Findings(self.loaded.graph, {}, {})
        summary = self.job.summary(self.judge, ending, self.loaded)
        summary = replace(summary, warnings=(*summary.warnings, *self._warnings))
        if ending.status not in (Status.found, Status.nothing_to_find, Status.could_not_judge) or not look.rows:
            return summary
        rows = findings.full_rows(self.loaded.graph, look.rows, look.own)
        findings.write(self.job.folder, rows)
        worst = sorted((row for row in rows if row.get("bad")), key=lambda row: -row["of_limit"])
        told = LayersFound(
            tensors=len({*look.rows, *look.own}),
            runs=look.runs,
            first_bad=found.first_bad,
            largest_own=found.largest_own,
            marking=look.marking.word,
            hidden=tuple(look.hidden),
            unanswered=tuple(look.unanswered),
            not_asked=tuple(look.not_asked),
            own_unknown=look.own_unknown,
            suspects=found.suspects,
            outputs=tuple(row for row in rows if row.get("output")),
            worst=tuple(worst[:MOST_WORST]),
            files=findings.FILES,
        )
        return replace(summary, layers=told, culprits=found.culprits)
