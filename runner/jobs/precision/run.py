"""A job about precision: which nodes have to be raised so that the check passes, and the model that comes of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runner.artifacts import stale
from runner.artifacts.disk_space import NoRoom
from runner.errors import CannotJudge
from runner.jobs.precision.held_out_samples import JUDGED, Values
from runner.jobs.precision.ort_loadable import Loadable, Loading
from runner.jobs.precision.prepare import prepare
from runner.jobs.precision.question import Question, Words
from runner.jobs.precision.report import infinities
from runner.jobs.precision.report.summary import answered
from runner.jobs.precision.sample_rounds import Rounds
from runner.jobs.precision.subject import Precision
from runner.jobs.precision.trust import Trust
from runner.jobs.reduce.closure import used
from runner.loading.load import Loaded
from runner.report.bundle import write_bundle
from runner.report.summary import Summary
from runner.run_folder import MIXED
from runner.schema.backend import OnnxRuntimeBackend, Rounding
from runner.schema.checker import AutoChecker, CompareChecker, PythonChecker
from runner.schema.root import Settings
from runner.schema.strategy import PrecisionSettings, SubjectKind
from runner.session.handover import HandOver
from runner.session.inquiry import Inquiry
from runner.session.judge import Judge
from runner.session.result import Ending
from runner.verdict import Verdict
from strategies.search import Search
from strategies.trial import Trial

if TYPE_CHECKING:
    from runner.jobs.job import Job
    from runner.jobs.tactics.isolate import Parts

log = logging.getLogger(__name__)

_CPU = "CPUExecutionProvider"
_QUANTIZED = "Q/DQ"
"""How a message calls what is quantized as it was."""
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
    material = prepare(settings, strategy, job.pool, job.folder)
    loaded = material.loaded
    handed = HandOver(settings.result, job.folder, job.tools.at, loaded.store)
    doubt = _trust(settings, strategy)
    low = _QUANTIZED if material.casting.quantized else strategy.low.value
    words = Words(low, strategy.high.value, _emulated(settings), len(material.kept.high), len(material.kept.low))
    looking = infinities.with_overflow_check(job, material)
    steady = _is_steady(job, loaded)
    loadable = Loadable(settings, material.casting, loaded, job.pool)

    def ask(judge: Judge, base: Trial | None, values: tuple[Values, ...], fails_low: Verdict | None) -> Question:
        step = material.step(base, values)
        inquiry = Inquiry(judge, doubt, lambda told: Search(judge.subject.space, step, told), parts.means(job))
        subject = judge.subject
        assert isinstance(subject, Precision)
        loading = Loading(loadable, subject)
        return Question(judge, inquiry, handed, doubt, words, steady=steady, fails_low=fails_low, loading=loading)

    with parts.judge(looking, material.subject, loaded) as judge:
        stale.drop(job.folder, used(settings, job.tools.at))
        rounds = Rounds(judge, ask, job.journals, material.division, material.samples, material.likely)
        try:
            ending = rounds.answer(plan=settings.plan)
            if ending.standing and ending.exit_code != CannotJudge.exit_code:
                _valid(job, loaded)
        except (CannotJudge, NoRoom) as error:
            ending = Ending(error.status, error.exit_code, str(error))
        except KeyboardInterrupt as error:
            ending = rounds.interrupted(getattr(error, "exit_code", 130))
            ending = replace(ending, message=f"{ending.message}; go on with resume={job.folder}")
        loaded = replace(loaded, warnings=(*loaded.warnings, *rounds.known.warnings))
        summary = parts.account(job, judge, ending, loaded, doubt)
        summary = answered(looking, material, rounds, ending, summary)
        write_bundle(settings, job.folder, summary, job.tools.cwd, job.command, None)
    return summary


def _trust(settings: Settings, strategy: PrecisionSettings) -> Trust:
    """Return how verdicts are taken; a margin is kept where a check says how much of what is allowed it took."""
    checker = settings.checker
    measured = isinstance(checker, AutoChecker | CompareChecker) or (
        isinstance(checker, PythonChecker) and (checker.max_drop is not None or checker.max_rise is not None)
    )
    return Trust(checker.flaky, checker.max_wrong, aim=strategy.margin, measured=measured)


def _is_steady(job: Job, loaded: Loaded) -> bool:
    """Whether nothing in a check can differ from one time to the next: an emulation on one thread."""
    target = job.settings.target
    return (
        isinstance(target, OnnxRuntimeBackend)
        and target.rounding in (Rounding.on, Rounding.strict)
        and target.threads == 1
        and not target.custom_ops
        and not loaded.graph.drawing
        and job.checker.name in JUDGED
    )


def _emulated(settings: Settings) -> str:
    """Say in which emulation low precision is judged; nothing where a runtime or the user's own check judges."""
    if not isinstance(settings.target, OnnxRuntimeBackend) or settings.checker.name in _OWN_WAYS:
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
