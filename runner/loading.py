"""From a model file to everything that cutting it needs: weights stored once, graph, inputs, recorded values, types."""

from __future__ import annotations

import dataclasses
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from runner.errors import NotApplicable, UsageError
from runner.inputs.declared import declared
from runner.inputs.source import samples as input_samples
from runner.model.graph import Graph
from runner.model.shapes import read_types
from runner.model.store import Store
from runner.model.values import TensorFile
from runner.model.weights import WEIGHTS
from runner.schema.backend import BackendSettings
from runner.schema.inputs import RandomInputs, Recording, ShapeInference
from runner.schema.root import Settings
from runner.subjects.golden import cast, overlay
from runner.subjects.recording import Recorded, Recorder
from runner.workers.pool import Pool

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Loaded:
    """A model that is ready to be cut. ``sha256``: of the file and its external data. ``path``: the user's own file."""

    path: Path
    sha256: str
    graph: Graph
    store: Store
    recorded: Recorded
    types: Mapping[str, onnx.TypeProto]
    warnings: tuple[str, ...]


def load(settings: Settings, pool: Pool, folder: Path, *, record: bool = True) -> Loaded:
    """Read the model of ``settings`` and record its values on the reference.

    Raises UsageError for files that are wrong.
    """
    if settings.model is None:
        raise UsageError("model=null: which model? Give its path: python -m runner model=path/to/model.onnx")
    path = Path(settings.model).expanduser().absolute()
    for stale in ("store", "values", "inputs"):  # what an interrupted run left half-made
        shutil.rmtree(folder / stale, ignore_errors=True)
    store = Store(folder / "store")
    facts = _ingest("model", path, store, settings, pool)
    warnings = list(facts["warnings"])
    graph = Graph.load(store.structure)
    values, unusable = _samples(settings, graph, pool, folder)
    warnings += unusable
    recorded = Recorded(values)
    if record and settings.inputs.record is Recording.ahead and values:
        recorded = _recorder(settings, settings.reference, graph, store, pool, folder / "values").record(values)
        if settings.reference.model:
            recorded = golden(settings, graph, recorded, values, pool, folder / "values" / "golden")
    warnings += _doubts(settings, graph, recorded)
    types = _inferred(settings, graph, store, recorded, pool, warnings) if record else {}
    for warning in warnings:
        log.warning("%s", warning)
    return Loaded(path, facts["sha256"], graph, store, recorded, types, tuple(warnings))


def golden(
    settings: Settings,
    graph: Graph,
    recorded: Recorded,
    samples: Sequence[Mapping[str, TensorFile]],
    pool: Pool,
    folder: Path,
) -> Recorded:
    """Return ``recorded`` with the values that ``reference.model`` has for tensors of the same name."""
    path = Path(settings.reference.model or "").expanduser().absolute()
    store = Store(folder / "store")
    _ingest("reference.model", path, store, settings, pool)
    other = Graph.load(store.structure)
    if missing := [name for name in other.inputs if name not in graph.inputs]:
        raise UsageError(
            f"reference.model={path}: its input {', '.join(map(repr, missing))} is none of the model's, which are "
            f"{', '.join(graph.inputs) or 'none'}"
        )
    wanted = {name: one.dtype for name, one in declared(other).items()}
    feeds = [cast(sample, wanted, folder / f"feeds{number}") for number, sample in enumerate(samples)]
    theirs = _recorder(settings, settings.reference, other, store, pool, folder / "values").record(feeds)
    both = overlay(recorded.values, theirs.values, folder / "cast")
    common = [name for name in graph.outputs if name in other.producers]
    log.info("reference.model: %d of the model's %d outputs are in it", len(common), len(graph.outputs))
    if not common:
        raise UsageError(
            f"reference.model={path}: none of the model's outputs ({', '.join(graph.outputs)}) is a tensor in it; "
            "tensors are matched by name"
        )
    return dataclasses.replace(
        recorded,
        values=both,
        unrunnable=theirs.unrunnable,
        reason=theirs.reason,
        seconds=recorded.seconds + theirs.seconds,
    )


def record_target(settings: Settings, pool: Pool, loaded: Loaded, folder: Path) -> tuple[Mapping[str, TensorFile], ...]:
    """Return what every tensor holds when the target runs the whole model with all of them as outputs."""
    inputs = [
        {name: sample[name] for name in loaded.graph.inputs if name in sample} for sample in loaded.recorded.values
    ]
    shutil.rmtree(folder / "target", ignore_errors=True)
    recorder = _recorder(settings, settings.target, loaded.graph, loaded.store, pool, folder / "target")
    return recorder.record(inputs).values


def _recorder(
    settings: Settings, backend: BackendSettings, graph: Graph, store: Store, pool: Pool, folder: Path
) -> Recorder:
    return Recorder(
        graph,
        store,
        pool,
        backend.to_json(),
        graph.value_types,
        folder,
        backend.python,
        settings.inputs.record_timeout,
        settings.workers.memory_mb,
    )


def _ingest(key: str, path: Path, store: Store, settings: Settings, pool: Pool) -> dict[str, Any]:
    if not path.is_file():
        raise UsageError(f"{key}={path}: no such file")
    reply = pool.call(
        "ingest",
        {"model": str(path), "store": str(store.folder)},
        timeout=settings.workers.timeout,
        memory_mb=settings.workers.memory_mb,
    )
    if reply.value is not None:
        return reply.value
    why = reply.failure.message if reply.failure else f"reading it ended with {reply.death}"
    raise UsageError(f"{key}={path}: {why}")


def _samples(
    settings: Settings, graph: Graph, pool: Pool, folder: Path
) -> tuple[tuple[Mapping[str, TensorFile], ...], list[str]]:
    try:
        return input_samples(settings.inputs, graph, pool, folder / "inputs"), []
    except NotApplicable as error:
        return (), [f"no values for the model's inputs, so none are recorded: {error}"]


def _doubts(settings: Settings, graph: Graph, recorded: Recorded) -> list[str]:
    """What a user should know before trusting a reduction of this model."""
    found = []
    if recorded.unrunnable:
        more = f" and {len(recorded.unrunnable) - 1} more" if len(recorded.unrunnable) > 1 else ""
        found.append(
            f"the reference cannot run {recorded.unrunnable[0]}{more} ({recorded.reason}): "
            "what depends on it is not recorded"
        )
    if recorded.out_of_time:
        found.append(
            f"recording took more than inputs.record_timeout={settings.inputs.record_timeout:g} s: "
            "what was not reached gets inferred shapes and seeded values"
        )
    open_inputs = [
        name
        for name in graph.inputs
        if name in graph.value_types
        and any(not dim.dim_value for dim in graph.value_types[name].tensor_type.shape.dim)
        and name not in settings.inputs.shapes
    ]
    if open_inputs and isinstance(settings.inputs, RandomInputs):
        found.append(
            f"dynamic input shapes ({', '.join(open_inputs)}) were chosen by us; "
            "give the ones that fail: inputs.shapes='{name: [1, 3, 224, 224]}'"
        )
    if isinstance(settings.inputs, RandomInputs):
        found.append("the inputs are random; a failure that needs real data wants inputs=files inputs.path=...")
    return found


def _inferred(
    settings: Settings, graph: Graph, store: Store, recorded: Recorded, pool: Pool, warnings: list[str]
) -> dict[str, onnx.TypeProto]:
    """Return what shape inference knows, if recording left anything open."""
    mode = settings.inputs.shape_inference
    known = set(recorded.values[0]) if recorded.values else set()
    tensors = {name for node in graph.nodes for name in node.outputs}
    if mode is ShapeInference.off or not tensors - known:
        return {}
    out = store.folder / "inferred.onnx"
    reply = pool.call(
        "infer_shapes",
        {"model": str(store.structure), "mode": mode.value, "shapes": dict(settings.inputs.shapes), "out": str(out)},
        timeout=settings.workers.timeout,
        memory_mb=settings.workers.memory_mb,
    )
    if reply.value is None:
        why = reply.failure.message if reply.failure else reply.death
        warnings.append(f"inputs.shape_inference={mode.value} failed: {why}")
        return {}
    if reply.value["warning"]:
        warnings.append(reply.value["warning"])
    return read_types(out)


def clean_up(folder: Path) -> None:
    """Remove what only the run itself needed; large candidates that were kept stay beside their weights."""
    for name in ("inputs", "values", "target"):
        shutil.rmtree(folder / name, ignore_errors=True)
    store = folder / "store"
    kept = [path for path in store.glob("kept.*") if path.is_file()]
    for path in store.iterdir() if store.is_dir() else ():
        if not kept or (path not in kept and path.name != WEIGHTS):
            path.unlink(missing_ok=True)
    for empty in (store, folder / "workers", *(folder / "checks").glob("*")):
        if empty.is_dir() and not any(empty.iterdir()):
            empty.rmdir()
