"""A job about precision: which nodes have to be raised so that the check passes, and the model that comes of it."""

from __future__ import annotations

import logging
import math
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.engine.check_trials import Judge
from runner.engine.min_good import HandOver
from runner.engine.session import Session
from runner.engine.session_question import SessionResult
from runner.exit_codes import CannotJudge, Status, UsageError
from runner.jobs.inspect import refused_by_target
from runner.jobs.job import Job
from runner.jobs.precision.explanations import with_overflow_check
from runner.jobs.precision.from_float import LONGEST, cures, from_float, left_out, on_cpu
from runner.jobs.precision.held_out_samples import Values
from runner.jobs.precision.mixed_model import UNOPTIMIZED, Loading, Margin, PrecisionAnswer, PrecisionQuestion, refusals
from runner.jobs.precision.prepare_search import PrecisionSetup, prepare
from runner.jobs.precision.regions import refuse_unknown
from runner.jobs.precision.report import (
    Besides,
    Quantized,
    alone_low,
    answered,
    distance,
    high_called,
    within,
)
from runner.jobs.precision.sample_rounds import Rounds
from runner.jobs.precision.setup import DTYPES
from runner.jobs.precision.units import nodes_of
from runner.jobs.reduce.check_controls import ORIGINAL, ORIGINAL_FILE, fails_on_good
from runner.jobs.repeat import Command
from runner.model.files.parse_without_weights import structure
from runner.model.graph.low_precision import has_low_floats, quantized_nodes
from runner.model.graph.scopes import initializers
from runner.model.values import tensor_bytes
from runner.model.values.recorded import paths
from runner.reference.load import Loaded
from runner.reference.models import outputs_of
from runner.report import bundled_check_files
from runner.report.summary import FLOATS, Summary
from runner.run_folder import MIXED, WITHIN
from runner.schema.backend import OnnxRuntimeBackend, Optimization, Rounding
from runner.schema.checker import AutoChecker, CompareChecker, PythonChecker
from runner.schema.root import Settings
from runner.schema.strategy import Curve, FloatType, PrecisionSettings, chosen
from runner.verdict import Phase, Verdict
from runner.workers.pool import lease_of, limited
from strategies.search import Outcome, Trial

log = logging.getLogger(__name__)

_QUANTIZED = "quantized form"
"""How a message calls what is quantized as it was."""


def run(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Run the job and leave its result folder behind. Raises WinnowError where the question cannot be put at all."""
    made, settings = from_float(settings, folder)
    settings = _rounding(_decided(settings))
    with Job.opened(settings, folder, command) as job:
        refused = refused_by_target(job)
        if refused or not (why := _refuses_optimized(job)):
            return refused or _raise(job, made)
    assert isinstance(settings.target, OnnxRuntimeBackend)
    settings = replace(settings, target=replace(settings.target, optimization=Optimization.none))
    with Job.opened(settings, folder, command) as job:
        log.warning("%s", why)
        return _raise(job, made, (why,))


def _refuses_optimized(job: Job) -> str:
    """Say that ONNX Runtime loads the quantized model only as it is; nothing where it loads it with its optimizations.

    A bug of theirs is no matter of which nodes are quantized.
    """
    settings, target = job.settings, on_cpu(job.settings)
    quantized = chosen(settings.strategy, PrecisionSettings).low is FloatType.quantized
    if not quantized or target is None or settings.checker.runs_own_code or _runs_plain(target):
        return ""
    model, level = str(Path(settings.model or "").expanduser().absolute()), target.optimization.value
    found, _ = refusals(job.pool, settings, target, model, [level, UNOPTIMIZED], target.disabled_optimizers)
    why = found.get(level, "")
    if not why or found[UNOPTIMIZED]:
        return ""
    return (
        f"ONNX Runtime refuses {settings.model} with its optimizations ({why[:LONGEST]}), so models are checked "
        "without them (target.optimization=none)"
    )


def _runs_plain(target: OnnxRuntimeBackend) -> bool:
    """Whether models run without optimizations anyway."""
    return target.optimization is Optimization.none or target.rounding in (Rounding.on, Rounding.strict)


def _decided(settings: Settings) -> Settings:
    """Return the settings with ``strategy.low=auto`` decided by the model file, and the high type of a quantized model.

    That is the type of the original's weights, or of its own. Raises UsageError for unknown forms of quantization.
    """
    strategy = chosen(settings.strategy, PrecisionSettings)
    low, high, sizes = strategy.low, strategy.high, Counter[int]()
    if low is FloatType.auto:
        low = FloatType.float16
        if any(quantized_nodes(structure(settings.model))):
            low = FloatType.quantized
            log.info(
                "the model is quantized, so the question is which nodes must not be quantized (strategy.low=quantized);"
                " strategy.low=float16 asks which nodes must not be float16"
            )
    if low is FloatType.quantized:
        refuse_unknown(structure(settings.model), f"model={settings.model}")  # before a runtime is asked
    if low is FloatType.quantized and high is FloatType.float32:
        for tensor in initializers(structure(settings.reference.model or settings.model)):
            sizes[tensor.data_type] += tensor_bytes.elements(tensor.dims)
        high = max(DTYPES, key=lambda kind: sizes[DTYPES[kind]])
    return replace(settings, strategy=replace(strategy, low=low, high=high))


def _rounding(settings: Settings) -> Settings:
    """Return the settings with the target's rounding decided: on, on ONNX Runtime's CPU, where something is to round.

    What is rounded runs without optimizations. A model in float32 and integers runs as the target runs it.
    """
    target, own = settings.target, settings.checker.runs_own_code
    strategy = chosen(settings.strategy, PrecisionSettings)
    rounds = strategy.low in (FloatType.float16, FloatType.bfloat16)
    if own and rounds and not bundled_check_files.rounds_itself(settings.checker, Path.cwd()):
        log.warning(
            "your check runs the models, so Winnow cannot round their tensors. ONNX Runtime's CPU provider computes "
            "low precision in float32, which hides failures of a GPU. To round like a GPU, use "
            "runner.backends.rounding.session (docs/precision.md)"
        )
    if not isinstance(target, OnnxRuntimeBackend):
        return settings
    files = (structure(path) for path in (settings.model, settings.reference.model))
    is_low = rounds or strategy.high is not FloatType.float32 or any(map(has_low_floats, files))
    if target.rounding is Rounding.off and is_low:
        log.warning(
            "target.rounding=off: ONNX Runtime's CPU provider computes low precision in float32, so failures of a GPU "
            "may not show"
        )
    if target.rounding is not Rounding.auto or on_cpu(settings) is None or not is_low:
        return settings
    if rounds and not own:
        log.info("each low-precision tensor is rounded when it is computed, as on a GPU (target.rounding=on)")
    return replace(settings, target=replace(target, rounding=Rounding.on))


def _raise(job: Job, made: Quantized | None, warnings: tuple[str, ...] = ()) -> Summary:
    """Answer the question; ``warnings``: what is to be said of how."""
    settings = job.settings
    strategy = settings.strategy
    assert isinstance(strategy, PrecisionSettings)
    if strategy.budget:
        within([], strategy.budget)  # a budget that is none is said first
    material = prepare(settings, strategy, job.pool, job.folder)
    loaded = material.loaded
    handed = HandOver(settings.result, job.folder, job.tools.at, loaded.store)
    reliability, steady = job.reliability(), _is_steady(job, loaded)
    low = _QUANTIZED if material.casting.quantized else strategy.low.value
    low = made.low if made and made.low == FloatType.accuracy_level_4 else low
    has_floats = low in FLOATS or has_low_floats(loaded.graph.model, loaded.types.values())
    question = PrecisionQuestion.of(
        *(low, high_called(material), Margin(strategy.margin, _tells_share(settings))),
        emulation=_emulated(settings) if has_floats else "",
        stays_high=len(material.kept.high),
        fixed=sum(one.index is None and one.high for one in nodes_of(material.casting)),
        stays_low=len(material.kept.low),
    )
    looking = with_overflow_check(job, material)
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
        besides = Besides(made)

        def answer() -> SessionResult:
            ending = rounds.answer(plan=settings.plan)
            if ending.status is Status.no_set_suffices and settings.checker.runs_own_code:
                ending = _doubted(job, material, judge, ending)
            if ending.trial is not None and (strategy.curve is Curve.each or strategy.budget):
                alone = rounds.each_alone()
                times = milliseconds(job, material, alone) if strategy.milliseconds else {}
                besides.alone = alone_low(material, question.margin, alone, ending.trial, times)
            if ending.status is Status.found and ending.trial == material.subject.space.whole:
                besides.pairs_fail = _pairs_fail(material, judge)
            if besides.alone and strategy.budget:
                besides.within = _within(rounds, handed, within(besides.alone, strategy.budget), question.margin)
            if ending.status is Status.found and made:
                besides.made = left_out(job, material, judge, rounds, made, ending.trial or Trial.of([]))
                besides.cures = list(cures(job, material, judge, made, question.margin))
            return ending

        ending = job.stopped(job.ended(rounds.interrupted, answer), handed, MIXED)
        if ending.status is Status.found and (worse := _worse_optimized(job, material)):
            rounds.confidence.warn(worse)
        loaded = replace(loaded, warnings=(*loaded.warnings, *warnings, *rounds.confidence.warnings))
        summary = job.summary(judge, ending, loaded, reliability)
        material = material.on(rounds.confidence.samples.searched)
        summary = answered(looking, material, rounds, ending, summary, besides)
        job.bundle(summary)
    return summary


def _worse_optimized(job: Job, material: PrecisionSetup) -> str:
    """Say that a quantized model is wrong rather by ONNX Runtime's optimizations than by quantization, if it is."""
    settings, target, samples = job.settings, job.settings.target, material.subject.samples
    if not isinstance(target, OnnxRuntimeBackend) or material.casting.ends.given is None or not settings.model:
        return ""
    if _runs_plain(target) or not all(one.expected for one in samples):
        return ""
    place, errors = job.folder / "values" / "optimized", list[float]()
    for level in (target.optimization, Optimization.none):
        place.mkdir(parents=True, exist_ok=True)
        asked = replace(settings, reference=replace(target, optimization=level, model=None))
        try:
            made = outputs_of(asked, job.pool, Path(settings.model), [one.feeds for one in samples], place)
        except UsageError:
            return ""
        pairs = zip(made, samples, strict=True)
        known = (distance(mine[name], one.expected[name]) for mine, one in pairs for name in mine.keys() & one.expected)
        errors.append(max((error for error in known if error is not None), default=0.0))
        shutil.rmtree(place)
    optimized, plain = errors
    if optimized <= 2 * plain:
        return ""
    return (
        f"the quantized model's error is {optimized:.2g} of an output's largest value with ONNX Runtime's "
        f"optimizations, {plain:.2g} without: most of it does not come from quantization. target.optimization=none "
        "asks about that alone"
    )


TIMED = 15
"""Runs of each of the two models that are timed in turn."""


def milliseconds(job: Job, material: PrecisionSetup, units: Iterable[int]) -> dict[int, float | None]:
    """Return how much longer a run of the target takes with each unit high than with everything low; None: not known.

    The difference of two medians. Both run as they are, without an emulation of low precision.
    """
    target, store, found = job.settings.target, material.loaded.store, dict[int, float | None]()
    backend = target.to_json()
    backend |= {"rounding": Rounding.off.value} if isinstance(target, OnnxRuntimeBackend) else {}
    lease = lease_of(backend, job.pool, target.python)
    samples = [paths(one.feeds) for one in material.subject.samples[:1]]

    def written(trial: Trial, name: str) -> dict[str, Any]:
        model = material.subject.model(material.subject.raised(trial))
        return {"backend": backend, "model": str(store.write(model, store.folder, name))}

    low = written(Trial.of([]), "timed_low")
    for unit in units:
        models = [low, written(Trial.of([unit]), "timed_high")]
        args = {"models": models, "samples": samples, "runs": TIMED}
        reply = limited(job.pool, job.settings, "latency", args, python=target.python, lease=lease)
        found[unit] = reply.value["ms"][1] - reply.value["ms"][0] if reply.value else None
    for path in store.folder.glob("timed_*"):
        path.unlink()
    return found


def _within(rounds: Rounds, handed: HandOver, trials: Sequence[Trial], margin: Margin) -> dict[str, Any]:
    """Write the model that keeps the best of these sets of units high, and say what comes of it."""
    assert rounds.mixing
    judge = rounds.mixing.session.judge
    verdicts = [judge.sure(trial, Phase.ALONE, "within strategy.budget") for trial in trials]

    def error(at: int) -> tuple[bool, float]:
        share = margin.share(verdicts[at])
        return verdicts[at].outcome is not Outcome.PASS, math.inf if share is None else share

    best = min(range(len(trials)), key=error)
    trial, verdict = trials[best], verdicts[best]
    model = handed.write(judge.subject, trial, WITHIN).name
    nodes, share = list(judge.subject.names(trial)), margin.share(verdict)
    return {"nodes": nodes, "error": share, "outcome": verdict.outcome.value, "model": model}


def _pairs_fail(material: PrecisionSetup, judge: Judge) -> str:
    """Return why the given model fails, if nothing of it is low but the integers of Q/DQ pairs; "": it passes."""
    casting, types = material.casting, {one.data_type for one in material.loaded.graph.initializers.values()}
    if casting.quantized or not casting.mixer.restores or casting.pair.low in types:
        return ""
    called, given = "the model file as it is", Command(material.loaded.path, material.subject.samples)
    verdict = judge.stage(called, given).sure(Trial.of([0]), Phase.CONTROL, called)
    return verdict.reason if verdict.outcome is Outcome.FAIL else ""


def _doubted(job: Job, material: PrecisionSetup, judge: Judge, ending: SessionResult) -> SessionResult:
    """Return how it ends where a check of the user's own fails with everything high: does it pass any model?

    The good model is asked, as the user gave it: the original, or the model under study where nothing of it is low.
    """
    original, casting = job.settings.reference.model, material.casting
    types = {tensor.data_type for tensor in material.loaded.graph.initializers.values()}
    is_high = not casting.quantized and casting.pair.low not in types
    good = Path(original).expanduser().absolute() if original else material.loaded.path if is_high else None
    if good is None:
        given = f"{ending.message}. Nothing passed the check. Give a model that does: {ORIGINAL}"
        refused = CannotJudge(f"{given}.\ncheck: {judge.checker.describe()}", (ORIGINAL,))
    else:
        called = ORIGINAL_FILE if original else "the model file as it is"
        inherited = material.loaded.inherited
        samples = inherited.samples if original and inherited else material.subject.samples
        found = fails_on_good(judge, good, samples, called)
        if found is None:
            return ending
        refused = found
    return replace(ending, status=refused.status, message=str(refused), lacks=refused.lacks)


def _tells_share(settings: Settings) -> bool:
    """Whether the check says how much of what is allowed a model took; a margin is kept then."""
    checker = settings.checker
    return isinstance(checker, AutoChecker | CompareChecker) or (
        isinstance(checker, PythonChecker) and (checker.max_drop is not None or checker.max_rise is not None)
    )


def _is_steady(job: Job, loaded: Loaded) -> bool:
    """Whether nothing in a check can differ from one time to the next: ONNX Runtime's CPU on one thread."""
    target = on_cpu(job.settings)
    plain = target is not None and target.threads == 1 and not target.custom_ops
    return plain and not loaded.graph.drawing and job.settings.checker.runs_samples


def _emulated(settings: Settings) -> str:
    """Say in which emulation low precision is judged; nothing where a runtime or the user's own check judges."""
    if not isinstance(settings.target, OnnxRuntimeBackend) or settings.checker.runs_own_code:
        return ""
    how, said = settings.target.rounding, "each tensor is rounded when it is computed"
    if how is Rounding.strict:
        return f"emulated strictly: {said}, also in reductions and norms"
    more = "target.rounding=strict also rounds inside reductions and norms"
    return f"emulated: {said}; {more}" if how is Rounding.on else ""


# From float alone: the model is quantized with ONNX Runtime's own tools, and the question is that about such a file.
#
# What is made lies in the run's folder: quantized.onnx, and quantize.py, which makes it again but for what has to stay.
