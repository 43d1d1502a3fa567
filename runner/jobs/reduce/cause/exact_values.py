"""Exact values: what a model gives where all that it computes is computed in the next wider type."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TypeProto, helper

from runner.candidate import Sample
from runner.checkers.backend_run import Side
from runner.errors import WinnowError
from runner.jobs.job import Job
from runner.loading.models import recording_backend
from runner.model.files.candidate_store import Store
from runner.model.graph.edits import edited
from runner.model.graph.graph_index import Graph
from runner.model.graph.wider_types import WiderTypes
from runner.model.values.recorded import TensorFile, read
from runner.schema.backend import OnnxReferenceBackend, OnnxRuntimeBackend, Optimization
from runner.text import one_line

Array = np.ndarray[Any, Any]
PATIENCE = 30.0
"""Seconds that one runtime gets for the exact values of a model."""
_LONGEST = 160


class NotKnown(Exception):  # noqa: N818 - it is an answer
    """Why no exact values are known."""


@dataclass(frozen=True)
class Exact:
    """Runs models in a wider type: on ONNX Runtime, and what it has no kernels for on onnx's reference evaluator.

    ``target``, ``reference``: run a model as it is.
    """

    sides: tuple[Side, ...]
    target: Side
    reference: Side
    store: Store
    folder: Path

    @classmethod
    def of(cls, job: Job, store: Store) -> Exact:
        """Return what runs the models of a job."""
        settings, memory = job.settings, job.settings.workers.memory_mb
        own = recording_backend(settings)
        held = own.python if isinstance(own, OnnxRuntimeBackend | OnnxReferenceBackend) else None
        wide = OnnxRuntimeBackend(optimization=Optimization.none, python=held), OnnxReferenceBackend(python=held)
        limits = job.tools, PATIENCE, memory
        sides = tuple(Side("reference", one, *limits) for one in wide)
        runs = (Side("target", settings.target, *limits), Side("reference", replace(own, model=None), *limits))
        return cls(sides, *runs, store, job.folder / "values" / "exact")

    def values(
        self,
        model: ModelProto,
        types: Mapping[str, TypeProto],
        samples: Sequence[Sample],
        wider: tuple[frozenset[int], int],
        *,
        outputs: bool = False,
    ) -> Sequence[Mapping[str, Array]]:
        """Return the exact values of all that is computed, for each sample; ``outputs``: of the outputs alone.

        ``wider``: the types that are too narrow, and the one in their place. Raises NotKnown.
        """
        graph = Graph.of(model)
        if stays := [node for node in graph.nodes if node.nests or node.name in graph.drawing]:
            raise NotKnown(f"{stays[0].op_type} {stays[0].name} is not computed in a wider type")
        widened = WiderTypes(graph, {**types, **graph.value_types}, *wider)
        made = edited(model, [*widened.edits(range(len(graph.nodes)))])
        raised = {name: new for name, new in widened.raised.items() if not outputs or name in graph.output_set}
        if not raised:
            raise NotKnown("nothing of it computes in a type that has a wider one")
        del made.graph.output[:]
        fed = {name for one in samples for name in one.feeds}  # a Cast rounds what it is fed
        wanted = [name for name in dict.fromkeys(raised.values()) if name not in fed]
        made.graph.output.extend(helper.make_tensor_value_info(name, widened.wide, None) for name in wanted)
        ran = self._first(made, samples) if wanted else [{} for _ in samples]
        return tuple(
            {name: held[new] if new in held else read(one.feeds[new]) for name, new in raised.items()}
            for one, held in zip(samples, ran, strict=True)
        )

    def _first(self, model: ModelProto, samples: Sequence[Sample]) -> Sequence[Mapping[str, Array]]:
        why = ""
        for side in self.sides:
            try:
                return self.plain(model, samples, side)
            except NotKnown as error:  # noqa: PERF203 - there are two
                why = why or str(error)
        raise NotKnown(f"no runtime at hand has kernels for it ({why})")

    def plain(self, model: ModelProto, samples: Sequence[Sample], side: Side) -> Sequence[Mapping[str, Array]]:
        """Return the outputs of a model as it is. Raises NotKnown."""
        try:
            path = self.store.write(model, self._free())
            ran = side.run(path, [one.feeds for one in samples], self._free())
        except WinnowError as error:
            raise NotKnown(str(error)) from error
        if not ran.outputs:
            raise NotKnown(one_line(ran.message or ran.invalid)[:_LONGEST])
        return arrays(ran.outputs)

    def clear(self) -> None:
        """Remove the files of all these runs."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _free(self) -> Path:
        place = next(place for at in count() if not (place := self.folder / str(at)).exists())
        place.mkdir(parents=True)
        return place


def arrays(given: Iterable[Mapping[str, TensorFile]]) -> Sequence[Mapping[str, Array]]:
    """Return the tensors among values."""
    return [{name: read(one) for name, one in held.items() if one.structure is None} for held in given]
