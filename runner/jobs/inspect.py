"""A run of strategy=inspect, and what of a model the installed runtime does not know.

Runs `strategy=inspect`: says what a model or an engine is made of; nothing is checked, and nothing is run.
"""

from __future__ import annotations

import logging
import re
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnx import NodeProto, TensorProto, helper

from runner.engine.verdict_cache import versions
from runner.errors import UsageError
from runner.jobs.model_description import Concern
from runner.jobs.processes import processes
from runner.journal import artifact_folder
from runner.judgment import Status
from runner.report.bundle import write_bundle
from runner.report.diagnosis_sections import screen
from runner.report.result_parts import Inspection
from runner.report.summary import Seconds, Summary
from runner.report.typed_json import from_json
from runner.schema.backend import OnnxRuntimeBackend, TensorRtBackend
from runner.schema.root import Settings
from runner.text import counted, one_line
from runner.workers.leases import NoGpuError
from runner.workers.pool import Pool, lease_of, operate

# What of a model the installed runtime does not know: its opsets, its IR version, its operators.

#: of ONNX Runtime's message what is about the file here, and the place in its own source
_WHERE = re.compile(r"^.*?opsets\.onnx failed:(/\S+:\d+ \S+::.*\) (?=[A-Z]))?(This is an invalid model\. )?", re.DOTALL)


def limits_of_runtime(
    settings: Settings, pool: Pool, inspection: Mapping[str, Any], unknown: Sequence[tuple[str, str]]
) -> tuple[list[Concern], list[str]]:
    """Return what the target does not know, and what could not be asked.

    ONNX Runtime is given a model with the opsets and the IR version of the model and one Identity, where it imports
    the domain of that: what it refuses there it refuses in any model. ``unknown``: operators that neither the model nor
    ``onnx`` defines; others tell nothing.
    """
    target = settings.target
    if not isinstance(target, OnnxRuntimeBackend):
        return _unknown(unknown, "onnx"), []
    name = f"onnxruntime {pool.versions(target.python).get('onnxruntime', '')}".strip()
    with tempfile.TemporaryDirectory() as scratch:
        plain, strange = Path(scratch) / "opsets.onnx", Path(scratch) / "operators.onnx"
        identity = helper.make_node("Identity", ["x"], ["y"])
        _write(plain, [identity] if "ai.onnx" in inspection["opsets"] else [], inspection)
        _write(strange, [helper.make_node(op, [], ["y"], domain=domain) for domain, op in unknown], inspection)
        args = {"model": str(plain), "levels": ["disable"], "custom_ops": list(target.custom_ops)}
        loads = pool.call("loads", args, python=target.python, timeout=settings.workers.timeout)
        schemas = pool.call("contrib_schemas", {"model": str(strange)}, python=target.python)
    if loads.value is None:
        why = loads.failure.message if loads.failure else loads.death
        return [], [f"whether the runtime knows the opsets was not asked: {why}"]
    refused = one_line(_WHERE.sub("", loads.value["levels"].get("disable", "")))
    stated = {**inspection["opsets"], "IR version": inspection["ir_version"]}
    imports = [f"{name} {version}" for name, version in stated.items()]
    found = (
        [Concern("opset", f"{name} does not take it: {refused}", imports)] if refused and inspection["opsets"] else []
    )
    known = {(one["domain"], one["op"]) for one in (schemas.value or {}).get("schemas", ())}
    # of the operators in a library of the user's own nobody is told
    left = [] if target.custom_ops else [one for one in unknown if one not in known]
    return [*found, *_unknown(left, name)], []


def _unknown(operators: Sequence[tuple[str, str]], runtime: str) -> list[Concern]:
    names = [f"{domain}.{name}" if domain else name for domain, name in operators]
    return [Concern("unknown operator", f"the imported opset has no such operator ({runtime})", names)] if names else []


def _write(path: Path, nodes: Sequence[NodeProto], inspection: Mapping[str, Any]) -> None:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    imports = [helper.make_opsetid(domain, version) for domain, version in inspection["opsets"].items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:] if nodes else values[:1])
    model = helper.make_model(graph, opset_imports=imports, ir_version=inspection["ir_version"])
    path.write_bytes(model.SerializeToString())


log = logging.getLogger(__name__)

ENGINES = (".engine", ".plan", ".trt")
"""What the names of TensorRT's engines end in."""


def run(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Look into the file and leave the result folder behind. Raises UsageError for one that cannot be read."""
    started = time.monotonic()
    path = Path(settings.model or "").expanduser().absolute()
    with processes(settings, folder) as running:
        artifact_folder.drop(folder, [path])
        look = _engine if path.suffix in ENGINES else _model
        inspection, warnings = look(settings, path, running.pool)
        log.info("%s\n%s", settings.model, screen(inspection))
        for warning in warnings:
            log.warning("%s", warning)
        concerns = inspection.concerns
        size = counted(inspection.nodes, "layer" if inspection.kind == "engine" else "node")
        told = ", ".join(one.kind for one in concerns)
        summary = Summary(
            status=Status.found,
            exit_code=Status.found.exit_code,
            strategy=settings.strategy.name,
            message=f"{size}, {counted(len(concerns), 'concern')}" + (f": {told}" if told else ""),
            nodes_before=inspection.nodes,
            inspection=inspection,
            input_model=settings.model,
            versions=versions(settings, running.pool),
            warnings=tuple(warnings),
            seconds=Seconds(time.monotonic() - started),
            peak_rss_mb={"workers": running.pool.peak_rss_mb},
        )
        write_bundle(settings, folder, summary, Path.cwd(), command, None)
    return summary


def _model(settings: Settings, path: Path, pool: Pool) -> tuple[Inspection, list[str]]:
    told = _value(settings, pool, "describe_model", {"model": str(path)}, path)
    unknown = [(str(domain), str(name)) for domain, name in told.pop("unknown")]
    concerns, warnings = limits_of_runtime(settings, pool, told, unknown)
    told["concerns"] = [*told["concerns"], *(one.to_json() for one in concerns)]
    return from_json(Inspection, told), warnings


def _engine(settings: Settings, path: Path, pool: Pool) -> tuple[Inspection, list[str]]:
    target = settings.target if isinstance(settings.target, TensorRtBackend) else TensorRtBackend()
    target = replace(target, python=settings.target.python)
    lease = lease_of(target.to_json(), pool, target.python)
    args = {"engine": str(path), "flavor": target.flavor.value}
    told = _value(settings, pool, "engine_layers", args, path, python=target.python, lease=lease)
    tensors = [*told["inputs"], *told["outputs"]]
    dynamic = {one["name"]: dims for one in told["inputs"] if (dims := [dim for dim in one["shape"] if dim == "?"])}
    made = {
        "kind": "engine",
        "bytes": path.stat().st_size,
        "nodes": len(told["layers"]),
        "operators": dict(Counter(one["type"] for one in told["layers"] if one["type"]).most_common()),
        "dtypes": dict(Counter(one["dtype"] for one in tensors).most_common()),
        "dynamic": dynamic,
    }
    return from_json(Inspection, {**made, **told}), []


def _value(settings: Settings, pool: Pool, op: str, args: Mapping[str, Any], path: Path, **how: Any) -> dict[str, Any]:
    """Return what the operation finds out. Raises UsageError where the file, or this machine, does not let it."""
    try:
        reply = operate(pool, settings, op, args, f"model={path}: reading it", **how)
    except NoGpuError as error:
        raise UsageError(f"model={settings.model}: TensorRT reads an engine on a GPU only. {error}") from None
    if reply.value is None:
        said = reply.failure.message if reply.failure else "no answer"
        raise UsageError(f"model={settings.model}: {said}")
    return dict(reply.value)
