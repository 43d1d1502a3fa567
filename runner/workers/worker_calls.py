"""One call to one worker, from getting it ready to the reply, and the log of what went wrong."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.workers.reply import KILLED, OUT_OF_MEMORY, UNREADY, Failure, Reply
from runner.workers.worker import Worker

# a worker that has grown beyond this is not kept for the next call
_KEPT_MB = 2048.0


class Calls:
    """Makes calls to workers. Thread-safe; ``folder`` takes logs. ``peak_mb``: the most resident MiB of one call."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._logs = 0
        self.peak_mb = 0.0

    def make(
        self,
        worker: Worker,
        op: str,
        args: Mapping[str, Any],
        timeout: float | None,
        memory_mb: int | None,
        *,
        keep_log: bool,
    ) -> tuple[Reply, bool]:
        """Return the reply, and whether the worker may serve again; the parameters are those of `Pool.call`."""
        worker.log.reset()
        given = dict(args)
        unready = worker.prepare(op, given, memory_mb)
        exchange = unready or worker.ask(op, given, timeout, memory_mb)
        worker.served += 1
        answer, death = exchange.answer or {}, exchange.death
        error = answer.get("error")
        failure = Failure(error["stage"], error["type"], error["message"]) if error else None
        log = self._keep_log(worker) if keep_log or failure or death else None
        if unready and death and death not in (KILLED, "memory", OUT_OF_MEMORY):
            told = f"; what it printed lies in {log}" if log else ""
            failure, death = Failure("setup", UNREADY, f"importing what runs it ended with {death}{told}"), None
        with self._lock:
            self.peak_mb = max(self.peak_mb, exchange.peak_mb)
        reply = Reply(answer.get("value"), failure, death, exchange.seconds, exchange.peak_mb, log)
        again = exchange.answer is not None and answer.get("rss_mb", 0.0) < _KEPT_MB
        return reply, again and not (worker.kind == "gpu" and reply.erred)

    def _keep_log(self, worker: Worker) -> Path | None:
        text = worker.log.text()
        if not text:
            return None
        with self._lock:
            self._logs += 1
            number = self._logs
        path = self._folder / f"call-{number:05d}.log"
        path.write_bytes(text)
        return path
