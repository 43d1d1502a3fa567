"""What of a model the installed runtime does not know: its opsets, its IR version, its operators."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnx import NodeProto, TensorProto, helper

from runner.jobs.inspect.concerns import Concern
from runner.schema.backend import OnnxRuntimeBackend
from runner.schema.root import Settings
from runner.text import one_line
from runner.workers.pool import Pool

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
