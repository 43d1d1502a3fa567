"""Runs `strategy=inspect`: what a model or an engine is made of, and why the target does not load it."""

from __future__ import annotations

import logging
import re
import shlex
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias

import onnx
from onnx import NodeProto, TensorProto, helper

from runner.engine.verdict_cache import versions
from runner.exit_codes import Status, UsageError
from runner.jobs.job import Job
from runner.jobs.model_concerns import Concern, duplicate_names, header_of, operator_name, unknown_operators
from runner.jobs.processes import processes
from runner.journal import artifact_folder
from runner.judgment import Whose
from runner.model.files.parse_without_weights import parse
from runner.model.files.read_model import check_text
from runner.model.graph.scopes import domain_of
from runner.model.passes.infer_shapes import BARE
from runner.reference.load import STEPS
from runner.report.diagnosis_sections import screen
from runner.report.result_parts import Concern as ToldConcern
from runner.report.result_parts import Inspection
from runner.report.summary import Seconds, Summary
from runner.report.typed_json import from_json
from runner.run_folder import WORKAROUND
from runner.schema.backend import OnnxRuntimeBackend, TensorRtBackend
from runner.schema.root import Settings
from runner.schema.strategy import InspectSettings, chosen
from runner.text import counted, listed, one_line, program_name
from runner.workers.gpu_leases import NoGpuError
from runner.workers.pool import Pool, lease_of, operate

# What of a model the installed runtime does not know: its opsets, its IR version, its operators.

Unknown: TypeAlias = tuple[str, str, list[str]]
"""An operator that is not known: its domain, its name, the names of its nodes."""

#: of ONNX Runtime's message what is about the file, and the place in its own source
_WHERE = re.compile(r"^.*?\.onnx failed:(/\S+:\d+ .*?::.*\) (?=[A-Z]))?(This is an invalid model\. )?", re.DOTALL)


def limits_of_runtime(
    settings: Settings, pool: Pool, inspection: Mapping[str, Any], unknown: Sequence[Unknown]
) -> tuple[list[Concern], list[str]]:
    """Return what the target does not know, and what could not be asked.

    ONNX Runtime is given a model with the opsets and the IR version of the model and one Identity, where it imports
    the domain of that: what it refuses there it refuses in any model. ``unknown``: operators that neither the model nor
    ``onnx`` defines, with their nodes; others tell nothing.
    """
    target = settings.target
    if not isinstance(target, OnnxRuntimeBackend):
        return _unknown(unknown, "onnx", inspection), []
    name = f"onnxruntime {pool.versions(target.python).get('onnxruntime', '')}".strip()
    with tempfile.TemporaryDirectory() as scratch:
        plain, strange = Path(scratch) / "opsets.onnx", Path(scratch) / "operators.onnx"
        identity = helper.make_node("Identity", ["x"], ["y"])
        _write(plain, [identity] if "ai.onnx" in inspection["opsets"] else [], inspection)
        _write(strange, [helper.make_node(op, [], ["y"], domain=domain) for domain, op, _ in unknown], inspection)
        args = {"model": str(plain), "levels": ["disable"], "custom_ops": list(target.custom_ops)}
        loads = pool.call("loads", args, python=target.python, timeout=settings.workers.timeout)
        schemas = pool.call("contrib_schemas", {"model": str(strange)}, python=target.python)
    if loads.value is None:
        return [], [f"whether the runtime knows the opsets was not asked: {loads.why}"]
    refused = _short(loads.value["levels"].get("disable", ""))
    found = []
    if refused and inspection["opsets"]:
        stated = {**inspection["opsets"], "IR version": inspection["ir_version"]}
        header = {f"{what} {version}": re.search(rf"\b{version}\b", refused) for what, version in stated.items()}
        ours = refused.rpartition("guarantee backward compatibility. ")[2].rstrip(".")  # before it is what any is told
        said = f"{name} refuses any model with these versions, even one Identity node: {ours}"
        found = [Concern("opset", said, [one for one, named in header.items() if named] or [*header])]
    known = {(one["domain"], one["op"]) for one in (schemas.value or {}).get("schemas", ())}
    # of the operators in a library of the user's own nobody is told
    left = [] if target.custom_ops else [one for one in unknown if (one[0], one[1]) not in known]
    return [*found, *_unknown(left, name, inspection)], []


def _short(said: str) -> str:
    """Return what ONNX Runtime says without the file and the place in its own source."""
    return one_line(_WHERE.sub("", said))


def _unknown(operators: Sequence[Unknown], runtime: str, inspection: Mapping[str, Any]) -> list[Concern]:
    """Return what operators of the model nobody knows, with their nodes, and what to do."""
    if not operators:
        return []
    names = [operator_name(domain, name) for domain, name, _ in operators]
    said = [_why_unknown(domain, name, runtime, inspection) for domain, name, _ in operators]
    told = []
    for (_, _, nodes), operator, (why, cure) in zip(operators, names, said, strict=True):
        several = len(operators) > 1
        told.append(f"{operator} (node {listed(nodes, 2)}): {why}; {cure}" if several else f"{why}; {cure}")
    return [Concern(_UNKNOWN, "; ".join(told[:_MOST_TOLD]), names)]


_MOST_TOLD = 3


def _why_unknown(domain: str, name: str, runtime: str, inspection: Mapping[str, Any]) -> tuple[str, str]:
    """Return why an operator is not known, and what to do."""
    domain = domain_of(domain) or "ai.onnx"
    if domain not in ("ai.onnx", "ai.onnx.ml"):
        if domain == "com.microsoft":
            return f"{runtime} has no such operator", "take a release or build of onnxruntime that has it"
        return (
            f"{runtime} has no such operator",
            f"give the library of {domain}: target.custom_ops=[/path/to/library.so]",
        )
    schemas = [one for one in onnx.defs.get_all_schemas_with_history() if (one.domain or "ai.onnx") == domain]
    version, own = inspection["opsets"].get(domain, 0), [one for one in schemas if one.name == name]
    if later := [one.since_version for one in own if one.since_version > version and not one.deprecated]:
        others = [one for one in inspection["operators"] if one in {each.name for each in schemas} and one != name]
        changed = [one for one in others if _since(one, version, domain) != _since(one, min(later), domain)]
        enough = f"; to raise its opset_import is not enough: {listed(changed)} changed" if changed else ""
        cure = f"export the model with opset {min(later)}{enough or ', or raise its opset_import'}"
        return f"{domain} {version} has no {name}, {min(later)} has", cure
    if gone := [one.since_version for one in own if one.deprecated]:
        return f"{domain} has no {name} since opset {min(gone)}", "let the exporter write what took its place"
    near = get_close_matches(name, sorted({one.name for one in schemas}), 1, 0.75)
    return f"{domain} {version} has no such operator", f"is {near[0]} meant?" if near else "correct its name or domain"


def _since(name: str, version: int, domain: str) -> int:
    """Return the opset since which an operator is as it is in a version; 0: it has none."""
    domain = "" if domain == "ai.onnx" else domain
    return onnx.defs.get_schema(name, version, domain).since_version if onnx.defs.has(name, version, domain) else 0


def _write(path: Path, nodes: Sequence[NodeProto], inspection: Mapping[str, Any]) -> None:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    imports = [helper.make_opsetid(domain_of(domain), version) for domain, version in inspection["opsets"].items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:] if nodes else values[:1])
    model = helper.make_model(graph, opset_imports=imports, ir_version=inspection["ir_version"])
    path.write_bytes(model.SerializeToString())


log = logging.getLogger(__name__)

ENGINES = (".engine", ".plan", ".trt")
"""What the names of TensorRT's engines end in."""


def run(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Look into the file and leave the result folder behind. Raises UsageError for one that cannot be read."""
    from runner.report.bundle import write_bundle  # noqa: PLC0415 - after the search of a reduction

    with processes(settings, folder) as running:
        asks = chosen(settings.strategy, InspectSettings).run
        summary = _told(settings, folder, running.pool, asks=asks)
        if command and summary.inspection:  # a step of a triage says it in a line
            log.info("%s\n%s", settings.model, screen(summary.inspection))
        for warning in summary.warnings:
            log.warning("%s", warning)
        write_bundle(settings, folder, summary, Path.cwd(), command, None)
    return summary


def refused_by_target(job: Job) -> Summary | None:
    """End a run on a model that the target does not load, where its header, operators or names say why.

    Return its summary; None: the run goes on. A run that searches asks this first: no search tells more. A check of the
    user's own may run something else.
    """
    settings, pool = job.settings, job.pool
    target, path = settings.target, Path(settings.model or "").expanduser().absolute()
    asked = isinstance(target, OnnxRuntimeBackend) and not (target.model or settings.checker.runs_own_code)
    if not asked or any(getattr(settings.sanitize, step) for step in STEPS):
        return None
    try:
        model = parse(path)
        check_text(model)
    except Exception:  # noqa: BLE001 - the run says what is wrong with the file
        return None
    concerns, _ = limits_of_runtime(settings, pool, header_of(model), unknown_operators(model))
    found = _told(settings, job.folder, pool, asks=True) if concerns or duplicate_names(model) else None
    if not (found and found.inspection and found.inspection.why):
        return None
    if not found.culprits:  # of its header
        look = f"{found.message}. To look at the file: {program_name()} inspect {shlex.quote(settings.model or '')}"
        found = replace(found, message=look)
    job.drop_stale_results()
    job.bundle(found)
    return found


def _told(settings: Settings, folder: Path, pool: Pool, *, asks: bool) -> Summary:
    """Return what is told of the file. ``asks``: the target, whether it loads it."""
    started = time.monotonic()
    path = Path(settings.model or "").expanduser().absolute()
    artifact_folder.drop(folder, [path])
    if path.suffix in ENGINES:
        inspection, warnings, reason, nodes = _engine(settings, path, pool)
    else:
        inspection, warnings, reason, nodes = _model(settings, path, pool, folder, asks=asks)
    concerns = inspection.concerns
    size = counted(inspection.nodes, "layer" if inspection.kind == "engine" else "node")
    told = ": ".join(filter(None, (counted(len(concerns), "concern"), ", ".join(one.kind for one in concerns))))
    return Summary(
        status=Status.found,
        exit_code=Status.found.exit_code,
        strategy=settings.strategy.name,
        whose=_whose(settings, reason),
        message="; ".join(filter(None, (inspection.why, inspection.cure))) or f"{size}, {told}",
        culprits=nodes,
        model=f"{WORKAROUND}.onnx" if (folder / f"{WORKAROUND}.onnx").is_file() else None,
        nodes_before=inspection.nodes,
        inspection=inspection,
        input_model=settings.model,
        versions=versions(settings, pool),
        warnings=tuple(warnings),
        seconds=Seconds(time.monotonic() - started),
        peak_rss_mb={"workers": pool.peak_rss_mb},
    )


#: the kinds of concerns for which a model does not load, the surest first
_REASONS = (
    *("unreadable weights", "no opset", "opset", "unknown operator", "invalid graph", "domain not imported"),
    *("inputs", "declared type", "type not taken", "mixed types", "no kernel", "duplicate names"),
    "onnx.checker",
)
#: those of which the target need not be asked
_SURE = _REASONS[:5]
_LARGE = 256 << 20
"""Bytes of weights from which on the target is asked about the model without them."""
#: those that name nodes; those for which the target is too old, else the model or its converter is mistaken
_OF_NODES = _REASONS[6:-1]
_TOO_OLD = frozenset({"opset", "unknown operator", "domain not imported", "no kernel"})
_UNKNOWN = "unknown operator"
_CURES = {
    "infer": "without the types that are declared inside",
    "cast": "with a Cast to the declared type behind each of them",
}


def _model(
    settings: Settings, path: Path, pool: Pool, folder: Path, *, asks: bool
) -> tuple[Inspection, list[str], ToldConcern | None, tuple[str, ...]]:
    """Return what is told, warnings, the reason why the target does not load the model, and the nodes of that."""
    told = _value(settings, pool, "describe_model", {"model": str(path)}, path)
    (folder / f"{WORKAROUND}.onnx").unlink(missing_ok=True)
    unknown: list[Unknown] = [(str(domain), str(name), nodes) for domain, name, nodes in told.pop("unknown")]
    with tempfile.TemporaryDirectory() as scratch:
        args = {"model": str(path), "out": scratch, "limit": _LARGE}
        reply = pool.call("check_types", args, timeout=settings.workers.timeout)
        types = reply.value or {"conflicts": [], "checker": "", "lone": []}
        concerns, warnings = [*_contradictions(types)], []
        if reply.value is None:
            warnings.append(f"types were not checked: {reply.why}")
        if asks:
            more, unasked = limits_of_runtime(settings, pool, told, unknown)
            concerns, warnings = [*more, *concerns], [*warnings, *unasked]
        kinds = {one["kind"] for one in told["concerns"]} | {one.kind for one in concerns}
        target = settings.target
        certain = _SURE if isinstance(target, OnnxRuntimeBackend) and not target.model else _SURE[: not target.model]
        refused, large, sure = "", False, next((kind for kind in certain if kind in kinds), "")
        if asks and isinstance(target, OnnxRuntimeBackend) and not target.model and not sure:
            large = told["weights"]["bytes"] > _LARGE
            refused = _refused(settings, pool, Path(scratch) / BARE if large else path)
            concerns += _without_kernel(settings, pool, types["lone"]) if refused else []
    reason = sure or next((one for one in _REASONS if refused and one in kinds | {one.kind for one in concerns}), "")
    refused = refused if reason or not large else ""  # it may want weights where they are inputs
    told["concerns"] = [*told["concerns"], *(one.to_json() for one in concerns)]
    made = from_json(Inspection, {**told, "refused": _short(refused)})
    because = next((one for one in made.concerns if one.kind == reason), None)
    if because is None:
        return made, warnings, None, ()
    cure = _mended(settings, pool, path, folder) if refused and "declared type" in kinds else ""
    why = because.what if reason in _OF_NODES else f"{because.where}: {because.what}"
    if reason == _REASONS[-1]:  # both refuse it, and the target says where
        why = f"the target and onnx.checker refuse the file: {made.refused}"
    nodes = tuple(name for *key, names in unknown if operator_name(*key) in because.names for name in names)
    return replace(made, why=why, cure=cure), warnings, because, because.names if reason in _OF_NODES else nodes


def _whose(settings: Settings, reason: ToldConcern | None) -> str | None:
    """Return whose mistake it is that the target refuses the model; None where it does not, or is too old for it."""
    own = reason and reason.kind == _UNKNOWN and not any("." in name for name in reason.names)  # of ai.onnx
    if reason is None or (reason.kind in _TOO_OLD and not own):
        return None
    return str((Whose.CONVERSION if settings.reference.model else Whose.MODEL).value)


def _contradictions(types: Mapping[str, Any]) -> Iterator[Concern]:
    found: dict[str, list[tuple[str, str]]] = {}
    for kind, node, text in types["conflicts"]:
        found.setdefault(kind, []).append((node, text))
    for kind, several in found.items():
        more = f"; {len(several) - 1} more like it" if several[1:] else ""
        yield Concern(kind, f"{several[0][1]}{more}", [node for node, _ in several])
    if types["checker"] and not found and "is required but missing" not in types["checker"]:
        yield Concern("onnx.checker", one_line(types["checker"]), ["the file"])


def _refused(settings: Settings, pool: Pool, path: Path) -> str:
    """Return what the target says of a model, without optimizations, that it does not load; "" where it does."""
    args = {"model": str(path), "levels": ["disable"], "custom_ops": list(getattr(settings.target, "custom_ops", ()))}
    reply = pool.call("loads", args, python=settings.target.python, timeout=settings.workers.timeout)
    return str(reply.value["levels"].get("disable", "")) if reply.value else ""


def _without_kernel(settings: Settings, pool: Pool, lone: Sequence[tuple[str, str, list[str]]]) -> list[Concern]:
    """Return the operators that the target implements for none of the types that they read, each asked alone."""
    refused = [(what, names) for file, what, names in lone if "NOT_IMPLEMENTED" in _refused(settings, pool, Path(file))]
    whats = listed(dict.fromkeys(what for what, _ in refused))
    said = f"the target has no kernel for {whats}"
    return [Concern("no kernel", said, [name for _, names in refused for name in names])] if refused else []


def _mended(settings: Settings, pool: Pool, path: Path, folder: Path) -> str:
    """Try what may cure contradicting types; return what it came to. What loads is left in the folder."""
    out, said = folder / f"{WORKAROUND}.onnx", ""
    for how, what in _CURES.items():
        reply = pool.call("mend_types", {"model": str(path), "out": str(out), "how": how})
        if not (reply.value and reply.value["written"]):
            return ""
        if not (said := _refused(settings, pool, out)):
            return f"{what} it loads: {out.name}"
        out.unlink()
    return f"{' and '.join(_CURES.values())} it does not load either: {_short(said)}"


def _engine(settings: Settings, path: Path, pool: Pool) -> tuple[Inspection, list[str], None, tuple[str, ...]]:
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
    return from_json(Inspection, {**made, **told}), [], None, ()


def _value(settings: Settings, pool: Pool, op: str, args: Mapping[str, Any], path: Path, **how: Any) -> dict[str, Any]:
    """Return what the operation finds out. Raises UsageError where the file, or this machine, does not let it."""
    try:
        reply = operate(pool, settings, op, args, f"model={path}: reading it", **how)
    except NoGpuError as error:
        raise UsageError(f"model={settings.model}: TensorRT reads an engine on a GPU only. {error}") from None
    if reply.value is None:
        raise UsageError(f"model={settings.model}: {reply.why}")
    return dict(reply.value)
