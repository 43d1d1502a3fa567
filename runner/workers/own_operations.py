"""Winnow's own operations on a model (reading, sanitizing, casting it): their end in a crash is no verdict on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runner.errors import UsageError, WinnowError
from runner.schema.root import Settings
from runner.workers.leases.lease import Kind
from runner.workers.pool import Pool
from runner.workers.reply import OUT_OF_MEMORY, Reply, shortage


def operate(
    pool: Pool,
    settings: Settings,
    op: str,
    args: Mapping[str, Any],
    what: str,
    *,
    python: str | None = None,
    lease: Kind | None = None,
) -> Reply:
    """Call an operation within the limits of ``workers``; return its reply, which has a value or a failure.

    A process that dies is no news about the model: somebody may have killed it. So it is tried once more, in a fresh
    one. ``what``: the key and what is done, for messages. Raises UsageError where a limit of the user's was reached,
    WinnowError (exit 1) for any other death.
    """
    limits = settings.workers
    for fresh in (False, True):
        reply = pool.call(
            op, args, python=python, timeout=limits.timeout, memory_mb=limits.memory_mb, fresh=fresh, lease=lease
        )
        if reply.death is None:
            return reply
        if reply.death in ("timeout", "memory", OUT_OF_MEMORY):
            break
    if reply.death == OUT_OF_MEMORY:
        raise WinnowError(f"{what}: {shortage('workers.memory_mb')}")
    if reply.death in ("timeout", "memory"):
        raise UsageError(
            f"{what} reached a limit ({reply.death}): workers.timeout={limits.timeout:g} "
            f"workers.memory_mb={limits.memory_mb or 'null'}. Raise it"
        )
    told = f"; what it printed lies in {reply.log}" if reply.log else ""
    raise WinnowError(
        f"{what} ended with {reply.death}, and so it did in a second process{told}. If somebody kills processes here, "
        "start the run again"
    )
