"""The pool of workers, the lease that a call needs, and operations of Winnow's own."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.exit_codes import UsageError, WinnowError
from runner.schema.root import LeaseMode, Settings
from runner.workers.gpu_leases import Kind, Lease, Leases, Stopped, Wait
from runner.workers.gpus import PROVIDERS_ON_A_GPU
from runner.workers.guardian import Guardian
from runner.workers.process_tree import Kills, now
from runner.workers.reply import KILLED, OUT_OF_MEMORY, Reply, WorkerKilledError, shortage
from runner.workers.worker import PREPARE_SECONDS, Worker, find_python

# an idle worker gives its lease up after so long, if some other job waits for one
_LENT_SECONDS = 2.0

_Key = tuple[str, "Kind | None"]


class Pool(AbstractContextManager["Pool"]):
    """Runs operations in worker processes. Thread-safe; a context manager; ``folder`` takes logs of calls that failed.

    A worker that served before may be damaged: if it dies, runs out of time or memory, the call is made again in a
    fresh one, and only that answer counts. The same holds for an error under a GPU lease, after which no worker is used
    again: an error of CUDA stays in the process, and every later call would fail with it. After a SIGKILL any call is
    made once more, since the kernel's choice of a process to kill may have had another cause.

    ``leases``: hands out GPUs and CPU slots; None: calls that ask for a lease get none. A worker that has one keeps it
    to its end. Who waits for a lease keeps none: idle workers of this pool are ended for it, so that neither two
    interpreters on one GPU nor two jobs that need both a GPU and a CPU slot can block each other.

    ``deadline``: when waits for a lease end at the latest, on the clock of `process_tree.now`. What is
    free at once is taken after that, too: an answer may still be checked again. ``peak_rss_mb``: the most resident MiB
    that one call used so far.
    """

    def __init__(
        self,
        folder: Path,
        guardian: Guardian | None = None,
        leases: Leases | None = None,
        deadline: float = math.inf,
    ) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._own_guardian = guardian is None
        self._guardian = guardian or Guardian()
        self._leases = leases
        self.deadline = deadline
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._lender: threading.Thread | None = None
        self._idle: dict[_Key, list[Worker]] = {}
        self._busy: set[Worker] = set()
        self._versions: dict[tuple[str, ...], dict[str, str]] = {}
        self._logs = itertools.count(1)
        self.peak_rss_mb = 0.0
        self._closed = False

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(  # noqa: PLR0913 - one call's own limits
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
        lease: Kind | None = None,
    ) -> Reply:
        """Run the operation ``op`` (a name in `worker_main.OPERATIONS`) with JSON-able ``args`` and wait for its end.

        ``python``: the interpreter (a path, a program on PATH, a virtual environment's folder); None is this one.
        ``timeout``: seconds, not counting the interpreter's start and its imports. ``memory_mb``: resident MiB of the
        worker and its children; None: a share of what the machine has, and beyond it the death is `OUT_OF_MEMORY`.
        ``fresh``: use a new process. ``keep_log``: keep what was printed even if the call went well.
        ``confirm=False``: the first answer counts, even that of a worker that served before. ``lease``: what the
        worker holds from its start to its end, a GPU of its own (it sees no other) or a CPU slot; waiting for it counts
        in no time-out. Raises WorkerStartError if the interpreter cannot be started (WorkerKilledError: it is killed
        each time), NoGpuError where there is none, Stopped if a wait for a lease is given up, OutOfTime if the deadline
        ends it, and never for what the operation does.
        """
        interpreter = find_python(python)
        kind = self._leases.needed(lease) if self._leases else None
        kills = Kills(self._guardian)
        while True:
            try:
                worker = self._take(interpreter, fresh, kind)
            except WorkerKilledError:
                if not kills.foreign:
                    raise Stopped("all checks were killed while this one's worker started") from None
                if not kills.again():
                    raise
                continue
            warm, worker.reusable = worker.served > 0, False
            try:
                reply = worker.call(op, args, timeout, memory_mb, keep_log=keep_log)
            finally:
                self._give_back(worker)
            with self._lock:
                self.peak_rss_mb = max(self.peak_rss_mb, reply.peak_rss_mb)
            suspect = reply.death is not None or reply.unready or (kind == "gpu" and reply.erred)
            killed = reply.death == KILLED and kills.foreign and not self._closed
            if killed and not kills.again():
                return replace(reply, death=OUT_OF_MEMORY) if kills.for_memory else reply
            if not killed and not (warm and confirm and suspect):
                return reply
            fresh = True

    def versions(self, python: str | None = None, packages: Sequence[str] = ()) -> dict[str, str]:
        """Return what is installed under an interpreter, with its own version as "python". Raises WorkerStartError.

        ``packages``: others that are asked for, by the names that Python imports them by.
        """
        key = (find_python(python), *packages)
        if key not in self._versions:
            reply = self.call("versions", {"packages": list(packages)}, python=python, timeout=PREPARE_SECONDS)
            self._versions[key] = {str(name): str(text) for name, text in (reply.value or {}).items()}
        return dict(self._versions[key])

    @property
    def gpus(self) -> tuple[str, ...]:
        """The names of the GPUs that may be leased. Raises UsageError."""
        return self._leases.gpus.names if self._leases else ()

    def at_once(self, wanted: int, kind: Kind | None) -> int:
        """Return how many of so many calls run at once where each holds such a lease. Raises UsageError."""
        kind = self._leases.needed(kind) if self._leases else None
        return max(1, min(wanted, len(self._leases.places(kind)))) if self._leases and kind else wanted

    @property
    def user_kind(self) -> Kind | None:
        """The lease that commands and functions of the user's get."""
        return "gpu" if self._leases and self._leases.mode is LeaseMode.gpu else None

    @contextmanager
    def user_lease(self) -> Iterator[Lease | None]:
        """Take the lease for one command of the user's, to be handed over to it. Raises as `call` does."""
        kind = self.user_kind
        found = self._await(None, False, kind) if kind else None
        assert not isinstance(found, Worker)
        try:
            yield found
        finally:
            if found:
                found.close()
            self._wake()

    def close(self) -> None:
        """End all workers, also those that are at work."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()
            idle = [worker for workers in self._idle.values() for worker in workers]
            self._idle.clear()
            busy = list(self._busy)
        for worker in busy:
            # the thread that waits for it sees the death and reaps it
            worker.interrupt()
        for worker in idle:
            worker.discard()
        if self._own_guardian:
            self._guardian.close()

    def _take(self, python: str, fresh: bool, kind: Kind | None) -> Worker:
        while True:
            found = self._await(python, fresh, kind)
            if isinstance(found, Worker):
                worker = found
            else:
                worker = Worker(python, self._folder, self._logs, self._guardian, found)
            with self._lock:
                if worker.alive and not self._closed:
                    self._busy.add(worker)
                    return worker
            # it died while it was idle, or all was closed while it started
            self._end(worker)

    def _await(self, python: str | None, fresh: bool, kind: Kind | None) -> Worker | Lease | None:
        """Return a warm worker for ``python``, or what a new process needs: a lease of this kind, if any."""
        wait: Wait | None = None
        kills = self._guardian.kills
        try:
            while True:
                with self._lock:
                    if self._closed:
                        raise Stopped("the pool is closed")
                    idle = self._idle.get((python, kind)) if python is not None else None
                    if idle and not fresh:
                        return idle.pop()
                if kind is None or self._leases is None:
                    return None
                lease = self._leases.take(kind)
                if lease is not None:
                    return lease
                if self._evict(kind, anyone=wait is not None):
                    continue
                wait = wait or Wait(self._leases, kind, self.deadline)
                with self._changed:
                    if not self._closed:
                        self._changed.wait(wait.pause())
                if self._guardian.kills != kills:
                    raise Stopped("all checks were killed while this one waited for a lease")
        finally:
            if wait is not None:
                wait.close()

    def _evict(self, kind: Kind, anyone: bool) -> bool:
        """End one idle worker that holds such a lease; with ``anyone`` also one that holds another kind."""
        with self._lock:
            for (_, held), idle in self._idle.items():
                if idle and (held == kind or (anyone and held is not None)):
                    worker = idle.pop(0)
                    break
            else:
                return False
        self._end(worker)
        return True

    def _end(self, worker: Worker) -> None:
        worker.discard()
        self._wake()

    def _wake(self) -> None:
        """Let those who wait for a lease look again."""
        with self._changed:
            self._changed.notify_all()

    def _give_back(self, worker: Worker) -> None:
        with self._lock:
            self._busy.discard(worker)
            idle = self._idle.setdefault((worker.python, worker.kind), [])
            # fresh workers that nobody asked to be warm must not pile up
            keep = worker.reusable and not self._closed and len(idle) <= len(self._busy)
            if keep:
                worker.idle_since = now()
                idle.append(worker)
                self._changed.notify_all()
                if worker.kind is not None and self._lender is None:
                    self._lender = threading.Thread(target=self._lend, name="leases", daemon=True)
                    self._lender.start()
        if not keep:
            self._end(worker)

    def _lend(self) -> None:
        """Have idle workers give up their leases to other jobs that wait for one."""
        while True:
            with self._changed:
                if not any(idle for (_, kind), idle in self._idle.items() if kind) or self._closed:
                    self._lender = None
                    return
                self._changed.wait(_LENT_SECONDS / 2)
                for (_, kind), idle in self._idle.items():
                    spare = idle[0] if kind and idle else None
                    waited = spare is not None and now() - spare.idle_since > _LENT_SECONDS
                    if waited and kind and self._leases and self._leases.wanted(kind):
                        worker = idle.pop(0)
                        break
                else:
                    continue
            self._end(worker)


# Winnow's own operations on a model (reading, sanitizing, casting it): their end in a crash is no verdict on it.


def limited(pool: Pool, settings: Settings, op: str, args: Mapping[str, Any], **how: Any) -> Reply:
    """Call an operation within the limits of ``workers``; ``how``: what else `Pool.call` takes."""
    limits = settings.workers
    return pool.call(op, args, **{"timeout": limits.timeout, "memory_mb": limits.memory_mb, **how})


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
        reply = limited(pool, settings, op, args, python=python, fresh=fresh, lease=lease)
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


# Which lease a call to a backend needs: a GPU of its own, a CPU slot, or none.


def lease_of(backend: Mapping[str, Any], pool: Pool, python: str | None, *, builds: bool = False) -> Kind | None:
    """Return the lease for running a model on a backend (its settings as workers take them), or for only building it.

    TensorRT for RTX builds without a GPU, for those that are named or where there is none; it takes a CPU slot then,
    since such a build wants a core and some GiB for itself.
    """
    if backend.get("name") == "onnxruntime":
        names = [str(one) if isinstance(one, str) else str(next(iter(one))) for one in backend.get("providers") or ()]
        return "gpu" if any(part in name for name in names for part in PROVIDERS_ON_A_GPU) else None
    if backend.get("name") != "tensorrt":
        return None
    flavor = _flavor(backend, pool, python)
    if not pool.gpus and flavor not in pool.versions(python):
        return None  # the worker says what to install: no GPU would help
    if not builds or flavor == "tensorrt":
        return "gpu"
    targets = [str(target).upper() for target in backend.get("compute_capabilities") or ()]
    if "CURRENT" in targets or (not targets and pool.gpus):
        return "gpu"
    return "cpu"


def _flavor(backend: Mapping[str, Any], pool: Pool, python: str | None) -> str:
    flavor = str(backend.get("flavor", "auto"))
    if flavor != "auto":
        return flavor
    return "tensorrt" if "tensorrt" in pool.versions(python) else "tensorrt_rtx"
