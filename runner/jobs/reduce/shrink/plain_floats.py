"""Simpler dtypes: what is float16, bfloat16 or float64 becomes float32."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

from runner.jobs.reduce.shrink.levels import Levels
from runner.jobs.reduce.shrink.shrunk_subject import Feeds, Whole
from runner.jobs.reduce.shrink.simpler_values import LARGEST, ArrayOf, tensors
from runner.model.graph import scopes
from runner.model.graph.cut import CutError
from runner.model.graph.protobuf_edits import copy_of
from runner.model.values import recorded, tensor_bytes

PLAIN = TensorProto.FLOAT
OTHERS = (TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
_NAMES_A_DTYPE = ("to", "dtype")
"""Attributes that hold an element type."""


@dataclass(frozen=True)
class PlainFloats:
    """Makes all other floats plain ones. ``dtypes``: those that occur; ``array``: of a weight."""

    whole: Whole
    array: ArrayOf
    folder: Path
    dtypes: tuple[int, ...]
    name: str = "dtypes"
    _fed: list[Feeds] = field(default_factory=list, compare=False)

    @staticmethod
    def of(whole: Whole, array: ArrayOf, folder: Path) -> PlainFloats:
        """Look for such tensors: none where there are nested graphs."""
        graph = whole.model.graph
        nested = whole.model.functions or any(True for node in graph.node for _ in scopes.subgraphs(node))
        found = {file.dtype for sample in whole.samples for file in sample.feeds.values() if not file.structure}
        found |= {tensor.data_type for tensor in tensors(whole.model)}
        found |= {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
        return PlainFloats(whole, array, folder, () if nested else tuple(one for one in OTHERS if one in found))

    @property
    def levels(self) -> Levels:
        """One part, all of them: operators want their inputs to be of one type."""
        return Levels((1,) if self.dtypes else (), self.name)

    def apply(self, levels: tuple[int, ...]) -> tuple[ModelProto, Feeds]:
        """Return the model in these types, and what it is fed. Raises CutError for large weights."""
        model = copy_of(self.whole.model)
        if levels[0]:
            return model, tuple(sample.feeds for sample in self.whole.samples)
        left = LARGEST
        for tensor in tensors(model):
            if tensor.data_type in self.dtypes:
                left -= 4 * tensor_bytes.elements(tensor.dims)
                if left < 0:
                    raise CutError(f"the weights would take more than {LARGEST >> 20} MiB")
                made = numpy_helper.from_array(np.asarray(self.array(tensor)).astype(np.float32))
                tensor.data_type = PLAIN
                tensor_bytes.set_raw(tensor, tensor_bytes.raw_bytes(made))
        del model.graph.value_info[:]
        for value in (*model.graph.input, *model.graph.output):
            if value.type.tensor_type.elem_type in self.dtypes:
                value.type.tensor_type.elem_type = PLAIN
        for node in model.graph.node:
            for attribute in node.attribute:
                if attribute.name in _NAMES_A_DTYPE and attribute.i in self.dtypes:
                    attribute.i = PLAIN
        if not self._fed:
            self._fed.append(tuple(self._feeds(number) for number in range(len(self.whole.samples))))
        return model, self._fed[0]

    def _feeds(self, number: int) -> dict[str, recorded.TensorFile]:
        self.folder.mkdir(parents=True, exist_ok=True)
        fed = dict(self.whole.samples[number].feeds)
        for place, (name, file) in enumerate(fed.items()):
            if file.dtype in self.dtypes and not file.structure:
                plain = recorded.read(file).astype(np.float32)
                fed[name] = recorded.write(plain, name, self.folder / f"{number}_{place}.pb")
        return fed
