"""A float model that ONNX Runtime's own tools quantize, and what they make of it without the nodes of the answer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from runner import backends
from runner.engine.check_trials import Judge
from runner.engine.tally import HANDED_OVER
from runner.exit_codes import UsageError
from runner.files import write_text
from runner.jobs.job import Job
from runner.jobs.precision.held_out_samples import held_places
from runner.jobs.precision.mixed_model import UNOPTIMIZED, Margin, refusals
from runner.jobs.precision.prepare_search import PrecisionSetup
from runner.jobs.precision.report import (
    SCRIPT,
    Quantized,
    beside,
    excluded,
)
from runner.jobs.precision.sample_rounds import Rounds
from runner.jobs.processes import processes
from runner.model.files.parse_without_weights import parse
from runner.model.graph.graph_index import Graph
from runner.model.graph.scopes import subgraphs
from runner.model.values import recorded
from runner.reference.load import own_file_only, profiled_samples
from runner.reference.parent import PARTNERS
from runner.run_folder import FLOAT, MIXED, QUANTIZED
from runner.schema.backend import OnnxRuntimeBackend
from runner.schema.inputs import RandomInputs
from runner.schema.root import Settings
from runner.schema.strategy import Calibration, FloatType, PrecisionSettings, chosen
from runner.text import install, listed
from runner.verdict import Candidate, Phase, Purpose, Verdict
from runner.workers.pool import Pool, limited, operate
from strategies.search import Outcome, Trial

_CPU = "CPUExecutionProvider"
LONGEST = 300
"""Characters of what a runtime said that a message quotes."""
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


def left_out(
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
        if known and equal_but_for_names(parse(out), parse(job.folder / f"{MIXED}.onnx")):
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


def cures(
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
    target = on_cpu(settings)
    if target is None:
        return
    found, untried = refusals(pool, settings, target, model, [UNOPTIMIZED], target.disabled_optimizers)
    if why := untried or found[UNOPTIMIZED]:
        raise UsageError(f"{what} is quantized, but ONNX Runtime's CPU provider does not run it so: {why[:LONGEST]}")


def on_cpu(settings: Settings) -> OnnxRuntimeBackend | None:
    """Return the target, where it is ONNX Runtime on the CPU alone."""
    target = settings.target
    return target if isinstance(target, OnnxRuntimeBackend) and target.providers == [_CPU] else None


def equal_but_for_names(one: ModelProto, other: ModelProto) -> bool:
    """Whether two models compute the same by the same nodes, whatever nodes and weights are called.

    Not known, and so False, where a node holds a graph, and of functions and weights outside of the files.
    """
    return (told := _unnamed(one)) is not None and told == _unnamed(other)


def _unnamed(model: ModelProto) -> object:
    """Return what a model computes without the names that do not matter; None: not known."""
    graph, nodes, held = model.graph, list[bytes](), dict[str, str]()
    if model.functions or graph.sparse_initializer or any(one.external_data for one in graph.initializer):
        return None
    for tensor in graph.initializer:
        weight = TensorProto()
        weight.CopyFrom(tensor)
        weight.name = weight.doc_string = ""
        held[tensor.name] = sha256(weight.SerializeToString(deterministic=True)).hexdigest()
    for node in graph.node:
        if subgraphs(node):
            return None
        attributes = sorted(node.attribute, key=lambda one: one.name)
        inputs = [held.get(name, name) for name in node.input]
        made = NodeProto(op_type=node.op_type, domain=node.domain, input=inputs, output=node.output)
        made.attribute.extend(attributes)
        nodes.append(made.SerializeToString(deterministic=True))
    ends = [[value.SerializeToString(deterministic=True) for value in side] for side in (graph.input, graph.output)]
    return sorted((one.domain, one.version) for one in model.opset_import), ends, sorted(nodes)
