"""Rounding to low precision in the graph, and the names that nodes and tensors had before.

Low precision as a GPU computes it, on a CPU: every tensor of a low type is rounded when it is made.

ONNX Runtime's CPU provider computes most fp16 operators in fp32 and drops the casts between them, so that an overflow
or a loss of digits never shows. Here a model is rewritten so that all its low-precision tensors are fp32 tensors that
hold low-precision values: each operator computes in fp32, and a pair of casts rounds what it makes. It is run without
graph optimizations, which would drop those pairs. An emulation: on a GPU an operator may also accumulate in the low
type (see `lower_operators`, for the strict one), and operators that are fused round less often.
"""

# ruff: noqa: UP035
# ruff: noqa: UP006, UP035, PTH100, PTH120
from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List

from runner.backends.emulation.lowering import INSIDE, LOW, Lowering
from runner.backends.nested_graphs import bodies, graphs, put_in_order

# What nodes and tensors of a model were called before `rounding` rewrote it.

# runs under Python 3.8 (and so without subscripted builtins)


RAW, NARROW, WIDE = "__winnow_raw", "__winnow_narrow", "__winnow_wide"
"""Ends of the names of what a node makes: before it is rounded, in the low type, and after."""


def final(name: str) -> str:
    """Return the name under which others read what a node makes: that after rounding, where it is rounded."""
    return name.replace(RAW, WIDE)


def plain(name: str) -> str:
    """Return what a tensor was called before the model was rewritten."""
    for end in (RAW, WIDE, INSIDE):
        name = name.partition(end)[0]
    return name


def node_label(node: Any) -> str:
    """Return what a node was called before the model was rewritten: its name, else its first output."""
    name = str(node.name or next((name for name in node.output if name), node.op_type))
    return plain(name)


def prefixes(graph: Any, prefix: str = "") -> Iterator[str]:
    """Yield the path of the owner of each graph, as reports name it, in reading order."""
    yield prefix
    for node in graph.node:
        for name, body in bodies(node):
            yield from prefixes(body, f"{prefix}{node_label(node)}.{name}/")


# runs under Python 3.8 (and so without subscripted builtins)


_FLOAT = 1
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "output_datatype")


def rounded(model: Any, *, strict: bool = False) -> Any:
    """Rewrite an ``onnx.ModelProto`` in place and return it; its inputs and outputs keep their types.

    ``strict``: what is inside reductions and norms is rounded too. Raises ValueError for a model with functions: what
    they compute cannot be seen from outside.
    """
    rewritten(model, strict=strict)
    return model


def rewritten(model: Any, *, strict: bool = False) -> List[Dict[str, int]]:
    """Rewrite a model as `rounded` does; return the element types that are seen in each graph, outer ones first.

    What is made in a low type has the name ``X`` + `RAW` before it is rounded, and ``X`` + `WIDE` after.
    """
    if model.functions:
        raise ValueError("a model with functions cannot be rounded operator by operator: inline them first")
    rounder = _Rounder(model, strict=strict)
    rounder.rewrite()
    return rounder.tables


def write(args: Dict[str, Any]) -> Dict[str, Any]:
    """Write the model of ``args["model"]`` as it rounds to ``args["out"]``, beside it: its weights stay in their files.

    ``args["strict"]``: inside reductions and norms too. Raises ValueError for a model with functions.
    """
    import onnx  # noqa: PLC0415 - a runtime is imported when it is used

    model = rounded(onnx.load(args["model"], load_external_data=False), strict=bool(args.get("strict")))
    with open(args["out"], "wb") as file:  # noqa: PTH123 - runs on older interpreters too
        file.write(model.SerializeToString())
    return {}


def session(path: str, *, strict: bool = False) -> Any:
    """Return an ``onnxruntime.InferenceSession`` of a model file that rounds after every operator of a low precision.

    ``strict``: inside reductions and norms too. For functions of the user's: ``from runner.backends.rounding import
    session``. Raises what the runtime raises, and ValueError for a model with functions.
    """
    import onnx  # noqa: PLC0415 - a runtime is imported when it is used

    return unoptimized_session(rounded(onnx.load(path, load_external_data=False), strict=strict), path)


def unoptimized_session(model: Any, path: str, threads: int = 0) -> Any:
    """Return an ``onnxruntime.InferenceSession`` of a model, without graph optimizations.

    ``path``: its weights lie beside it. ``threads``: 0: as many as the runtime chooses. Raises what the runtime raises.
    """
    import onnxruntime  # noqa: PLC0415 - a runtime is imported when it is used

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    do_not_optimize(options, path)
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def do_not_optimize(options: Any, path: str) -> None:
    """Set options for a model in memory that has to stay as it is, and whose weights lie beside ``path``."""
    import onnxruntime  # noqa: PLC0415 - a runtime is imported when it is used

    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    folder = os.path.dirname(os.path.abspath(path))
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)


class _Rounder:
    def __init__(self, model: Any, *, strict: bool) -> None:
        import onnx  # noqa: PLC0415 - a runtime is imported when it is used

        self._onnx = onnx
        self._model = model
        self._lowering = Lowering(model, strict=strict)
        self.tables: List[Dict[str, int]] = []

    def rewrite(self) -> None:
        """Rewrite the top-level graph and all below it."""
        onnx = self._onnx
        put_in_order(self._model.graph)
        inferred = onnx.shape_inference.infer_shapes(self._model)
        for graph, known in zip(graphs(self._model.graph), graphs(inferred.graph)):  # noqa: B905 - see above
            del graph.value_info[:]
            graph.value_info.extend(known.value_info)
        graph = self._model.graph
        nodes: List[Any] = []
        constant = {tensor.name for tensor in graph.initializer}
        # inputs are fed in their own type and cast to fp32 first
        widened = {v.name: f"{v.name}{WIDE}" for v in graph.input if _low(v) and v.name not in constant}
        nodes += [onnx.helper.make_node("Cast", [name], [wide], to=_FLOAT) for name, wide in widened.items()]
        outward = {value.name: value.type.tensor_type.elem_type for value in graph.output}
        self._graph(graph, {}, nodes, widened, outward)

    def _graph(
        self, graph: Any, types: Dict[str, int], nodes: List[Any], renamed: Dict[str, str], outward: Dict[str, int]
    ) -> None:
        onnx = self._onnx
        # a name inside may shadow one outside, of another type
        types = {**types, **_types(graph)}
        known: Dict[str, int] = {}
        self.tables.append(known)
        before = self._lowering.enter(graph)
        for tensor in graph.initializer:
            if tensor.data_type in LOW:
                renamed = {**renamed, tensor.name: f"{tensor.name}{WIDE}"}
                nodes.append(onnx.helper.make_node("Cast", [tensor.name], [f"{tensor.name}{WIDE}"], to=_FLOAT))
        del graph.value_info[:]
        for node in graph.node:
            for part in self._lowering.parts(node, types):
                self._node(part, types, nodes, renamed, outward)
        self._lowering.leave(before)
        del graph.node[:]
        graph.node.extend(nodes)
        for name, dtype in types.items():
            known.update({f"{name}{RAW}": _FLOAT, f"{name}{WIDE}": _FLOAT} if dtype in LOW else {name: dtype})

    def _node(
        self, node: Any, types: Dict[str, int], nodes: List[Any], renamed: Dict[str, str], outward: Dict[str, int]
    ) -> None:
        onnx = self._onnx
        made = [name for name in node.output if name and types.get(name) in LOW]
        node.input[:] = [renamed.get(name, name) for name in node.input]
        for _, body in bodies(node):
            self._body(body, types, renamed)
        if made:
            _widen(node)
        rounding = []
        for place, name in enumerate(node.output):
            if name not in made:
                continue
            node.output[place], renamed[name] = f"{name}{RAW}", f"{name}{WIDE}"
            narrow = name if name in outward else f"{name}{NARROW}"
            rounding.append(onnx.helper.make_node("Cast", [f"{name}{RAW}"], [narrow], to=types[name]))
            rounding.append(onnx.helper.make_node("Cast", [narrow], [f"{name}{WIDE}"], to=_FLOAT))
        nodes.append(node)
        nodes.extend(rounding)

    def _body(self, body: Any, types: Dict[str, int], renamed: Dict[str, str]) -> None:
        """Rewrite a nested graph: what goes in and comes out of it is wide."""
        inner = dict(renamed)
        for value in body.input:
            inner.pop(value.name, None)
        for value in body.input:
            if _low(value):
                value.type.tensor_type.elem_type = _FLOAT
        self._graph(body, types, [], inner, {})
        # what the body defines was renamed in its own table
        made = {name for node in body.node for name in node.output}
        for value in body.output:
            wide = f"{value.name}{WIDE}"
            value.name = wide if wide in made else inner.get(value.name, value.name)
            if _low(value):
                value.type.tensor_type.elem_type = _FLOAT


def _low(value: Any) -> bool:
    return value.type.tensor_type.elem_type in LOW


def _types(graph: Any) -> Dict[str, int]:
    return {
        value.name: value.type.tensor_type.elem_type
        for value in [*graph.value_info, *graph.output, *graph.input]
        if value.type.HasField("tensor_type")
    }


def _widen(node: Any) -> None:
    """Make attributes that say that a low type comes out say fp32."""
    from onnx import numpy_helper  # noqa: PLC0415 - a runtime is imported when it is used

    for attribute in node.attribute:
        if attribute.name in _TYPE_ATTRIBUTES and attribute.i in LOW:
            attribute.i = _FLOAT
        elif attribute.name == "value" and attribute.t.data_type in LOW:
            array = numpy_helper.to_array(attribute.t).astype("float32")
            attribute.t.CopyFrom(numpy_helper.from_array(array, attribute.t.name))
