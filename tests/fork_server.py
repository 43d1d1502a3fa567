"""Starts runs by forking a process that has imported Winnow already: what a run does is the same, 0.8 s of CPU sooner.

This file is both: what asks a server (`run_forked`), and the server, a script that is started by path. A forked child
becomes ``python -m runner`` in all that a run can see: arguments, folder, environment, streams, and its end. There is a
server for each set of variables that an interpreter reads at its start, and none where the system has no pidfd. What
tests the start of a process, or sends it signals, starts a real one.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_MOST_BYTES = 1 << 18
# what a run imports on its way, beside our own; workers are processes of their own, and import by themselves
_MODULES = ("numpy.random",)
# grammars are read, and tables of parsers filled, when they are first used
_OVERRIDES = ("model=/a/net-1.onnx", "inputs.ranges={x: [0.5, 3]}", 'checker.command=[python, "/a b/c.py", "{model}"]')
_AT_START = ("PYTHON", "LD_", "LC_", "LANG")
_servers: dict[tuple[tuple[str, str], ...], Server] = {}


class Server:
    """Asks one server. Not thread-safe."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._control, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(its.fileno())], pass_fds=[its.fileno()], env=dict(environment),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        atexit.register(self.close)

    def start(self, request: Mapping[str, object], stdout: int, stderr: int) -> tuple[int, socket.socket]:
        """Have a run started with these streams; return its number and what will tell its exit code."""
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            socket.send_fds(self._control, [json.dumps(request).encode()], [stdout, stderr, its.fileno()])
        return int(ours.recv(64)), ours

    def close(self) -> None:
        """End the server, and wait for its end: what its children used is then counted among this process's."""
        self._control.close()
        self._process.wait()


def run_forked(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None, timeout: float, merged: bool = False
) -> subprocess.CompletedProcess[str]:
    """Do what `subprocess.run` does with ``python -m runner ...``, input closed and output captured.

    ``merged``: stderr goes where stdout goes.
    """
    environment = dict(os.environ if env is None else env)
    if not hasattr(os, "pidfd_open"):
        return subprocess.run(
            argv, cwd=cwd, env=environment, timeout=timeout, text=True, check=False, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT if merged else subprocess.PIPE,
        )  # fmt: skip
    assert list(argv[:3]) == [sys.executable, "-m", "runner"]
    key = tuple(sorted((name, text) for name, text in environment.items() if name.startswith(_AT_START)))
    if key not in _servers:
        _servers[key] = Server(environment)
    pipes = [os.pipe() for _ in range(1 if merged else 2)]
    try:
        request = {"argv": list(argv[3:]), "cwd": str(cwd), "environment": environment}
        pid, ending = _servers[key].start(request, pipes[0][1], pipes[-1][1])
    finally:
        for _, writer in pipes:
            os.close(writer)
    with ending:
        texts = _read(pid, ending, [reader for reader, _ in pipes], timeout)
        code = int(ending.recv(64))
    return subprocess.CompletedProcess(argv, code, texts[0], None if merged else texts[1])


def _read(pid: int, ending: socket.socket, readers: Sequence[int], timeout: float) -> list[str]:
    """Return what comes out of the pipes until all are closed and the run has ended."""
    until = time.monotonic() + timeout
    parts: dict[int, list[bytes]] = {reader: [] for reader in readers}
    waited = [*readers, ending.fileno()]
    try:
        while waited:
            ready = select.select(waited, [], [], max(0.0, until - time.monotonic()))[0]
            if not ready:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(["python", "-m", "runner"], timeout)
            for fd in ready:
                part = os.read(fd, 1 << 16) if fd in parts else b""
                if part:
                    parts[fd].append(part)
                else:
                    waited.remove(fd)
    finally:
        for reader in readers:
            os.close(reader)
    return [b"".join(parts[reader]).decode() for reader in readers]


def _serve(control: socket.socket) -> dict[str, object] | None:
    """Fork a child for each request; return in each child what was asked for, and in the server None at its end."""
    poller = select.poll()
    poller.register(control, select.POLLIN)
    children: dict[int, tuple[int, socket.socket]] = {}  # of each pidfd
    while True:
        for fd, _ in poller.poll():
            if fd != control.fileno():
                pid, reply = children.pop(fd)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                poller.unregister(fd)
                os.close(fd)
                with reply, suppress(BrokenPipeError):  # nobody waits for one that took too long
                    reply.send(str(code).encode())
                continue
            data, fds, _, _ = socket.recv_fds(control, _MOST_BYTES, 3)
            if not data:
                return None
            pid = os.fork()
            if not pid:
                os.dup2(fds[0], 1)
                os.dup2(fds[1], 2)
                for number in (*fds, *children, *(other.detach() for _, other in children.values()), control.detach()):
                    os.close(number)
                return dict(json.loads(data))
            os.close(fds[0])
            os.close(fds[1])
            reply = socket.socket(fileno=fds[2])
            reply.send(str(pid).encode())
            pidfd = os.pidfd_open(pid)
            children[pidfd] = pid, reply
            poller.register(pidfd, select.POLLIN)


def _main() -> None:
    sys.path[0] = str(ROOT)
    ours = pkgutil.walk_packages([str(ROOT / "runner")], "runner.")
    for name in (*(one.name for one in ours if not one.name.endswith("__main__")), *_MODULES):
        with suppress(ImportError):  # of what need not be installed
            importlib.import_module(name)
    assert not {"onnxruntime", "tensorrt", "tensorrt_rtx"} & sys.modules.keys()  # which a run may not import
    importlib.import_module("hydra.core.plugins").Plugins.instance()
    importlib.import_module("runner.cli.compose").register()
    hydra = importlib.import_module("hydra")
    conf = importlib.import_module("runner.schema.installed_choices").CONF
    with hydra.initialize_config_dir(str(conf), version_base="1.3"):
        hydra.compose("config", ["checker=command", *_OVERRIDES])
    with tempfile.TemporaryDirectory() as folder:  # fonts are looked up for the first figure only
        importlib.import_module("runner.jobs.precision.report").plot_curve(
            [(0, 2.0), (1, 0.5)], Path(folder) / "curve.svg", ""
        )
    gc.freeze()
    asked = _serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is None:
        return
    # workers find what an interpreter finds: `ROOT` stands at the front for the imports above
    importlib.import_module("tests.forked_workers").install()
    os.environ.clear()
    os.environ.update(asked["environment"])  # type: ignore[call-overload]
    os.chdir(str(asked["cwd"]))
    sys.path[0] = str(asked["cwd"])
    sys.argv = ["runner", *asked["argv"]]  # type: ignore[misc]
    runpy.run_module("runner", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
