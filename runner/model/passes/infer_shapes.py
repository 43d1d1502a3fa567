"""Shape inference in a worker: it is native code, and a broken model can take the process with it.

What a model declares is held against what its nodes make, one node after the other: each contradiction is found where
it arises, and what follows is taken as it is declared.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    checker,
    defs,
    helper,
    load,
    save,
    shape_inference,
)

from runner.exit_codes import ModelError
from runner.model.files.parse_without_weights import parse
from runner.model.graph import scopes
from runner.model.graph.edits import copy_of
from runner.model.values.tensor_bytes import byte_size, dtype_name, is_external
from runner.model.values.value_types import declares_type
from runner.text import install, one_line


def infer_shapes(args: Mapping[str, Any]) -> dict[str, Any]:
    """Infer types and shapes of the model at ``args["model"]`` and write what is then known to ``args["out"]``.

    ``mode``: ``onnx``, or ``symbolic`` (ONNX Runtime's script; needs sympy). ``shapes``: concrete shapes of graph
    inputs by name, set first; with them, shapes that the file declares for other tensors are dropped. No weights are
    read.
    Returns ``types``: of how many tensors the element type is known, and ``warning``: what failed, empty if nothing
    did (then the next simpler way was taken: symbolic, ONNX, what the file declares).
    Raises ModelError for an unknown input name or rank, and a missing package.
    """
    model = ModelProto.FromString(Path(args["model"]).read_bytes())
    override_shapes(model, args.get("shapes") or {})
    _import_all_domains(model)
    warnings = []
    inferred = None
    if args.get("mode") == "symbolic":
        inferred, warning = _symbolic(model)
        warnings.append(warning)
    if inferred is None:
        inferred, warning = _onnx(model)
        warnings.append(warning)
    found = inferred or model
    Path(args["out"]).write_bytes(found.SerializeToString())
    return {"types": len(_types(found)), "warning": "; ".join(filter(None, warnings))}


def read_types(path: Path) -> dict[str, TypeProto]:
    """Return the types in a model file, by tensor: of its graph inputs, outputs and value_info.

    Shapes may be missing or partly known.
    """
    return _types(ModelProto.FromString(Path(path).read_bytes()))


def override_shapes(model: ModelProto, shapes: Mapping[str, Any]) -> None:
    """Set concrete shapes of graph inputs, in place. Raises ModelError for a name or a rank that the model has not."""
    inputs = {value.name: value for value in model.graph.input}
    for name, dims in shapes.items():
        if name not in inputs or inputs[name].type.WhichOneof("value") != "tensor_type":
            raise ModelError(f"no tensor input {name!r} to set a shape of; the model's inputs: {', '.join(inputs)}")
        tensor = inputs[name].type.tensor_type
        if tensor.HasField("shape") and len(tensor.shape.dim) != len(dims):
            raise ModelError(
                f"input {name!r} has {len(tensor.shape.dim)} dimensions, the shape given has {len(dims)}: {dims}"
            )
        tensor.ClearField("shape")
        tensor.shape.SetInParent()
        for dim in dims:
            tensor.shape.dim.add(dim_value=int(dim))
    if shapes:
        # sizes that the file declares elsewhere were those for the old input shapes
        for value in [*model.graph.value_info, *model.graph.output]:
            for dim in value.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ():
                dim.Clear()


def _import_all_domains(model: ModelProto) -> None:
    """Import the domains that are used without an import: inference would stop at the first such node."""
    imported = {scopes.domain_of(entry.domain) for entry in model.opset_import}
    used = {scopes.domain_of(node.domain): None for node in scopes.all_nodes(model.graph.node)}
    for domain in used:
        if domain and domain not in imported:
            model.opset_import.add(domain=domain, version=1)


def _onnx(model: ModelProto) -> tuple[ModelProto | None, str]:
    """Return the inferred model, or None and why."""
    with suppress(Exception):  # propagating data (shapes that are computed) fails on some sound models
        return shape_inference.infer_shapes(model, data_prop=True), ""
    try:
        return shape_inference.infer_shapes(model), ""
    except Exception as error:  # noqa: BLE001 - whatever native inference raises
        return None, f"ONNX shape inference failed ({one_line(error)})"


def _symbolic(model: ModelProto) -> tuple[ModelProto | None, str]:
    """Return the inferred model, or None and why. Raises ModelError for a missing package."""
    try:
        importlib.import_module("sympy")
        script = importlib.import_module("onnxruntime.tools.symbolic_shape_infer")
    except ImportError as error:
        raise ModelError(
            f"symbolic shape inference needs {error.name or error}: {install('symbolic')}, or cut.shapes=onnx"
        ) from None
    inference = script.SymbolicShapeInference
    try:
        return inference.infer_shapes(copy_of(model), auto_merge=True), ""
    except Exception as error:  # noqa: BLE001 - a script for well-behaved models: asserts, KeyErrors and more on others
        return None, f"symbolic shape inference failed ({type(error).__name__}: {one_line(error)})"


def _types(model: ModelProto) -> dict[str, TypeProto]:
    groups = (model.graph.value_info, model.graph.output, model.graph.input)
    # copies: a message that is part of another keeps all of it in memory
    return {value.name: copy_of(value.type) for group in groups for value in group if declares_type(value.type)}


# Contradictions: of what is declared and what a node makes, and of what a node reads and what its operator takes.

BARE = "bare.onnx"
_SMALL = 1024
"""Elements of a constant up to which its values tell a shape."""
_MOST_WEIGHTS = 2**31 - 2**20
"""Bytes of a model with its weights that is written anew."""


def called(node: NodeProto) -> str:
    """Return a node's name, or its first output."""
    return node.name or next(filter(None, node.output), f"({node.op_type})")


class _Conflicts:
    """The contradictions of one model: ``found`` has (kind, node, text), ``made_otherwise`` what to mend."""

    def __init__(self, model: ModelProto) -> None:
        self.imports = {scopes.domain_of(one.domain): one.version for one in model.opset_import}
        self.opsets = list(model.opset_import)
        self.functions = {scopes.function_key(function)[:2] for function in model.functions}
        self.found: list[tuple[str, str, str]] = []
        self.made_otherwise: list[tuple[GraphProto, NodeProto, str, TypeProto, TypeProto]] = []
        self.lone: dict[Any, tuple[NodeProto, dict[str, TypeProto], list[str]]] = {}
        self.held: dict[str, TensorProto] = {}
        self.look(model.graph, {})

    def look(self, graph: GraphProto, outer: Mapping[str, TypeProto]) -> None:
        """Look at a graph; ``outer``: the types of what the graphs around it have."""
        declared = {one.name: one.type for group in (graph.value_info, graph.output) for one in group}
        types = {**outer, **{one.name: one.type for one in graph.input}}
        types |= {one.name: helper.make_tensor_type_proto(one.data_type, one.dims) for one in graph.initializer}
        small = [one for one in graph.initializer if math.prod(one.dims) <= _SMALL and not is_external(one)]
        self.held |= {one.name: one for one in small}
        for node in graph.node:
            for inner in scopes.subgraphs(node):
                self.look(inner, types)
            made = self._made(node, types)
            for name in filter(None, node.output):
                said, found = declared.get(name), made.get(name)
                if said is not None and found is not None:
                    self._compare(graph, node, name, said, found)
                if (kind := said if said is not None and declares_type(said) else found) is not None:
                    types[name] = kind

    def _made(self, node: NodeProto, types: Mapping[str, TypeProto]) -> dict[str, Any]:
        """Return the types of what a node makes, as far as ONNX tells."""
        key = scopes.domain_of(node.domain), node.op_type
        if key in self.functions or scopes.subgraphs(node):
            return {}
        read = {name: types[name] for name in node.input if name in types}
        elements = tuple(read[name].tensor_type.elem_type if name in read else 0 for name in node.input)
        self.lone.setdefault((*key, elements), (node, read, []))[2].append(called(node))
        try:
            schema = defs.get_schema(node.op_type, self.imports[key[0]], key[0])
        except Exception:  # noqa: BLE001 - each release of onnx has a class of its own for it
            return {}
        self._operands(node, schema, read)
        data = {name: self.held[name] for name in read if name in self.held}
        try:
            return dict(shape_inference.infer_node_outputs(schema, node, read, data, opset_imports=self.opsets))
        except Exception:  # noqa: BLE001 - whatever native inference raises
            return {}

    def _operands(self, node: NodeProto, schema: Any, read: Mapping[str, TypeProto]) -> None:
        """Note what a node reads in types that its operator does not take, or not together."""
        if not schema.min_input <= len(node.input) <= schema.max_input:  # the form of another opset
            takes = (
                f"{schema.min_input} to {schema.max_input}" if schema.min_input < schema.max_input else schema.max_input
            )
            opset = self.imports[scopes.domain_of(node.domain)]
            said = f"{node.op_type} has {len(node.input)} inputs, in opset {opset} it takes {takes}"
            self.found.append(("inputs", called(node), said))
            return
        together: dict[str, tuple[str, str]] = {}
        for at, name in enumerate(node.input):
            element = read[name].tensor_type.elem_type if name in read else 0
            formal = schema.inputs[min(at, len(schema.inputs) - 1)] if schema.inputs else None
            if not element or formal is None:
                continue
            kind = dtype_name(element).lower()
            other, first = together.setdefault(formal.type_str, (kind, name))
            if f"tensor({kind})" not in formal.types:
                said = f"{node.op_type} takes no {kind} ({name})"
                self.found.append(("type not taken", called(node), said))
            elif other != kind and formal.is_homogeneous:
                said = f"{node.op_type} reads {first} as {other} and {name} as {kind}"
                self.found.append(("mixed types", called(node), said))

    def _compare(self, graph: GraphProto, node: NodeProto, name: str, said: TypeProto, found: TypeProto) -> None:
        mine, theirs = said.tensor_type, found.tensor_type
        what = f"{node.op_type} makes {{}} of {', '.join(filter(None, node.input[:1]))}"
        if mine.elem_type and theirs.elem_type and mine.elem_type != theirs.elem_type:
            names = [dtype_name(one.elem_type).lower() for one in (mine, theirs)]
            self.found.append(
                ("declared type", called(node), f"{name} is declared {names[0]}, {what.format(names[1])}")
            )
            self.made_otherwise.append((graph, node, name, said, found))
        elif mine.HasField("shape") and theirs.HasField("shape"):
            one, other = ([dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
                          for kind in (mine, theirs))  # fmt: skip
            pairs = zip(one, other, strict=False)
            if len(one) != len(other) or any(None not in pair and pair[0] != pair[1] for pair in pairs):
                shapes = [str(dims).replace("None", "?") for dims in (one, other)]
                self.found.append(
                    ("declared shape", called(node), f"{name} is declared {shapes[0]}, {what.format(shapes[1])}")
                )


def check_types(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``conflicts`` [(kind, node, text)] of the model at ``args["model"]``, and what ``checker`` (full) says.

    Each is found by itself: a tensor counts further on as it is declared. The checker is not asked about a file of more
    than ``args["limit"]`` bytes. ``lone``: [(file, what, nodes)], a model in the folder ``args["out"]`` for each
    operator and the types that it reads, of one node. `BARE` there is the model with its large weights as inputs.
    """
    path, said = Path(args["model"]), ""
    try:
        if path.stat().st_size <= args["limit"]:
            checker.check_model(str(path), full_check=True)
    except Exception as error:  # noqa: BLE001 - whatever native code raises
        said = str(error).strip()
    model = parse(path)
    conflicts, lone = _Conflicts(model), []
    for number, (node, read, names) in enumerate(conflicts.lone.values()):
        held = [conflicts.held[name] for name in read if name in conflicts.held]
        fed = [ValueInfoProto(name=name, type=kind) for name, kind in read.items() if name not in conflicts.held]
        made = [ValueInfoProto(name=name) for name in node.output if name]
        alone = helper.make_model(helper.make_graph([node], "g", fed, made, held), ir_version=model.ir_version)
        del alone.opset_import[:]
        alone.opset_import.extend(model.opset_import)
        file = Path(args["out"]) / f"{number}.onnx"
        file.write_bytes(alone.SerializeToString())
        kinds = ", ".join(dict.fromkeys(dtype_name(kind.tensor_type.elem_type).lower() for kind in read.values()))
        lone.append((str(file), f"{node.op_type} of {kinds}", names))
    large = [one for one in model.graph.initializer if math.prod(one.dims) > _SMALL]
    known = {one.name for one in model.graph.input}
    bare = [helper.make_tensor_value_info(one.name, one.data_type, one.dims) for one in large if one.name not in known]
    model.graph.input.extend(bare)
    small = [one for one in model.graph.initializer if math.prod(one.dims) <= _SMALL]
    del model.graph.initializer[:]
    model.graph.initializer.extend(small)
    (Path(args["out"]) / BARE).write_bytes(model.SerializeToString())
    return {"conflicts": conflicts.found, "checker": said, "lone": lone}


def mend_types(args: Mapping[str, Any]) -> dict[str, Any]:
    """Write the model at ``args["model"]`` to ``args["out"]`` with types that agree; return whether it was written.

    ``how``: ``infer`` drops all that is declared inside; ``cast`` converts what a node makes to what is declared of it,
    right behind the node. A model with too many weights for one file is not written.
    """
    path, out = Path(args["model"]), Path(args["out"])
    model = parse(path)
    if sum(byte_size(one.data_type, one.dims) or 0 for one in model.graph.initializer) > _MOST_WEIGHTS:
        return {"written": False}
    model = load(str(path))
    if args["how"] == "infer":
        del model.graph.value_info[:]
    for graph, node, name, said, found in _Conflicts(model).made_otherwise:
        if args["how"] == "infer":
            for one in graph.output:
                if one.name == name:
                    one.type.CopyFrom(found)
            continue
        raw = f"{name}_as_made"
        node.output[list(node.output).index(name)] = raw
        cast = helper.make_node("Cast", [raw], [name], name=raw, to=said.tensor_type.elem_type)
        graph.node.insert(list(graph.node).index(node) + 1, cast)
    save(model, str(out))
    return {"written": True}
