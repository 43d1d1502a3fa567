"""The processes of a run: the same for all that it does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from runner.schema.root import Settings
from runner.workers.gpu_leases import Leases
from runner.workers.guardian import Guardian
from runner.workers.pool import Pool


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
