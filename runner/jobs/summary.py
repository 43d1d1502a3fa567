"""The account of a run: what was found, and what it cost, from recorded verdicts alone."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from runner import machine
from runner.checkers.compare_outputs import said
from runner.engine.check_trials import Judge
from runner.engine.repeated_checks import WRONG, Reliability, wilson
from runner.engine.session_question import Cause, SessionResult
from runner.engine.tally import HANDED_OVER, Tally
from runner.judgment import NON_FINITE, CauseStatus, Experiment
from runner.model.nested.hoist import bodies
from runner.model.values.dtypes import BY_NUMBER
from runner.model.values.tensor_bytes import range_of
from runner.reference.body_values import Level, is_never_taken
from runner.reference.load import Loaded
from runner.report import result_parts as told
from runner.report.summary import Checks
from runner.schema import strategy as kinds
from runner.schema.checker import CommandChecker, Flaky
from runner.schema.root import Keep, Settings
from runner.text import counted, one_line
from runner.verdict import FUSED, NOT_FINITE, Purpose, Signature, rows_of
from strategies.search import Outcome, Trial

UNTAKEN = "no sample takes "
"""How it begins that nothing is known of a branch."""


def untaken(loaded: Loaded) -> list[str]:
    """Return of which branches no sample is known to tell anything, a sentence each."""
    values = loaded.recorded.values or tuple(one.feeds for one in loaded.samples)
    level = Level(loaded.graph, loaded.store, replace(loaded.recorded, values=values), loaded.types)
    fed = values[0] if values else {}
    ran = [one for one in bodies(loaded.graph) if fed.keys() & {*loaded.graph.protos[one.owner].input[:1]}]
    return [f"{UNTAKEN}{one.path}, so nothing in it was judged" for one in ran if is_never_taken(level, one)]


# How many checks a run makes besides its search, as its settings say: on the average run with one culprit.


def checks_after(settings: Settings, searched: int, workers: int = 1) -> int:
    """Return how many checks follow a search of so many, made ``workers`` at once: what shows an answer to be right."""
    strategy, checker = settings.strategy, settings.checker
    if isinstance(strategy, kinds.WorkaroundSettings | kinds.RepeatSettings | kinds.TacticRepeatSettings):
        return 0
    repeated = checker.flaky is not Flaky.never and not checker.asks_a_person
    again = min(max(searched // 4 // workers, 2), 7)
    if isinstance(strategy, kinds.PrecisionSettings):
        # a check of ours is steady; what was left out is tried alone, and an answer on samples that were held back
        again = again if repeated and checker.runs_own_code else 0
        apart = checker.runs_samples and strategy.held_out != 0 and strategy.low is not kinds.FloatType.quantized
        return 1 + again + min(searched, 32) + 2 * apart
    if not isinstance(strategy, kinds.ReduceSettings):
        return 1
    simpler = (2 if checker.runs_own_code else 1) if strategy.shrink else 0
    cause = 2 if strategy.find is kinds.Find.cause else 0
    return 1 + (again if repeated else 0) + simpler + cause + settings.result.find_min_good


_SHOWN, MOST_SAID = 100, 500
"""Characters of what a check said that a warning holds, and that a result does."""


def checks_of(tally: Tally) -> Checks:
    """Return how many checks were paid for, by purpose."""
    return Checks(
        tally.paid[Purpose.SEARCH],
        tally.paid[Purpose.TRUST] + tally.paid[Purpose.DOUBT],
        tally.reused,
        tally.paid[Purpose.REFINE],
        tally.paid[Purpose.CAUSE],
        **tally.parts,
    )


def memory_limit(given: int | None) -> str:
    """Say how much memory a check may take, and what becomes of one that takes more."""
    if given is not None:
        return f"a check that takes more than {given} MiB fails (checker.memory_mb)"
    return (
        f"a check that takes more than {machine.share_mb()} MiB ({machine.SHARE:.0%} of the machine's) gets no "
        "verdict; checker.memory_mb sets a limit beyond which it fails"
    )


def evidence(ending: SessionResult) -> Mapping[str, Any]:
    """Return what the check measured and said when it saw the answer fail, as handed over or else before.

    ``log``: where its output lies, relative to the run's folder.
    """
    standing = ending.standing
    if standing is None:
        return {}
    verdicts = (standing.judge.journal.get(standing.trial, attempt) for attempt in (HANDED_OVER, 0))
    failed = next((one for one in verdicts if one and one.outcome is Outcome.FAIL), None)
    return {**failed.metrics, "reason": failed.reason, "log": failed.log} if failed else {}


def seen(metrics: Mapping[str, Any], *, handed_over: bool = True) -> str:
    """Return how many elements of the output that failed are NaN and Inf, and what its type holds.

    ``metrics``: see `evidence`. ``handed_over``: the samples are those in the folder.
    """
    held = metrics.get(NOT_FINITE)
    if not held:
        return ""
    words = [f"{held[key]} {word}" for key, word in (("nan", "NaN"), ("inf", "Inf")) if held[key]]
    dtype, ends = BY_NUMBER[held["type"]].numpy_name, range_of(held["type"])
    most = f", which holds numbers up to {ends[1]:.6g}" if ends and held["inf"] else ""
    number, where = metrics["sample"], ""
    if metrics["samples"] > 1:
        where = f", in sample {number + 1} of {metrics['samples']}" + f" (test_data_set_{number})" * handed_over
    elements = counted(held["elements"], "element")
    return f"{' and '.join(words)} among the {elements} of {metrics['output']} ({dtype}{most}){where}"


def cause_of(ending: SessionResult, judge: Judge) -> told.Cause | None:
    """Return what is known about the cause, by the names of nodes; None: it was not asked."""
    if ending.cause is None:
        return None
    inside, standing = None, ending.standing
    if standing and standing.origin:
        known, untested = standing.inside, told.ShownCause(CauseStatus.UNTESTED.value, NO_PLACE)
        inside = told.ShownCause(**_shown(known.cause, known.names)) if known else untested
    return told.Cause(**_shown(ending.cause, judge.subject.names), inside=inside)


NO_PLACE = (
    "no experiment was made on them: that needs good values in their place, and that they fail without the node "
    "around them"
)


def _shown(cause: Cause, names: Callable[[Trial], tuple[str, ...]]) -> dict[str, Any]:
    """Return the fields of what was shown."""

    def tested(one: Experiment | None) -> told.CauseExperiment | None:
        return told.CauseExperiment(one.outcome.value, one.measure, one.reason) if one else None

    wider = cause.wider and told.WiderType(
        **{**vars(cause.wider), "raised": names(cause.wider.raised)}, said=cause.wider.said
    )
    answers = tuple(
        told.CauseAnswer(
            names(one.answer),
            at in cause.causes,
            tuple(names(Trial(nodes)) for nodes in one.instances or (one.answer.elements,)),
            *map(tested, (one.good_outputs, one.good_inputs, one.good_around)),
        )
        for at, one in enumerate(cause.answers)
    )
    plain = {"reason": cause.reason, "no_value": cause.no_value, "right": cause.right}
    return {"status": cause.status.value, "wider": wider, "whole": tested(cause.whole), "answers": answers, **plain}


def described(
    signature: Signature | None, whole: Signature | None = None, error: float | None = None
) -> told.KnownFailure | None:
    """Return a signature by its parts; None where there is none.

    ``whole``: of the whole model; ``error``: see `told.KnownFailure`.
    """
    if signature is None:
        return None
    raised = str(signature.raised) if signature.raised else ""
    # another code or exception is told of the part alone
    otherwise = f"{whole.stage}: {whole.kind}" if whole and {signature.kind, whole.kind} == {*NON_FINITE} else ""
    return told.KnownFailure(signature.stage, signature.kind, signature.detail, raised, otherwise, error)


def fused(ending: SessionResult, judge: Judge) -> told.Fused | None:
    """Return the engine layers of the answer, as built alone or else in the whole model; None: nothing was built."""
    if ending.main is None:
        return None
    names = set(judge.subject.names(ending.main))
    for of, trial in (("the reduced model", ending.main), ("the whole model", judge.subject.space.whole)):
        for attempt in (HANDED_OVER, 0):
            verdict = judge.journal.get(trial, attempt)
            layers = verdict.metrics.get(FUSED) if verdict else None
            if layers:
                held = [layer for layer in layers if of != "the whole model" or names & set(layer["nodes"])]
                return told.Fused(of, tuple(told.FusedLayer(one["layer"], tuple(one["nodes"])) for one in held))
    return None


def compared_outputs(judge: Judge) -> tuple[Mapping[str, Any], ...]:
    """Return what the pre-flight measured of each output of the whole model."""
    verdict = judge.journal.get(judge.subject.space.whole, 0)
    return tuple(rows_of(verdict)) if verdict else ()


def shown_nothing(judge: Judge, where: str, filling: str, *, every: bool) -> tuple[str, ...]:
    """Say which outputs the pre-flight compared show nothing or are right as a NaN, and which integers decide alone.

    ``where``, ``filling``, ``every``: see `said`.
    """
    verdict = judge.journal.get(judge.subject.space.whole, 0)
    rows = [row for row in rows_of(verdict) if row["output"] and row.get("compared", True)] if verdict else []
    bad = [str(row["tensor"]) for row in rows if row["bad"]]
    alone = [
        f"only '{name}' is wrong; the {counted(len(rows) - 1, 'other output')} passed. It holds integers, which have "
        f"to be equal. checker.unequal=0.01 lets a share of them differ; checker.ignore=[{name}] leaves it out"
        for name in bad
        if len(rows) > len(bad) == 1 and verdict and verdict.metrics.get("exact") is True
    ]
    return (*said(judge.tally.evidence, where, filling, every=every), *alone)


def drift_of_message(ending: SessionResult, judge: Judge) -> tuple[str, ...]:
    """Say where the answer fails with another message than the whole model did, or with Inf where that had NaN."""
    before, after = judge.studied.signature, ending.signature
    if not ending.drift and before and after and before.kind != after.kind:
        said = f"the model file fails with {before.kind}, the reduced model with {after.kind}"
        if (before.kind, after.kind) == ("nan", "inf"):
            said = "Inf in the reduced model becomes NaN later: one failure"
        elif {before.kind, after.kind} == {"nan", "inf"}:
            said += ": both count as one failure"
        return (said,)
    return (ending.drift,) if ending.drift else ()


def another_failure(ending: SessionResult, judge: Judge, settings: Settings) -> tuple[str, ...]:
    """Say that an answer may be another failure than the whole model's, where a check of the user's said otherwise.

    A tolerance that is meant for a model's outputs may be too tight for tensors inside it. Where the cause is proven
    the failure is the original's.
    """
    cause, checker = ending.cause, settings.checker
    if cause is None or cause.status is not CauseStatus.NOT_PROVEN or not checker.runs_own_code:
        return ()
    before, after = (one_line(said, _SHOWN) for said in (judge.studied.message, evidence(ending).get("reason", "")))
    if not after or before == after:
        return ()
    how = "" if getattr(checker, "measure", None) else "; checker.measure=REGEX tells how bad by the number it prints"
    said = (
        f"this may be another failure than the whole model's. The check said {before!r} of that, and "
        f"{after!r} of the reduced model. A tolerance for the model's outputs may be too tight for tensors inside it: "
        f"let the check compare each with its own largest value{how}"
    )
    return (said,)


def measured(reliability: Reliability) -> told.CheckReliability:
    """Return what was measured of a flaky check, and what was asked of it; of any other how it would have shown."""
    if reliability.rates is None:
        second = reliability.second
        return told.CheckReliability(agreed=len(second.agreed), wrong=WRONG, noticed_with=round(second.power, 4))
    whole, control = (told.Count(one.failed, one.total) for one in (reliability.whole, reliability.control))
    repeats = told.Repeats(reliability.most, reliability.repeats)
    return told.CheckReliability(max_wrong=reliability.max_wrong, whole_model=whole, control=control, repeats=repeats)


def plan(ending: SessionResult, judge: Judge, settings: Settings, loaded: Loaded | None) -> told.Plan:
    """Predict checks, time and disk from what the pre-flight cost.

    ``disk_mb``: what the folder of the run takes at most while it is at work; ``disk_left_mb``: what it leaves at most.
    """
    paid = max(sum(judge.tally.paid.values()), 1)
    each = judge.tally.seconds / paid
    trust = checks_after(settings, ending.remaining)
    checks = ending.remaining + trust
    held = sum(path.lstat().st_blocks * 512 for path in judge.folder.parent.rglob("*"))
    left = _left_at_most(settings, loaded, checks) if loaded else 0
    return told.Plan(
        search_checks=ending.remaining,
        trust_checks=trust,
        seconds_each=round(each, 3),
        seconds=round(each * checks, 1),
        disk_mb=round((held + left) / 2**20, 1),
        disk_left_mb=round(left / 2**20, 1),
    )


def _left_at_most(settings: Settings, loaded: Loaded, checks: int) -> int:
    """Return the bytes that a run leaves at most: answers as large as the model, and what is kept of its candidates.

    A command is given all recorded values at most, as an npz and a data set; they lie beside a kept candidate.
    """
    kept, files = settings.artifacts, (loaded.store.weights, loaded.store.structure)
    model = sum(file.stat().st_size for file in files if file.exists())
    recorded = sum(value.size for sample in loaded.recorded.values for value in sample.values())
    values = 2 * recorded if isinstance(settings.checker, CommandChecker) else 0
    copies = {Keep.none: 0, Keep.best: values}.get(kept.keep, checks * (model + values))
    return model + min(kept.disk_budget_mb << 20, copies)


def pass_rate(outcomes: Mapping[str, int]) -> told.Statistics:
    """Return counts, the pass rate and its 95 % interval after Wilson (1927)."""
    passed = outcomes.get(Outcome.PASS.value, 0)
    judged = passed + outcomes.get(Outcome.FAIL.value, 0) + outcomes.get(Outcome.DIFFERENT.value, 0)
    found = told.Statistics(iterations=sum(outcomes.values()), passed=passed, judged=judged)
    if not judged:
        return found
    interval = tuple(round(end, 4) for end in wilson(passed, judged, 1.96))
    return replace(found, pass_rate=round(passed / judged, 4), pass_rate_95=interval)


def own_peak_mb() -> float:
    """Return the most memory that this process has held, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)
