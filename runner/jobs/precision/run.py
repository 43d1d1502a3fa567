"""A job about precision: which nodes have to be raised so that the check passes, and the model that comes of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.engine.check_trials import Judge
from runner.engine.min_good import HandOver
from runner.engine.session import Session
from runner.engine.session_question import SessionResult
from runner.errors import CannotJudge
from runner.jobs.job import Job
from runner.jobs.precision import overflow_report
from runner.jobs.precision.mixed_model import Loading, Margin, PrecisionAnswer, PrecisionQuestion
from runner.jobs.precision.prepare_search import prepare
from runner.jobs.precision.report import answered
from runner.jobs.precision.sample_rounds import Rounds
from runner.jobs.precision.validation_samples import Values
from runner.judgment import Status
from runner.reference.load import Loaded
from runner.report.summary import Summary
from runner.run_folder import MIXED
from runner.schema.backend import OnnxRuntimeBackend, Rounding
from runner.schema.checker import AutoChecker, CompareChecker, PythonChecker
from runner.schema.root import Settings
from runner.schema.strategy import PrecisionSettings
from runner.verdict import Verdict
from runner.workers.pool import limited
from strategies.trial import Trial

log = logging.getLogger(__name__)

_CPU = "CPUExecutionProvider"
_QUANTIZED = "quantized form"
"""How a message calls what is quantized as it was."""


def run(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Run the job and leave its result folder behind. Raises WinnowError where the question cannot be put at all."""
    with Job.opened(_rounding(settings), folder, command) as job:
        return _raise(job)


def _rounding(settings: Settings) -> Settings:
    """Return the settings with the target's rounding decided: on, on ONNX Runtime's CPU."""
    target = settings.target
    if settings.checker.runs_own_code:
        log.warning(
            "checker=%s runs models in its own way: on ONNX Runtime's CPU provider that computes low precision in fp32 "
            "and hides what a GPU shows, unless it uses runner.backends.rounding.session (docs/precision.md)",
            settings.checker.name,
        )
    if not isinstance(target, OnnxRuntimeBackend):
        return settings
    if target.rounding is Rounding.off:
        log.warning(
            "target.rounding=off: ONNX Runtime's CPU provider computes low precision in fp32 and drops casts, so it "
            "does not show what a GPU does"
        )
    if target.rounding is not Rounding.auto or target.providers != [_CPU]:
        return settings
    log.info("low precision is emulated: tensors are rounded as they are made (target.rounding=on)")
    return replace(settings, target=replace(target, rounding=Rounding.on))


def _raise(job: Job) -> Summary:
    settings = job.settings
    strategy = settings.strategy
    assert isinstance(strategy, PrecisionSettings)
    material = prepare(settings, strategy, job.pool, job.folder)
    loaded = material.loaded
    handed = HandOver(settings.result, job.folder, job.tools.at, loaded.store)
    reliability, steady = job.reliability(), _is_steady(job, loaded)
    low = _QUANTIZED if material.casting.quantized else strategy.low.value
    question = replace(
        PrecisionQuestion.of(low, strategy.high.value, Margin(strategy.margin, _tells_share(settings))),
        emulation=_emulated(settings),
        stays_high=len(material.kept.high),
        stays_low=len(material.kept.low),
    )
    looking = overflow_report.with_overflow_check(job, material)
    loading = Loading(material)

    def ask(judge: Judge, base: Trial | None, values: tuple[Values, ...], fails_low: Verdict | None) -> PrecisionAnswer:
        step = material.step(base, values)
        session = Session(
            judge,
            lambda space: step,
            question=question,
            means=job.means,
            reliability=reliability,
            hand_over=handed,
            steady=steady,
            nothing=fails_low,
        )
        return PrecisionAnswer(session, question, loading)

    def size(trial: Trial) -> int:  # an element may be several nodes
        return len(material.subject.names(trial))

    with looking.judge(material.subject, loaded, "raised", size) as judge:
        job.drop_stale_results()
        rounds = Rounds(judge, ask, material.division, material.samples, material.likely)

        def answer() -> SessionResult:
            ending = rounds.answer(plan=settings.plan)
            if ending.standing and ending.status is not Status.could_not_judge:
                _valid(job, loaded)
            return ending

        ending = job.stopped(job.ended(rounds, answer), handed, MIXED)
        loaded = replace(loaded, warnings=(*loaded.warnings, *rounds.confidence.warnings))
        summary = job.summary(judge, ending, loaded, reliability)
        summary = answered(looking, material, rounds, ending, summary)
        job.bundle(summary)
    return summary


def _tells_share(settings: Settings) -> bool:
    """Whether the check says how much of what is allowed a model took; a margin is kept then."""
    checker = settings.checker
    return isinstance(checker, AutoChecker | CompareChecker) or (
        isinstance(checker, PythonChecker) and (checker.max_drop is not None or checker.max_rise is not None)
    )


def _is_steady(job: Job, loaded: Loaded) -> bool:
    """Whether nothing in a check can differ from one time to the next: an emulation on one thread."""
    target = job.settings.target
    return (
        isinstance(target, OnnxRuntimeBackend)
        and target.rounding in (Rounding.on, Rounding.strict)
        and target.threads == 1
        and not target.custom_ops
        and not loaded.graph.drawing
        and job.settings.checker.runs_samples
    )


def _emulated(settings: Settings) -> str:
    """Say in which emulation low precision is judged; nothing where a runtime or the user's own check judges."""
    if not isinstance(settings.target, OnnxRuntimeBackend) or settings.checker.runs_own_code:
        return ""
    told = {
        Rounding.on: "emulated: tensors are rounded as they are made; target.rounding=strict also rounds inside "
        "reductions and norms",
        Rounding.strict: "emulated strictly: tensors are rounded as they are made, and inside reductions and norms",
    }
    return told.get(settings.target.rounding, "")


def _valid(job: Job, loaded: Loaded) -> None:
    """Raise CannotJudge if what is handed over is no valid model, and the user's was one.

    Where low precision is emulated, checks do not see the types that clash.
    """
    told: list[Mapping[str, Any]] = []
    for path in (job.folder / f"{MIXED}.onnx", loaded.path):
        reply = limited(job.pool, job.settings, "check_model", {"model": str(path), "full": True})
        told.append({"ok": True, "message": ""} if reply.value is None else reply.value)
        if told[0]["ok"]:
            return
    if told[1]["ok"]:
        raise CannotJudge(
            f"{MIXED}.onnx is no valid model, which is a defect of Winnow: {told[0]['message'][:400]}. Please report "
            "it with the model; another strategy.low or strategy.keep_io may help"
        )
