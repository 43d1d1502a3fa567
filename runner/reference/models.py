"""The models of a run, read once each, and what runs them to see what their tensors hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.backends.run_model import SEED
from runner.disk_space import RecordingLimits, Room, recording_limits
from runner.exit_codes import NoRoomForWeights, UsageError, WinnowError
from runner.model.files.candidate_store import Store
from runner.model.graph.graph_index import Graph
from runner.model.values.recorded import TensorFile
from runner.reference.recording import Recorder
from runner.schema.backend import BackendSettings, OnnxRuntimeBackend, Optimization, map_of
from runner.schema.checker import Flaky
from runner.schema.root import Settings
from runner.schema.strategy import ExtractSettings
from runner.workers.pool import Pool, lease_of, operate


def ingest(key: str, path: Path, store: Store, settings: Settings, pool: Pool) -> dict[str, Any]:
    """Read the model that ``key`` names into a store; return what was found out.

    Raises UsageError for a wrong file, NoRoom where its weights cannot be copied or the disk is full, and as `operate`
    does.
    """
    if not path.is_file():
        raise UsageError(f"{key}={path}: no such file")
    # what is handed over to be used, not to show a failure, draws as it did
    cuts = settings.strategy.cuts_model and not isinstance(settings.strategy, ExtractSettings)
    seed = SEED if cuts and settings.checker.flaky is not Flaky.always else None
    args = {"model": str(path), "store": str(store.folder), "seed": seed}
    room = Room(store.folder.parent)
    try:
        reply = operate(pool, settings, "ingest", args, f"{key}={path}: reading it")
    except WinnowError:
        room.confirm()  # a process that cannot write its answer ends without one
        raise
    if reply.value is not None:
        return reply.value
    if reply.failure and reply.failure.type == NoRoomForWeights.__name__:
        raise room.none(reply.failure.message)
    room.confirm()
    raise UsageError(f"{key}={path}: {reply.why}")


def recorder(
    settings: Settings,
    backend: BackendSettings,
    graph: Graph,
    store: Store,
    pool: Pool,
    folder: Path,
    limits: RecordingLimits | None = None,
) -> Recorder:
    """Return what runs a graph on a backend; the values go into ``folder``, without ``limits`` all of them."""
    own = limits or RecordingLimits(recording_limits(settings.cut, store.folder).memory)
    return Recorder(
        graph,
        store,
        pool,
        backend.to_json(),
        graph.value_types,
        folder,
        backend.python,
        settings.inputs.timeout,
        settings.workers.memory_mb,
        own.memory,
        own.disk,
        own.lazy,
    )


def recording_backend(settings: Settings) -> BackendSettings:
    """Return what records values: the reference, unless that is an engine, which holds no values of inner tensors."""
    reference = settings.reference.running
    if reference.holds_inner_values:
        return reference
    return OnnxRuntimeBackend(optimization=Optimization.none, model=reference.model)


def outputs_of(
    settings: Settings, pool: Pool, path: Path, feeds: Sequence[Mapping[str, TensorFile]], folder: Path
) -> list[Mapping[str, TensorFile]]:
    """Return what the reference makes of a model, for each sample; the values are written into ``folder``.

    Raises UsageError where it cannot run it.
    """
    backend = recording_backend(settings)
    args: dict[str, Any] = {
        "backend": backend.to_json(),
        "model": str(path),
        "samples": [{name: str(feed.path) for name, feed in one.items()} for one in feeds],
        "out": str(folder),
    }
    lease = lease_of(args["backend"], pool, backend.python)
    reply = operate(pool, settings, "run", args, "the reference's run of it", python=backend.python, lease=lease)
    if reply.value is None:
        raise UsageError(f"the reference cannot run it: {reply.why}")
    return [{name: TensorFile.from_json(one) for name, one in sample.items()} for sample in reply.value["samples"]]


def check_map(settings: Settings) -> None:
    """Raise UsageError for a map of tensors to a parent that is not there."""
    if map_of(settings.reference) and not settings.reference.model:
        raise UsageError(
            f"reference.map={map_of(settings.reference)} maps tensors of the model to those of its parent, and no "
            "parent is given: add reference.model=PATH, or leave reference.map out"
        )


def needs_values(settings: Settings) -> UsageError:
    """Return the error for a reference model whose values are not recorded."""
    return UsageError(
        f"reference.model={settings.reference.model}: it says what the model's tensors should hold, so its values are "
        "recorded: set cut.record=auto, and inputs=files if the model's inputs cannot be made up"
    )
