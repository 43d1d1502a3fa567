"""A job about precision: which nodes have to be raised so that the check passes, and the model that comes of it."""

from __future__ import annotations

import json
import logging
import math
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import GraphProto

from runner import backends
from runner.engine.check_trials import Judge
from runner.engine.min_good import HandOver
from runner.engine.session import Session
from runner.engine.session_question import SessionResult
from runner.engine.tally import HANDED_OVER
from runner.exit_codes import CannotJudge, Status, UsageError
from runner.files import write_text
from runner.jobs.inspect import refused_by_target
from runner.jobs.job import Job
from runner.jobs.precision.explanations import with_overflow_check
from runner.jobs.precision.held_out_samples import Values, held_places
from runner.jobs.precision.mixed_model import UNOPTIMIZED, Loading, Margin, PrecisionAnswer, PrecisionQuestion, refusals
from runner.jobs.precision.prepare_search import PrecisionSetup, prepare
from runner.jobs.precision.regions import refuse_unknown
from runner.jobs.precision.report import (
    SCRIPT,
    Besides,
    Quantized,
    alone_low,
    answered,
    beside,
    distance,
    excluded,
    high_called,
    within,
)
from runner.jobs.precision.sample_rounds import Rounds
from runner.jobs.precision.setup import DTYPES
from runner.jobs.precision.units import nodes_of
from runner.jobs.processes import processes
from runner.jobs.reduce.check_controls import ORIGINAL, ORIGINAL_FILE, fails_on_good
from runner.jobs.repeat import Command
from runner.model.files.parse_without_weights import parse, structure
from runner.model.graph import scopes
from runner.model.graph.graph_index import Graph
from runner.model.graph.low_precision import has_low_floats, quantized_nodes
from runner.model.graph.scopes import initializers
from runner.model.values import recorded, tensor_bytes
from runner.model.values.recorded import paths
from runner.reference.load import Loaded, own_file_only, profiled_samples
from runner.reference.models import outputs_of
from runner.reference.parent import PARTNERS
from runner.report import bundled_check_files
from runner.report.summary import FLOATS, Summary
from runner.run_folder import FLOAT, MIXED, QUANTIZED, WITHIN
from runner.schema.backend import OnnxRuntimeBackend, Optimization, Rounding
from runner.schema.checker import AutoChecker, CompareChecker, PythonChecker
from runner.schema.inputs import RandomInputs
from runner.schema.root import Settings
from runner.schema.strategy import Calibration, Curve, FloatType, PrecisionSettings, chosen
from runner.text import install, listed
from runner.verdict import Candidate, Phase, Purpose, Verdict
from runner.workers.pool import Pool, lease_of, limited, operate
from strategies.search import Outcome, Trial

log = logging.getLogger(__name__)

_CPU = "CPUExecutionProvider"
_LONGEST = 300
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
    settings, target = job.settings, _on_cpu(job.settings)
    quantized = chosen(settings.strategy, PrecisionSettings).low is FloatType.quantized
    if not quantized or target is None or settings.checker.runs_own_code or _runs_plain(target):
        return ""
    model, level = str(Path(settings.model or "").expanduser().absolute()), target.optimization.value
    found, _ = refusals(job.pool, settings, target, model, [level, UNOPTIMIZED], target.disabled_optimizers)
    why = found.get(level, "")
    if not why or found[UNOPTIMIZED]:
        return ""
    return (
        f"ONNX Runtime refuses {settings.model} with its optimizations ({why[:_LONGEST]}), so models are checked "
        "without them (target.optimization=none)"
    )


def _on_cpu(settings: Settings) -> OnnxRuntimeBackend | None:
    """Return the target, where it is ONNX Runtime on the CPU alone."""
    target = settings.target
    return target if isinstance(target, OnnxRuntimeBackend) and target.providers == [_CPU] else None


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
    if target.rounding is not Rounding.auto or _on_cpu(settings) is None or not is_low:
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
                besides.made = _left_out(job, material, judge, rounds, made, ending.trial or Trial.of([]))
                besides.cures = list(_cures(job, material, judge, made, question.margin))
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
    target = _on_cpu(job.settings)
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

FEWEST = 16
"""Samples that are drawn to calibrate on, at least; of the user's own, all are taken but those that are held out."""
ASKED, CALIBRATION = "quantize.json", "calibration.npz"


def from_float(settings: Settings, folder: Path) -> tuple[Quantized | None, Settings]:
    """Quantize the model where ``strategy.low`` says to what; return the settings that ask about the file so made.

    Raises UsageError where that cannot be done, or nothing of the model is quantized.
    """
    strategy = chosen(settings.strategy, PrecisionSettings)
    if not strategy.low.is_made:
        return None, settings
    asked = f"strategy.low={strategy.low.value}"
    if settings.reference.model:
        raise UsageError(
            f"{asked} makes the low model of model={settings.model}, so that is the original: leave reference.model "
            "out. A model that is quantized already: strategy.low=quantized"
        )
    if strategy.high is not FloatType.float32 and (strategy.low, strategy.high) != (FloatType.int4, FloatType.int8):
        raise UsageError(f"{asked} strategy.high={strategy.high.value}: ONNX Runtime's tools quantize float32")
    own_file_only(settings, "quantizes")
    with processes(settings, folder) as running:
        made = _quantize(settings, strategy, running.pool, folder)
    # a tool leaves tensors their names
    known: dict[str, Any] = {"model": str(made.model), "map": str(folder / PARTNERS)}
    reference = replace(settings.reference, **known)
    how = replace(strategy.quantize, operators=made.args["operators"])
    quantized = replace(strategy, low=FloatType.quantized, quantize=how)
    model = str(folder / f"{QUANTIZED}.onnx")
    return made, replace(settings, model=model, reference=reference, strategy=quantized)


def _quantize(settings: Settings, strategy: PrecisionSettings, pool: Pool, folder: Path) -> Quantized:
    path, named = Path(settings.model or "").expanduser().absolute(), folder / f"{FLOAT}.onnx"
    what = f"strategy.low={strategy.low.value}: model={settings.model}"
    if not path.is_file():
        raise UsageError(f"{what}: no such file")
    level = strategy.low is FloatType.accuracy_level_4
    args: dict[str, Any] = {"model": str(path), "out": str(named), "level": level}
    reply = operate(pool, settings, "name_nodes", args, what)
    if reply.value is None:
        raise UsageError(f"{what} cannot be read: {reply.why}")
    path = named if reply.value["named"] else path
    samples = "" if level or strategy.low is FloatType.int4 else _calibration(settings, strategy, path, pool, folder)
    args = {
        "low": strategy.low.value,
        "high": strategy.high.value,
        "model": str(path),
        "out": str(folder / f"{QUANTIZED}.onnx"),
        "samples": samples and str(folder / samples),
        "exclude": [],
        **asdict(strategy.quantize),
    }
    reply = operate(pool, settings, "quantize", args, what)
    if reply.value is None:
        if reply.failure and reply.failure.type == "ModuleNotFoundError":
            raise UsageError(f"{what} cannot be quantized without a package: {reply.why}; {install('int4')}")
        raise UsageError(f"{what} cannot be quantized: {reply.why}")
    _runs(settings, pool, args["out"], what)
    beside = {"model": named.name if path == named else str(path), "samples": samples}
    write_text(folder / ASKED, json.dumps({**args, **beside}, indent=1) + "\n")
    shutil.copyfile(Path(backends.__file__).with_name("quantize_model.py"), folder / SCRIPT)
    partners = tool_partners(*(parse(Path(one)).graph for one in (path, args["out"])))
    write_text(folder / PARTNERS, json.dumps(partners) + "\n")
    args["operators"] = reply.value["operators"]
    return Quantized(strategy.low.value, path, args)


def tool_partners(theirs: GraphProto, mine: GraphProto) -> dict[str, str]:
    """Return the float model's tensor by the one that ONNX Runtime's tool made of it.

    The tool leaves nodes their names. What is before a Relu that it takes out gets the name of what that gave, and
    what is before the last pair gets another one than the graph's output.
    """
    makers = {node.name: node.output for node in theirs.node}
    named = {name for made in makers.values() for name in made}
    found = {name: name for node in mine.node for name in node.output if name in named}
    quantized = {node.output[0]: node.input[0] for node in mine.node if node.op_type == "QuantizeLinear"}
    for node in mine.node:
        found |= zip(node.output, makers.get(node.name, ()), strict=False)
        if node.op_type == "DequantizeLinear" and (name := quantized.get(node.input[0])) in named:
            found[node.output[0]] = name
    return {name: found[name] for name in sorted(found) if name}


def _left_out(
    job: Job, material: PrecisionSetup, judge: Judge, rounds: Rounds, made: Quantized, trial: Trial
) -> Quantized:
    """Check what the tool makes where it leaves out what the answer names; return the same with the outcome.

    It need not be the mixed model: a tool quantizes what a node reads as long as the node before is quantized.
    """
    raised = material.subject.raised(trial)
    names, more = (excluded(material, one) for one in (raised, beside(material, raised)))
    known = judge.journal.get(trial, HANDED_OVER) if rounds.confidence.passed else None
    verdict, why = _by_tool(job, material, judge, {**made.args, "exclude": list(names)}, trial, "excluded", 2, known)
    if verdict is not None and verdict.outcome is Outcome.PASS:
        return replace(made, excluded=names, holds=verdict.outcome.value)
    said = f"the model that ONNX Runtime's tool quantizes without these nodes does not pass ({why}), as the tool "
    wider, _ = _by_tool(job, material, judge, {**made.args, "exclude": list(more)}, trial, "excluded", 5)
    if wider is not None and wider.outcome is Outcome.PASS:
        besides = listed([one for one in more if one not in names])
        rounds.confidence.warn(f"{said}quantizes what they read for other nodes. It passes without {besides} as well")
        return replace(made, excluded=more, holds=wider.outcome.value)
    rounds.confidence.warn(f"{said}still quantizes their inputs. {MIXED}.onnx passes")
    return replace(made, excluded=names, holds=verdict.outcome.value if verdict else "")


def _by_tool(
    job: Job,
    material: PrecisionSetup,
    judge: Judge,
    args: Mapping[str, Any],
    trial: Trial,
    name: str,
    number: int,
    known: Verdict | None = None,
) -> tuple[Verdict | None, str]:
    """Check what ONNX Runtime's tool makes, asked so, on all samples; return the verdict, and why it is none.

    ``number``: tells this check from those of the mixed model of the same trial, whose verdicts would stand for it.
    ``known``: the verdict of the mixed model on all samples, which is not checked again where the tool makes the same.
    """
    out, place = job.folder / f"{name}.onnx", judge.folder / name
    place.mkdir(parents=True, exist_ok=True)
    reply = limited(job.pool, job.settings, "quantize", {**args, "out": str(out)})
    try:
        if reply.value is None:
            return None, reply.why
        if known and scopes.equal_but_for_names(parse(out), parse(job.folder / f"{MIXED}.onnx")):
            return known, known.reason
        samples = (*material.subject.samples, *material.samples.of(material.division.held))
        label, names = "as ONNX Runtime's tool makes it", tuple(args["exclude"])
        candidate = Candidate(out, place, trial, samples, nodes=names, ours=False, phase=Phase.RECHECK, label=label)
        verdict = judge.check(candidate, Purpose.TRUST, number * HANDED_OVER, own=False)
        return verdict, verdict.reason if verdict else ""
    finally:
        for path in job.folder.glob(f"{name}.onnx*"):
            path.unlink()


_OTHERWISE: Mapping[str, Mapping[str, Any]] = {
    "int4": {"block_size": 16},
    "int8": {"per_channel": True, "calibration": Calibration.percentile.value},
}
"""What else a tool can be asked, by the low type: each alone may do without raised nodes."""


def _cures(
    job: Job, material: PrecisionSetup, judge: Judge, made: Quantized, margin: Margin
) -> Iterator[dict[str, Any]]:
    """Quantize the whole model in other ways, with no node excluded, and yield what comes of each."""
    for number, (key, value) in enumerate(_OTHERWISE.get(made.low, {}).items(), 3):
        if made.args[key] == value:
            continue
        args = {**made.args, key: value}
        verdict, why = _by_tool(job, material, judge, args, Trial.of([]), f"with_{key}", number)
        setting = f"strategy.quantize.{key}={str(value).lower()}"
        share = margin.share(verdict) if verdict else None
        outcome = verdict.outcome.value if verdict else ""
        yield {"setting": setting, "outcome": outcome, "error": share, "why": why}


def _calibration(settings: Settings, strategy: PrecisionSettings, model: Path, pool: Pool, folder: Path) -> str:
    """Write what is calibrated on, without what is held out; return the file's name."""
    inputs = settings.inputs
    if isinstance(inputs, RandomInputs):
        settings = replace(settings, inputs=replace(inputs, samples=max(inputs.samples, FEWEST)))
    place = folder / "inputs"
    values, _ = profiled_samples(settings, Graph.of(parse(model)), pool, place)
    held: set[int] = set()
    if not isinstance(inputs, RandomInputs) and 1 < len(values) > (strategy.held_out or 0) and strategy.held_out != 0:
        held = held_places(len(values), strategy.held_out)
    searched = [one for at, one in enumerate(values) if at not in held]
    arrays = {f"{at}/{name}": recorded.read(file) for at, one in enumerate(searched) for name, file in one.items()}
    np.savez(folder / CALIBRATION, **arrays)
    shutil.rmtree(place, ignore_errors=True)
    return CALIBRATION


def _runs(settings: Settings, pool: Pool, model: str, what: str) -> None:
    """Raise UsageError where ONNX Runtime's CPU provider has to run what its tool made, and does not."""
    target = _on_cpu(settings)
    if target is None:
        return
    found, untried = refusals(pool, settings, target, model, [UNOPTIMIZED], target.disabled_optimizers)
    if why := untried or found[UNOPTIMIZED]:
        raise UsageError(f"{what} is quantized, but ONNX Runtime's CPU provider does not run it so: {why[:_LONGEST]}")
