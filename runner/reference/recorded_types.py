"""The types of recorded values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx import TypeProto

from runner.model.values.recorded import TensorFile
from runner.model.values.value_types import Shape, common_shape, tensor_type, type_of


def recorded_types(values: Sequence[Mapping[str, TensorFile]]) -> dict[str, TypeProto]:
    """Return the type of each recorded value; a dimension that differs between samples is left open.

    Of a value that is a tensor in one sample and none in another no type is known.
    """
    found: dict[str, TypeProto] = {}
    shared: dict[tuple[int, tuple[Shape, ...]], TypeProto] = {}  # a long graph has few kinds of them
    for name, first in values[0].items() if values else ():
        every = [sample[name] for sample in values if name in sample]
        if any(one.structure != first.structure for one in every):
            continue
        if first.structure is None:
            kind = first.dtype, tuple(one.shape for one in every)
            if kind not in shared:
                shared[kind] = tensor_type(first.dtype, common_shape(kind[1]))
            found[name] = shared[kind]
        else:
            found[name] = type_of(first.structure, [shape for one in every for shape in one.elements])
    return found
