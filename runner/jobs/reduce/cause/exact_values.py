"""Exact values: what a model gives where all that it computes is computed in the next wider type."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TypeProto, helper

from runner.candidate import Sample
from runner.checkers.backend_run import BackendRun, Side
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
    ) -> tuple[Mapping[str, Array], ...]:
        """Return the exact values of all that is computed, for each sample; ``outputs``: of the outputs alone.

        ``wider``: the types that are too narrow, and the one in their place. Raises NotKnown.
        """
        graph = Graph.of(model)
        widened = WiderTypes(graph, {**types, **graph.value_types}, *wider)
        made = edited(model, [*widened.edits(range(len(graph.nodes)))])
        stays = [node for node in graph.nodes if node.nests or node.name in graph.drawing]
        if stays:
            raise NotKnown(f"{stays[0].op_type} {stays[0].name} is not computed in a wider type")
        raised = {name: new for name, new in widened.raised.items() if not outputs or name in graph.output_set}
        del made.graph.output[:]
        fed = {name for one in samples for name in one.feeds}
        for name in dict.fromkeys(raised.values()):
            if name not in fed:
                made.graph.output.append(helper.make_tensor_value_info(name, widened.wide, None))
        if not raised:
            raise NotKnown("nothing of it computes in a type that has a wider one")

        def named(outputs: Sequence[Mapping[str, TensorFile]]) -> tuple[Mapping[str, Array], ...]:
            found = ({**one.feeds, **held} for one, held in zip(samples, outputs, strict=True))
            return tuple({name: read(held[new]) for name, new in raised.items()} for held in found)

        if not made.graph.output:  # it only rounds what it is fed
            return named([{} for _ in samples])
        path, why = self._write(made), ""
        for side in self.sides:
            ran = self.run(side, path, samples)
            if ran.outputs:
                return named(ran.outputs)
            why = why or ran.message or ran.invalid
        raise NotKnown(f"no runtime at hand has kernels for it ({one_line(why)[:_LONGEST]})")

    def plain(self, model: ModelProto | Path, samples: Sequence[Sample], side: Side) -> tuple[Mapping[str, Array], ...]:
        """Return the outputs of a model as it is. Raises NotKnown."""
        ran = self.run(side, model if isinstance(model, Path) else self._write(model), samples)
        if not ran.outputs:
            raise NotKnown(one_line(ran.message or ran.invalid)[:_LONGEST])
        return tuple({name: read(one) for name, one in held.items() if one.structure is None} for held in ran.outputs)

    def run(self, side: Side, path: Path, samples: Sequence[Sample]) -> BackendRun:
        """Run a model. Whatever keeps it from running is said by what is returned."""
        fed: list[Mapping[str, TensorFile]] = [one.feeds for one in samples]
        try:
            return side.run(path, fed or [{}], self._free())
        except WinnowError as error:
            return BackendRun(invalid=str(error))

    def clear(self) -> None:
        """Remove the files of all these runs."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write(self, model: ModelProto) -> Path:
        return self.store.write(model, self._free())

    def _free(self) -> Path:
        place = next(place for at in count() if not (place := self.folder / str(at)).exists())
        place.mkdir(parents=True)
        return place


def worst(arrays: Iterator[Array]) -> float:
    """Return the largest magnitude of some values; 0 where there are none."""
    return max((float(np.abs(one.astype(np.float64)).max()) for one in arrays if one.size), default=0.0)
