"""The reference evaluator of the onnx package: numpy semantics, where fp16 really rounds and overflows."""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PLC0415, PTH100, PTH114, PTH118, PTH120, PTH123
from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, Tuple

import numpy as np

from runner.backends.errors import StageError
from runner.backends.nested_graphs import all_graphs, put_in_order, take_apart
from runner.backends.numpy_arrays import declared_as, from_array, from_python, to_python
from runner.backends.tensor_files import Structure, Value, of_value


class OnnxReference:
    """One loaded model.

    ``inputs``: all that can be fed; ``structures``: of those whose type is declared; ``required``: those without a
    default; ``outputs``: names in the model's order.
    """

    def __init__(self, evaluator: Any, model: Any) -> None:
        self._evaluator = evaluator
        self._model = model
        self._declared: Dict[str, Any] = {}
        self._inferred = False
        self._declare(model)
        self._optionals = _has_optionals(model)
        self.inputs = frozenset(evaluator.input_names)
        self.structures = {value.name: _structure_of(value.type) for value in model.graph.input}
        defaults = {tensor.name for tensor in model.graph.initializer}
        defaults.update(tensor.values.name for tensor in model.graph.sparse_initializer)
        self.required = [
            value.name
            for value in model.graph.input
            if value.name not in defaults and value.type.WhichOneof("value") != "optional_type"
        ]
        self.outputs = list(evaluator.output_names)
        self._custom = _custom_types()

    @staticmethod
    def prepare(_settings: Any = None) -> None:
        """Import the package. Raises StageError (setup) if it is not installed or older than 1.13."""
        try:
            import onnx.reference  # noqa: F401
        except ImportError as error:
            message = f"backend=onnx_reference needs the package onnx (1.13 or newer) under this interpreter: {error}"
            raise StageError("setup", "NotInstalled", message) from error

    @classmethod
    def load(cls, path: str, settings: Dict[str, Any]) -> OnnxReference:
        """Load the model with its external data. Raises StageError (load).

        ``settings["inside"]``: {tensor: element type} at which the model is taken apart.
        """
        import onnx
        from onnx.reference import ReferenceEvaluator

        try:
            # by path, since the evaluator of some versions opens the file itself and then does not find external data
            model = _linked(path) or onnx.load(path)
            put_in_order(model.graph)
            take_apart(model, settings.get("inside") or {}, settings.get("wanted"))
            evaluator = ReferenceEvaluator(model)
        except Exception as error:
            raise StageError("load", type(error).__name__, str(error) or repr(error)) from error
        return cls(evaluator, model)

    def run(self, outputs: List[str], feeds: Dict[str, Value]) -> Iterator[Tuple[str, Any]]:
        """Run on ``feeds`` and yield (name, tensor), (name, (value, structure)) for what is none, or (name, why not).

        Raises StageError (infer).
        """
        given = {name: to_python(value, self._custom) for name, value in feeds.items()}
        for name in self.inputs.difference(given):
            if (self.structures.get(name) or ("",))[0] == "optional":
                given[name] = None
        try:
            with np.errstate(all="ignore"):
                results = self._evaluator.run(outputs, given)
        except Exception as error:
            raise StageError("infer", type(error).__name__, str(error) or repr(error)) from error
        return self._values(outputs, results)

    def _values(self, outputs: List[str], results: List[Any]) -> Iterator[Tuple[str, Any]]:
        results = list(results)
        for name in outputs:
            # let go of each as soon as it is written
            value = results.pop(0)
            try:
                yield name, self._value(name, value)
            except TypeError as error:
                yield name, str(error)

    def _value(self, name: str, value: Any) -> Any:
        """Return a tensor, or (value, structure). Raises TypeError for what ONNX has no type for."""
        plain = not isinstance(value, (list, dict)) and value is not None
        structure = self._structure(name, plain)
        if plain and (structure is None or structure[0] == "tensor"):
            return declared_as(from_array(value), structure[1] if structure else 0)
        if structure is None and isinstance(value, list):
            structure = of_value([from_array(item) for item in value])
        if structure is None:
            raise TypeError(f"no tensor but {type(value).__name__}, whose type is not known")
        made = from_python(value, structure)
        return made if structure[0] == "tensor" else (made, structure)

    def _structure(self, name: str, plain: bool) -> Structure | None:
        """Return what the model says of an output; if it says nothing, and it matters, what inference says."""
        if self._declared.get(name) is None and not self._inferred and (not plain or self._optionals):
            import onnx

            self._inferred = True
            try:
                self._declare(onnx.shape_inference.infer_shapes(self._model, check_type=False, strict_mode=False))
            except Exception:  # noqa: BLE001 - a broken model, or one beyond 2 GiB: the value alone must tell
                return None
        return self._declared.get(name)

    def _declare(self, model: Any) -> None:
        for value in [*model.graph.value_info, *model.graph.output]:
            if self._declared.get(value.name) is None:
                self._declared[value.name] = _structure_of(value.type)


def _structure_of(proto: Any) -> Structure | None:
    from runner.model.values.value_types import structure_of

    return structure_of(proto)


def _has_optionals(model: Any) -> bool:
    """Whether a value that looks like a tensor may be an optional."""
    declared = any(value.type.WhichOneof("value") == "optional_type" for value in model.graph.input)
    return declared or any(node.op_type == "Optional" for one in all_graphs(model) for node in one.node)


def _linked(path: str) -> Any:
    """Return a model whose external data are links, as in the cache of a model hub: the onnx package reads no links.

    None where there are none.
    """
    import onnx

    folder = os.path.dirname(os.path.abspath(path))
    model = onnx.load(path, load_external_data=False)
    stored = [tensor for graph in all_graphs(model) for tensor in getattr(graph, "initializer", ())]
    outside = [tensor for tensor in stored if tensor.data_location == tensor.EXTERNAL]
    places = [{entry.key: entry.value for entry in tensor.external_data} for tensor in outside]
    files = [os.path.join(folder, place.get("location", "")) for place in places]
    if not any(os.path.islink(name) for name in files):
        return None
    for tensor, place, name in zip(outside, places, files):  # noqa: B905 - equally long
        with open(name, "rb") as file:
            file.seek(int(place.get("offset", 0)))
            tensor.raw_data = file.read(int(place.get("length", -1)))
        tensor.ClearField("data_location")
        tensor.ClearField("external_data")
    return model


def _custom_types() -> bool:
    """Whether this onnx package has dtypes of its own for what numpy lacks (before it moved to ml_dtypes)."""
    try:
        import onnx.reference.custom_element_types
    except ImportError:
        return False
    return hasattr(onnx.reference.custom_element_types, "bfloat16")
