"""The pool: warm workers for each interpreter, lent to one call at a time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from runner.workers.guardian import Guardian
from runner.workers.reply import Failure, Reply
from runner.workers.worker import Exchange, Worker, find_python

# imports of a runtime on a cold disk take their time, which is not the call's
_PREPARE_SECONDS = 300.0
# a worker that has grown beyond this is not kept for the next call
_KEPT_MB = 2048.0


class Pool:
    """Runs operations in worker processes. Thread-safe; a context manager; ``folder`` takes logs of calls that failed.

    A worker that served before is a suspect: if it dies, runs out of time or memory, the call is made again in a fresh
    one, and only that answer counts.
    """

    def __init__(self, folder: Path, guardian: Guardian | None = None) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._own_guardian = guardian is None
        self._guardian = guardian or Guardian()
        self._lock = threading.Lock()
        self._idle: dict[str, list[Worker]] = {}
        self._busy: set[Worker] = set()
        self._versions: dict[str, dict[str, str]] = {}
        self._calls = 0
        self._peak_mb = 0.0
        self._closed = False

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def peak_rss_mb(self) -> float:
        """The most resident MiB that one call used so far."""
        return self._peak_mb

    def call(
        self,
        op: str,
        args: Mapping[str, Any],
        *,
        python: str | None = None,
        timeout: float | None = None,
        memory_mb: int | None = None,
        fresh: bool = False,
        keep_log: bool = False,
        confirm: bool = True,
    ) -> Reply:
        """Run the operation ``op`` (a name in ``child.OPERATIONS``) with JSON-able ``args`` and wait for its end.

        ``python``: the interpreter (a path, a program on PATH, a virtual environment's folder); None is this one.
        ``timeout``: seconds, not counting the interpreter's start and its imports. ``memory_mb``: resident MiB of the
        worker and its children. ``fresh``: use a new process. ``keep_log``: keep what was printed even if the call went
        well. ``confirm=False``: the first answer counts, even that of a worker that served before. Raises
        WorkerStartError if the interpreter cannot be started, and never for what the operation does.
        """
        interpreter = find_python(python)
        worker = self._take(interpreter, fresh)
        warm = worker.served > 0
        reply = self._serve(worker, op, dict(args), timeout, memory_mb, keep_log)
        if warm and confirm and reply.death is not None:
            worker = self._take(interpreter, fresh=True)
            reply = self._serve(worker, op, dict(args), timeout, memory_mb, keep_log)
        return reply

    def versions(self, python: str | None = None) -> dict[str, str]:
        """Return what is installed under an interpreter, with its own version as "python". Raises WorkerStartError."""
        interpreter = find_python(python)
        with self._lock:
            known = self._versions.get(interpreter)
        if known is None:
            reply = self.call("versions", {}, python=python, timeout=_PREPARE_SECONDS)
            known = {} if reply.value is None else {str(name): str(text) for name, text in reply.value.items()}
            with self._lock:
                self._versions[interpreter] = known
        return dict(known)

    def close(self) -> None:
        """End all workers, also those that are at work."""
        with self._lock:
            self._closed = True
            idle = [worker for workers in self._idle.values() for worker in workers]
            self._idle.clear()
            busy = list(self._busy)
        for worker in busy:
            # the thread that waits for it sees the death and reaps it
            worker.interrupt()
        for worker in idle:
            worker.close()
            worker.discard()
        if self._own_guardian:
            self._guardian.close()

    def _take(self, python: str, fresh: bool) -> Worker:
        while True:
            with self._lock:
                if self._closed:
                    raise RuntimeError("the pool is closed")
                idle = self._idle.get(python)
                worker = idle.pop() if idle and not fresh else None
            if worker is None:
                worker = Worker(python, self._folder, self._guardian)
            elif not worker.alive:
                worker.discard()
                continue
            with self._lock:
                if not self._closed:
                    self._busy.add(worker)
                    return worker
            # closed while the worker started
            worker.discard()

    def _give_back(self, worker: Worker, keep: bool) -> None:
        with self._lock:
            self._busy.discard(worker)
            idle = self._idle.setdefault(worker.python, [])
            # fresh workers that nobody asked to be warm must not pile up
            keep = keep and not self._closed and len(idle) <= len(self._busy)
            if keep:
                idle.append(worker)
        if not keep:
            if worker.alive:
                worker.close()
            worker.discard()

    def _serve(
        self,
        worker: Worker,
        op: str,
        args: dict[str, Any],
        timeout: float | None,
        memory_mb: int | None,
        keep_log: bool,
    ) -> Reply:
        keep = False
        try:
            worker.log.reset()
            exchange = self._prepare(worker, op, args, memory_mb)
            if exchange is None:
                exchange = worker.ask(op, args, timeout, memory_mb)
            worker.served += 1
            answer = exchange.answer or {}
            error = answer.get("error")
            failure = Failure(error["stage"], error["type"], error["message"]) if error else None
            log = self._keep_log(worker) if keep_log or failure or exchange.death else None
            keep = exchange.answer is not None and answer.get("rss_mb", 0.0) < _KEPT_MB
            with self._lock:
                self._peak_mb = max(self._peak_mb, exchange.peak_mb)
            return Reply(answer.get("value"), failure, exchange.death, exchange.seconds, exchange.peak_mb, log)
        finally:
            self._give_back(worker, keep)

    def _prepare(self, worker: Worker, op: str, args: dict[str, Any], memory_mb: int | None) -> Exchange | None:
        """Have the worker import what the operation needs, once; return an exchange only if that failed."""
        need = f"{op} {(args.get('backend') or {}).get('name', '')}"
        if need in worker.prepared:
            return None
        exchange = worker.ask("prepare", {"op": op, "args": args}, _PREPARE_SECONDS, memory_mb)
        if exchange.answer is None or "error" in exchange.answer:
            return exchange
        worker.prepared.add(need)
        return None

    def _keep_log(self, worker: Worker) -> Path | None:
        text = worker.log.text()
        if not text:
            return None
        with self._lock:
            self._calls += 1
            number = self._calls
        path = self._folder / f"call-{number:05d}.log"
        path.write_bytes(text)
        return path
