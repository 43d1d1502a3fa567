"""Runs `strategy=workaround`: tries remedies on the whole model, with fresh inputs too, and measures what they cost."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from runner.engine.check_trials import Judge
from runner.engine.min_good import HandOver
from runner.engine.repeated_checks import WHOLE, ContradictionError
from runner.engine.session import Session, scale_of
from runner.engine.session_question import NOTHING, Question, SessionResult
from runner.engine.subject import values_digest
from runner.exit_codes import Status, UsageError
from runner.jobs.job import Job, load_whole, with_outputs
from runner.jobs.workaround.remedies import ONE_SAMPLE, Remedies, Tried, Workarounds, ranked
from runner.journal.journal import Journal
from runner.judgment import Scale, measured
from runner.model.values.recorded import TensorFile, paths
from runner.reference.hints import hides_rounding
from runner.reference.load import Loaded, own_file_only, profiled_samples
from runner.reference.parent import whole_samples
from runner.report.diagnosis_sections import left_out, shown
from runner.report.result_parts import Latency, PassedSamples, Workaround
from runner.report.summary import Summary
from runner.run_folder import WORKAROUND
from runner.schema.checker import Flaky
from runner.schema.inputs import PythonInputs, RandomInputs
from runner.schema.installed_choices import SEARCHES
from runner.schema.root import Settings
from runner.schema.strategy import WorkaroundSettings, chosen
from runner.text import counted
from runner.verdict import LIMITS, Phase, Sample, Variant, Verdict
from runner.workers.pool import lease_of, limited
from runner.workers.worker import find_python
from strategies.search import Answer, Options, Outcome, Trial

# What a workaround costs: how long the target takes with it and without it, run in turn.

_ROUNDS = 3
"""How often two interpreters, of which each has a process of its own, take turns."""
_AS_IT_IS = Variant()


@dataclass(frozen=True)
class Costs:
    """Measures on the first recorded sample. ``runs``: timed runs of each model."""

    job: Job
    loaded: Loaded
    runs: int

    def of(self, model: Path, variant: Variant, *, alone: bool) -> Latency | None:
        """Return the median milliseconds before and after, their ratio and the runs of each; None: not measured.

        ``alone``: the model as it is cannot be run; then, and where it proves so, only what comes after is measured.
        """
        values = self.loaded.recorded.values
        if not self.runs or (self.loaded.graph.inputs and not values):
            return None
        before, after = (self.loaded.path, _AS_IT_IS), (model, variant)
        pair = None
        if not alone:
            if self._python(variant) == self._python(_AS_IT_IS):
                pair = self._timed([before, after], self.runs)
            else:
                each = -(-self.runs // _ROUNDS)
                turns = [(self._timed([before], each), self._timed([after], each)) for _ in range(_ROUNDS)]
                if all(one and other for one, other in turns):
                    pair = [median(one[0] for one in side if one) for side in zip(*turns, strict=True)]
        if pair is None:
            only = self._timed([after], self.runs)
            if only is None:
                return None
            return Latency(after_ms=round(only[0], 3), runs=self.runs)
        first, second = pair
        ratio = round(second / first, 3) if first else None
        return Latency(round(first, 3), round(second, 3), ratio, self.runs)

    def _python(self, variant: Variant) -> str | None:
        return variant.python or self.job.settings.target.python

    def _timed(self, models: Sequence[tuple[Path, Variant]], runs: int) -> list[float] | None:
        """Return the median milliseconds of models that one interpreter runs; None where one of them does not run."""
        job, python = self.job, self._python(models[0][1])
        backends = [{**job.settings.target.to_json(), **variant.settings} for _, variant in models]
        caches = {"load": own, "save": None} if (own := backends[-1].get("timing_cache")) else None
        args = {
            "models": [
                {"backend": backend, "model": str(path)} for backend, (path, _) in zip(backends, models, strict=True)
            ],
            "samples": [paths(sample) for sample in self.loaded.recorded.values[:1]] or [{}],
            "runs": runs,
            "caching": caches,
        }
        lease = lease_of(backends[0], job.pool, python)
        reply = limited(job.pool, job.settings, "latency", args, python=python, lease=lease)
        return [float(one) for one in reply.value["ms"]] if reply.value else None


# Samples for checks: the recorded inputs, and others of their kind that no check has seen yet.

_SEED = 0x9E3779B9


def fresh_inputs(job: Job, loaded: Loaded, wanted: int) -> tuple[Sample, ...]:
    """Return so many samples that are none of the recorded ones; fewer where there are no more, of files none.

    Random ones are drawn with other seeds; a function of the user's is called again as long as it gives new ones.
    """
    inputs = job.settings.inputs
    if not job.checker.wants_feeds or not loaded.graph.inputs or not isinstance(inputs, RandomInputs | PythonInputs):
        return ()
    seen = {values_digest([sample]) for sample in loaded.recorded.values}
    found: list[Mapping[str, TensorFile]] = []
    for attempt in count(1):
        if len(found) >= wanted:
            break
        if isinstance(inputs, RandomInputs):
            inputs = replace(inputs, samples=wanted, seed=inputs.seed + _SEED)
        place = job.folder / "inputs" / f"fresh_{attempt}"
        drawn, _ = profiled_samples(replace(job.settings, inputs=inputs), loaded.graph, job.pool, place)
        new = {values_digest([sample]): sample for sample in drawn}
        new = {digest: sample for digest, sample in new.items() if digest not in seen}
        seen |= {*new}
        found += new.values()
        if not new:
            break
    folder = job.folder / "values" / "fresh"
    samples = whole_samples(job.settings, loaded.graph, job.pool, found[:wanted], folder / "parent")
    return with_outputs(job, loaded, samples, folder)


log = logging.getLogger(__name__)

QUESTION = Question(wanted=Outcome.PASS, whole="a lone Identity", nothing="the whole model")
ON_THIS_CPU = "on the CPU, which computes low precision in float32"
"""Where a model of low precision was seen to pass; with target.rounding=on it may well fail."""
_LOAD = "load"
"""The stage of the failure of a model that the runtime refuses."""


def run(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Try remedies and leave the result folder behind. Raises UsageError where there are none."""
    own_file_only(settings)
    if settings.target.model:
        raise UsageError(
            f"target.model={settings.target.model}: strategy=workaround changes the model under study. Set model="
            f"{settings.target.model}, and reference.model to the one to compare with"
        )
    if not settings.reference.model:
        # what is right is what the reference makes of the user's file, not of one that was changed
        settings = replace(settings, reference=replace(settings.reference, model=settings.model))
    with Job.opened(settings, folder, command) as job:
        loaded = load_whole(job, job.folder)
        remedies = Remedies(job, loaded)
        subject = Workarounds(loaded, remedies.all(), find_python(settings.target.python), loaded.samples)
        with job.judge(subject, loaded, "workarounds", tries=len(subject.remedies)) as judge:
            job.drop_stale_results()
            trying = _Trying(job, loaded, subject, judge)
            for text in (*remedies.warnings, *filter(None, [remedies.doubts])):
                trying.warn(text)
            return trying.summary()


class _StoppedError(Exception):
    """The budget was reached."""


@dataclass
class _Trying:
    """The trials of one run."""

    job: Job
    loaded: Loaded
    subject: Workarounds
    judge: Judge
    tried: list[Tried] = field(default_factory=list)

    def __post_init__(self) -> None:
        job = self.job
        self.strategy = chosen(job.settings.strategy, WorkaroundSettings)
        self.reliability = job.reliability()
        self.session = Session(
            self.judge,
            lambda space: SEARCHES["reduce"].begin(space, Options()),
            question=QUESTION,
            means=replace(job.means, workers=1),
            reliability=self.reliability,
            find_min_good=False,
        )
        self.judge.estimate = self._left
        self.handed = HandOver(job.settings.result, job.folder, job.tools.at, self.loaded.store)
        self.costs = Costs(job, self.loaded, self.strategy.latency_runs)
        self.warnings: list[str] = []
        self.later: tuple[Workarounds, Journal] | None = None
        self.harmless = False
        types = self.loaded.graph.kinds.values()
        self.where = ON_THIS_CPU if hides_rounding(job.settings, types) else ""

    def summary(self) -> Summary:
        """Try all, and return what is reported."""
        job = self.job
        ending = job.stopped(job.ended(self.session.interrupted, self._asked), self.handed, WORKAROUND)
        summary = job.summary(self.judge, ending, self.loaded, self.reliability)
        found = tuple(one.told for one in ranked(self.tried))
        summary = replace(summary, workarounds=found, warnings=(*summary.warnings, *dict.fromkeys(self.warnings)))
        job.bundle(summary)
        return summary

    # ---- what is asked

    def _asked(self) -> SessionResult:
        session, judge = self.session, self.judge
        always = ContradictionError("checker.flaky=always") if self.reliability.mode is Flaky.always else None
        verdict = session.examine(NOTHING, always)
        if verdict.outcome is not Outcome.FAIL and self.reliability.rates is None:
            return SessionResult(
                Status.nothing_to_find, "the whole model passes the check: there is nothing to work around"
            )
        log.info("the whole model fails (%s); workarounds are tried", judge.studied)
        remedies = self.subject.remedies
        if self.job.settings.plan:
            names = "; ".join(one.what for one in remedies)
            planned = session.planned()
            return replace(planned, message=f"{planned.message}; would be tried: {names}", remaining=len(remedies))
        while True:
            self.tried.clear()
            try:
                self._try_all()
            except ContradictionError as surprise:
                session.begin_again(surprise)
            except _StoppedError:
                return self._ending("; the budget was reached before all was tried")
            else:
                return self._ending("")

    def _left(self, trial: Trial, verdict: Verdict) -> int:
        """Return how many remedies are tried after this one."""
        number, remedies = max((one for one in trial if one < ONE_SAMPLE), default=0), self.subject.remedies
        passing = {one.remedy.kind for one in self.tried if one.told.passes}
        if number and verdict.outcome is Outcome.PASS:
            passing.add(remedies[number - 1].kind)
        return sum(not one.why_not and not (one.edits and one.kind in passing) for one in remedies[number:])

    def _try_all(self) -> None:
        self.reliability.repeat(self.judge, NOTHING, QUESTION.nothing, WHOLE, failing=True)
        for number, remedy in enumerate(self.subject.remedies, 1):
            if remedy.edits and any(one.told.passes and one.remedy.kind == remedy.kind for one in self.tried):
                continue  # it changes more than that one
            more: dict[str, Any] = {"where": self.where, "places": remedy.places, "nodes": remedy.nodes}
            more |= {"overrides": remedy.overrides, "code": remedy.code}
            one = Tried(remedy, Workaround(remedy.kind, remedy.what, not remedy.why_not, **more))
            self._try(number, one)
            self.tried.append(one)

    def _try(self, number: int, one: Tried) -> None:
        """Check one remedy on the recorded samples, hand its model over, check it on fresh ones, and time it."""
        trial, what = Trial.of([number]), one.remedy.what
        of = (len(self.subject.samples) or 1) * self.job.checker.wants_feeds  # else the check feeds its own
        one.note(samples=PassedSamples(0, of, "recorded"))
        if not self._passes(self.judge, trial, what, one):
            return
        one.note(samples=PassedSamples(of, of, "recorded"))
        handed, name, model = self.handed, "", self.loaded.path
        if one.remedy.edits:
            nth = 1 + sum(bool(other.told.files) for other in self.tried)
            name = WORKAROUND if nth == 1 else f"{WORKAROUND}_{nth}"
            handed = handed if nth == 1 else handed.beside(self.job.folder)
            model = handed.write(self.subject, trial, name)
            one.note(files=(model.name,), overrides=(f"model={model}",))
        try:
            if self._verified(number, one, model):
                # what does not hold with fresh inputs is not offered, and need not be repeated
                self.reliability.repeat(self.judge, trial, what, WHOLE, failing=False)
                one.note(passes=True)
        finally:
            if name and not one.told.passes:
                one.note(files=(), overrides=())
                handed.withdraw(name)
        if one.told.passes:
            signature = self.judge.studied.signature
            alone = signature is not None and signature.kind in LIMITS
            one.note(latency=self.costs.of(model, one.remedy.variant, alone=alone))

    def _passes(self, judge: Judge, trial: Trial, label: str, one: Tried) -> bool:
        """Whether a trial passes; why it does not is noted."""
        if self.session.spent():
            raise _StoppedError
        try:
            ruling = self.session.ruled(judge, trial, Phase.SEARCH, label)
        except UsageError as error:  # the model as it is was checked, so this is about what the remedy sets
            one.note(why_not=str(error), tried=False)
            return False
        if ruling is None:
            raise _StoppedError
        verdict, passes = ruling.verdict, ruling.answer is Answer.YES
        one.note(why_not="" if passes else verdict.said)
        if passes and (measure := measured(verdict.metrics)) is not None:
            harm = Scale(higher_is_better=scale_of(judge).higher_is_better).harm(measure)
            one.error = harm if one.error is None else max(harm, one.error)
        before, after = self.judge.studied.signature, verdict.signature
        # the runtime takes the model as it is, and not as it is edited
        if not passes and one.remedy.edits and before and before.stage != _LOAD and after and after.stage == _LOAD:
            one.note(tried=False)
        return passes

    # ---- whether it holds

    def _verified(self, number: int, one: Tried, model: Path) -> bool:
        """Whether a remedy passes, as it is handed over, with inputs that nobody has looked at."""
        what, trial = one.remedy.what, Trial.of([number])
        if self.later is None:
            self.later = self._fresh()
        subject, journal = self.later
        if not subject.fresh and not one.remedy.edits:
            return True
        judge = self.judge.beside(replace(subject, written={number: model}), journal)
        judge.estimate = self._left
        if not subject.fresh:
            return self._passes(judge, trial, f"{what}, as handed over", one)
        count = len(subject.samples)
        one.note(samples=PassedSamples(count, count, "fresh", self.harmless))
        if self.reliability.rates is None and self._passes(judge, trial, f"{what}, {count} fresh inputs", one):
            return True
        for place in range(count):
            label = f"{what}, fresh input {place + 1}"
            if not self._passes(judge, Trial.of([number, ONE_SAMPLE + place]), label, one):
                one.note(samples=PassedSamples(place, count, "fresh", self.harmless))
                return False
        return True

    def _fresh(self) -> tuple[Workarounds, Journal]:
        """Return the remedies on fresh inputs, where there are any, and where verdicts on them are kept."""
        samples = fresh_inputs(self.job, self.loaded, self.strategy.fresh)
        if not samples:
            self.warn(self._none_fresh())
            return self.subject, self.judge.stage("as handed over", self.subject).journal
        subject = replace(self.subject, samples=samples, fresh=True)
        judge = self.judge.stage("fresh inputs", subject)
        without = judge.sure(NOTHING, Phase.CONTROL, f"the whole model, {len(samples)} fresh inputs")
        self.harmless = without.outcome is Outcome.PASS and self.reliability.rates is None
        if self.harmless:
            self.warn(
                "the model itself passes with the fresh inputs, so a workaround that passes there shows only that it "
                "breaks nothing"
            )
        return subject, judge.journal

    def warn(self, text: str) -> None:
        """Tell the user, now and in the report."""
        log.warning("%s", text)
        self.warnings.append(text)

    def _none_fresh(self) -> str:
        if not self.job.checker.wants_feeds:
            return "workarounds were tried only with the inputs that the check feeds by itself"
        return (
            "workarounds were tried only with the recorded samples, as there are no fresh inputs "
            f"(inputs={self.job.settings.inputs.name} strategy.fresh={self.strategy.fresh})"
        )

    # ---- what is said

    def _ending(self, stopped: str) -> SessionResult:
        good = [one for one in ranked(self.tried) if one.told.passes]
        untried, why = [one for one in self.tried if not one.told.tried], left_out([one.told for one in self.tried])
        flaky, many = self.session.flakiness, len(self.tried) - len(untried)
        signature = self.judge.studied.signature
        if untried and len(untried) == len(self.tried):
            if self.strategy.disabled_optimizers and all(one.remedy.kind == "pass" for one in untried):
                raise UsageError(f"strategy.disabled_optimizers: {untried[0].told.why_not}")
            said = f"no workaround could be tried ({len(untried)} known): {why}{stopped}{flaky}"
            return SessionResult(Status.could_not_judge, said, signature=signature)
        left = f"; {len(untried)} could not be tried: {why}" if untried else ""
        if not good:
            said = f"no workaround helps ({many} tried){left}{stopped}{flaky}"
            return SessionResult(Status.nothing_to_find, said, signature=signature)
        best = good[0]
        first = "the cheapest" if best.told.latency and best.cost == min(one.cost for one in good) else "the first"
        of = counted(many, "workaround")
        said = f"{len(good)} of {of} help{'s' * (len(good) == 1)}; {first}: "
        how = shown(best.told, own=self.job.settings.checker.runs_own_code)
        said += f"{best.remedy.what} ({how}){left}{stopped}{flaky}"
        return SessionResult(Status.found, said, signature=signature)
