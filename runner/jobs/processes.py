"""The processes of a run, opened before the rest of a job is imported: the first worker starts meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.schema.root import Settings
from runner.workers.gpu_leases import Leases
from runner.workers.guardian import Guardian
from runner.workers.pool import Pool, lease_of


@dataclass(frozen=True)
class Processes:
    """What starts processes: ``pool``: workers; ``guardian``: ends all that is left."""

    guardian: Guardian
    pool: Pool


# a strategy is called with its settings and its folder alone, and opens its job itself
_RUNNING: ContextVar[Processes | None] = ContextVar("processes", default=None)


@contextmanager
def processes(settings: Settings, folder: Path) -> Iterator[Processes]:
    """Yield the processes of the run that goes on; there, and only there, they are the same for all who ask."""
    running = _RUNNING.get()
    if running is not None:
        yield running
        return
    place = folder / "workers"
    try:
        with Guardian() as guardian, Pool(place, guardian, Leases.of(settings.workers, folder)) as pool:
            opened = Processes(guardian, pool)
            before = _RUNNING.set(opened)
            try:
                yield opened
            finally:
                _RUNNING.reset(before)
    finally:
        with suppress(OSError):  # logs of calls stay
            place.rmdir()


@contextmanager
def started(settings: Settings, folder: Path) -> Iterator[None]:
    """Open the processes of a run; where its model will be read, a worker starts, which the first call then finds."""
    with processes(settings, folder) as opened:
        if settings.strategy.needs_model and settings.model and Path(settings.model).expanduser().is_file():
            opened.pool.start_ahead(*_first_calls(settings, opened.pool))
        yield


def _first_calls(settings: Settings, pool: Pool) -> Iterator[Mapping[str, Any]]:
    """Yield what a run asks the first worker, as far as it decides what that imports."""
    yield {"op": "ingest", "args": {}}
    reference = settings.reference
    recorded = settings.strategy.cuts_model and settings.cut.records and reference.holds_inner_values
    backend = reference.to_json()
    if recorded and not reference.python and not lease_of(backend, pool, None):
        yield {"op": "run", "args": {"backend": backend}}
