"""A job about precision: which nodes have to be raised so that the check passes, and the model that comes of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runner import casting as casts
from runner import stale
from runner.checkers.coarseness import coarse
from runner.curve import Curve, curve
from runner.drift import Row, layer_errors
from runner.ending import Ending
from runner.errors import CannotJudge, UsageError
from runner.gain import gain, table
from runner.handover import MIXED, HandOver
from runner.inquiry import Inquiry
from runner.listing import listed
from runner.loading import Loaded, load
from runner.prior import Facts, facts, prior
from runner.raised import Question
from runner.report.atomic import write_text
from runner.report.bundle import write_bundle
from runner.report.plot import plot_curve, plot_layers
from runner.report.summary import Summary
from runner.schema.backend import OnnxRuntimeBackend, Rounding
from runner.schema.root import Settings
from runner.schema.strategy import Direction, Goal, PrecisionSettings, SearchKind, SubjectKind
from runner.subjects.precision import Precision, parents_of
from runner.terms import used
from runner.trust import Trust
from strategies.precision import Prior, cheapest, precision, prefix, scan
from strategies.search import Search, Step
from strategies.space import Space

if TYPE_CHECKING:
    from runner.job import Job
    from runner.tactic_bench import Parts

log = logging.getLogger(__name__)

LAYERS, PLOT, CURVE = "layers.json", "layers.svg", "curve.svg"
_CPU = "CPUExecutionProvider"
_QUANTIZED = "Q/DQ"
"""How a message calls what is quantised as it was."""
_OWN_WAYS = ("command", "interactive", "python")


def rounding(settings: Settings) -> Settings:
    """Return the settings with the target's rounding decided: on where precision is searched on ONNX Runtime's CPU."""
    target = settings.target
    if settings.strategy.subject is SubjectKind.precision and settings.checker.name in _OWN_WAYS:
        log.warning(
            "checker=%s runs models in its own way: on ONNX Runtime's CPU provider that computes low precision in fp32 "
            "and hides what a GPU shows, unless it uses runner.backends.rounding.session (docs/precision.md)",
            settings.checker.name,
        )
    if not isinstance(target, OnnxRuntimeBackend) or target.rounding is not Rounding.auto:
        if settings.strategy.subject is SubjectKind.precision and getattr(target, "rounding", None) is Rounding.off:
            log.warning(
                "target.rounding=off: ONNX Runtime's CPU provider computes low precision in fp32 and drops casts, so "
                "it does not show what a GPU does"
            )
        return settings
    wanted = settings.strategy.subject is SubjectKind.precision and target.providers == [_CPU]
    if wanted:
        log.info("low precision is emulated: tensors are rounded as they are made (target.rounding=on)")
    return replace(settings, target=replace(target, rounding=Rounding.on if wanted else Rounding.off))


def run(job: Job, parts: Parts) -> Summary:
    """Run the job and leave its result folder behind. Raises WinnowError where the question cannot be put at all."""
    settings = job.settings
    strategy = settings.strategy
    assert isinstance(strategy, PrecisionSettings)
    _refuse(strategy)
    loaded = load(settings, job.pool, job.folder)
    casting = casts.cast(settings, strategy, loaded, job.pool)
    parents = parents_of(casting.layers)
    unranked = Facts(why=f"strategy={strategy.name} follows the model's order")
    known = facts(settings, casting, loaded, job.pool) if _is_ranked(strategy) else unranked
    costs = table(strategy, casting, loaded) if strategy.goal is Goal.cheapest else {}
    space = Space(tuple(range(len(casting.layers))), parents)
    space = cheapest(space, costs) if costs else space
    samples = casts.samples_of(casting, loaded, job.folder / "values" / "cast")
    if casting.is_lossy and not settings.reference.model:
        samples = casts.raised_outputs(settings, casting, loaded, job.pool, samples, job.folder / "values" / "raised")
    subject = Precision(casting.mixer, loaded.store, samples, space.order, parents)
    warnings = (*casting.warnings, *_out_of_range(casting), *coarse(settings.checker, samples))
    loaded = replace(loaded, warnings=(*loaded.warnings, *warnings))
    for warning in warnings:
        log.warning("%s", warning)
    handed = HandOver(settings.result, job.folder, job.tools.at, loaded.store)
    with parts.judge(job, subject, loaded) as judge:
        stale.drop(job.folder, used(settings, job.tools.at))
        doubt = Trust(settings.checker.flaky, settings.checker.max_wrong)
        step = _step(strategy, space, prior(casting, known, parents, costs))
        inquiry = Inquiry(judge, doubt, lambda told: Search(space, step, told), parts.means(job))
        question = Question(
            judge,
            inquiry,
            handed,
            doubt,
            (_QUANTIZED if casting.quantized else strategy.low.value, strategy.high.value),
        )
        try:
            ending = question.preflight() or (_planned(inquiry) if settings.plan else question.answer())
            if ending.standing and ending.exit_code != CannotJudge.exit_code:
                _valid(job, loaded)
        except CannotJudge as error:
            ending = Ending(error.status, error.exit_code, str(error))
        except KeyboardInterrupt as error:
            ending = question.interrupted(getattr(error, "exit_code", 130))
            ending = replace(ending, message=f"{ending.message}; go on with resume={job.folder}")
        summary = parts.account(job, judge, ending, loaded, doubt)
        summary = _answered(summary, ending, subject, casting)
        if ending.trial is not None and ending.standing:
            told = gain(strategy, casting, known, loaded, ending.trial)
            rows: list[Row] = []
            if strategy.layer_errors and ending.status != "interrupted":
                place = job.folder / "values" / "drift"
                rows = layer_errors(settings, casting, known, loaded, job.pool, samples, ending.trial, place)
            points = curve(judge.journal.entries())
            summary = replace(summary, precision={**told, **_written(job, rows, points, question)})
        write_bundle(settings, job.folder, summary, job.tools.cwd, job.command, None)
    return summary


def _is_ranked(strategy: PrecisionSettings) -> bool:
    return strategy.search is SearchKind.precision


def _written(job: Job, rows: list[Row], points: Curve, question: Question) -> dict[str, Any]:
    """Write the error of each layer, and draw the curve; return the curve, and the names of the files."""
    drawn = len(points) > 1 and plot_curve(points, job.folder / CURVE, question.high)
    found: dict[str, Any] = {"layers": None, "plot": None, "curve": points, "curve_plot": CURVE if drawn else None}
    if not rows:
        return found
    write_text(job.folder / LAYERS, json.dumps(rows, indent=1) + "\n")
    plotted = plot_layers(rows, job.folder / PLOT, question.low)
    return {**found, "layers": LAYERS, "plot": PLOT if plotted else None}


def _refuse(strategy: PrecisionSettings) -> None:
    """Raise UsageError for options that would change nothing."""
    ranked = strategy.search is SearchKind.precision
    if strategy.goal is Goal.cheapest and not ranked:
        raise UsageError(
            f"strategy={strategy.name} strategy.goal=cheapest: a prefix is in the model's order, whatever it costs; "
            "use strategy=precision strategy.goal=cheapest"
        )
    if strategy.direction is Direction.reverse and ranked:
        raise UsageError(
            f"strategy={strategy.name} strategy.direction=reverse: it follows the error of nodes and no direction; "
            "use strategy=precision_bisect strategy.direction=reverse"
        )
    if strategy.costs and strategy.goal is Goal.smallest:
        raise UsageError("strategy.costs without strategy.goal=cheapest counts for nothing: set strategy.goal=cheapest")


def _planned(inquiry: Inquiry) -> Ending:
    return Ending("planned", 0, "stopped after the pre-flight, as asked", remaining=inquiry.search.remaining)


def _valid(job: Job, loaded: Loaded) -> None:
    """Raise CannotJudge if what is handed over is no valid model, and the user's was one.

    Where low precision is emulated, checks do not see the types that clash.
    """
    limits = job.settings.workers
    told: list[Mapping[str, Any]] = []
    for path in (job.folder / f"{MIXED}.onnx", loaded.path):
        args = {"model": str(path), "full": True}
        reply = job.pool.call("check_model", args, timeout=limits.timeout, memory_mb=limits.memory_mb)
        told.append({"ok": True, "message": ""} if reply.value is None else reply.value)
        if told[0]["ok"]:
            return
    if told[1]["ok"]:
        raise CannotJudge(
            f"{MIXED}.onnx is no valid model, which is a defect of Winnow: {told[0]['message'][:400]}. Please report "
            "it with the model; another strategy.low or strategy.keep_io may help"
        )


def _step(strategy: PrecisionSettings, space: Space, known: Prior) -> Step:
    reverse = strategy.direction is Direction.reverse
    if strategy.search is SearchKind.precision_bisect:
        return prefix(space, reverse=reverse)
    if strategy.search is SearchKind.precision_linear:
        return scan(space, reverse=reverse)
    return precision(space, known)


def _out_of_range(casting: casts.Casting) -> tuple[str, ...]:
    found = []
    for counts, what in (
        (casting.clamped, "beyond the range; the largest value it has is taken"),
        (casting.flushed, "too small for it and become zero"),
    ):
        if counts:
            found.append(f"weights in low precision: {sum(counts.values())} values of {listed(counts)} are {what}")
    return tuple(found)


def _answered(summary: Summary, ending: Ending, subject: Precision, casting: casts.Casting) -> Summary:
    summary = replace(summary, nodes_before=len(casting.layers))
    if not ending.standing:
        return summary
    trial = ending.standing.trial
    return replace(summary, nodes_after=len(trial), culprits=subject.names(trial), model=f"{MIXED}.onnx")
