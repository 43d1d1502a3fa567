"""Starts the workers of a run by forking the run, which has imported numpy and onnx already: 0.17 s of CPU sooner each.

A forked worker is a child of its run and becomes ``python worker_main.py`` in all that it can see: environment,
descriptors, signals, session, and search path; Winnow's own modules are imported anew. A worker that holds a lease, or
has another interpreter, is started as it always is, and so is every worker of a run that `tests.fork_server` did not
start.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence

from runner.workers import process_tree, worker
from runner.workers.gpu_leases import CHAIN

_OURS = ("runner", "strategies", "conf", "tests")
_kept: list[object] = []


def install() -> None:
    """Have the workers of this process forked from it. Call it before a run changes the search path."""
    search_path = sys.path[1:]

    def start(
        argv: Sequence[str], *, env: Mapping[str, str], log: int, fds: Sequence[int]
    ) -> subprocess.Popen[bytes] | _Forked:
        if argv[0] != sys.executable or CHAIN in env:
            return process_tree.start(argv, env=env, log=log, fds=fds)
        return _Forked(argv, env, search_path, log, fds)

    worker.start = start  # type: ignore[attr-defined]


class _Forked:
    """What a worker's owner uses of `subprocess.Popen`."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], search_path: list[str], log: int, fds: Sequence[int]
    ) -> None:
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(writer)
            os.read(reader, 1)  # until it has a group of its own, by which it can be killed, and has closed this
            os.close(reader)
        else:
            try:
                _become_a_session(log, fds)
                os.environ.clear()
                os.environ.update(env)
                sys.argv, sys.path[:] = [*argv[1:]], search_path
                _run(argv[1])
            except BaseException:  # noqa: BLE001 - nothing of the run's may handle it
                traceback.print_exc()
            finally:
                os._exit(1)

    def wait(self) -> int:
        """Reap it; return its exit code, or minus the signal that ended it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _become_a_session(log: int, fds: Sequence[int]) -> None:
    """Leave the run's session, handlers, and descriptors; print to ``log``."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, stream in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, stream)
    kept = sorted({0, 1, 2, *fds})
    for low, high in zip(kept, [*kept[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
        os.closerange(low + 1, high)
    _kept.extend((sys.stdin, sys.stdout, sys.stderr))  # which may hold what the run has yet to write
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(stream, "w" if stream else "r") for stream in range(3))


def _run(script: str) -> None:
    """Run the script as the main module, without any module of ours that the run has imported."""
    ours = [name for name in sys.modules if name.partition(".")[0] in _OURS]
    _kept.extend(sys.modules.pop(name) for name in ours)
    importlib.import_module("numpy").random.seed()
    spec = importlib.util.spec_from_file_location("__main__", script)
    assert spec is not None and spec.loader is not None
    sys.modules["__main__"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
