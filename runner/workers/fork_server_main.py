"""The fork server's side: a script started by path under the interpreter of a user's command, from Python 3.8 on.

It imports modules once. For each request on its socket it forks a process that becomes the user's script, as
`python script.py ...` would run it: the forked process leaves `serve` and goes on at the end of this file, so that
whatever happens at the end of a script (exit codes, threads, atexit) the interpreter itself does.

Requests and answers are lines of JSON; descriptors come with the blank before a request.
"""

# runs under Python 3.8; the path is cleaned before the first import that it could mislead
# ruff: noqa: E402, PTH100, PTH109, PTH118, PTH120, PTH123, PTH208
from __future__ import annotations

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _HERE]

import builtins
import contextlib
import ctypes
import gc
import importlib
import importlib.machinery
import io
import json
import select
import signal
import socket
import struct
import time
import types
import warnings
from typing import Any, BinaryIO

_PR_SET_CHILD_SUBREAPER = 36
_MOST_DESCRIPTORS = 64
_SECONDS_BETWEEN_LOOKS = 0.001
_TRIAL_SECONDS = 30
# a fork that takes longer hangs in a library; the job's time limit is for that
_LEADS_SECONDS = 5


def _receive(control: socket.socket, requests: BinaryIO) -> tuple[dict[str, Any], list[int]]:
    """Return a request and the descriptors that came with it. Raises OSError or ValueError where the job is gone."""
    _, ancillary, _, _ = control.recvmsg(1, socket.CMSG_SPACE(_MOST_DESCRIPTORS * 4))
    fds: list[int] = []
    for _, _, data in ancillary:
        fds += struct.unpack(f"{len(data) // 4}i", data)
    return json.loads(requests.readline()), fds


def _send(control: socket.socket, answer: dict[str, Any]) -> None:
    control.sendall(json.dumps(answer).encode() + b"\n")


def _find_modules_beside(script: str) -> None:
    """Look for modules in the script's folder first, as an interpreter that is given a script does."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, os.path.dirname(os.path.realpath(script)))


def _import(modules: list[str]) -> str:
    """Import modules; return what is wrong with that, in words, or ""."""
    for name in modules:
        try:
            importlib.import_module(name)
        except BaseException as error:  # noqa: BLE001 - whatever a module raises
            return f"cannot import {name}: {type(error).__name__}: {error}"
        # neither outlives a fork, or the end of the first check
        if "threading" in sys.modules and sys.modules["threading"].active_count() > 1:
            return f"importing {name} starts a thread, which a forked process does not have"
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            continue
        return f"importing {name} starts a process, which would be killed with the first check"
    return ""


def _descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry))
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _end_all() -> None:
    """Kill and reap the check and all that it has started: as its subreaper, this process has all of them below it."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            for one in _descendants():
                with contextlib.suppress(OSError):
                    os.kill(one, signal.SIGKILL)
            time.sleep(_SECONDS_BETWEEN_LOOKS)


def _fork() -> int:
    with warnings.catch_warnings():
        # that this process has threads: numpy's algebra starts some, which bear a fork
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def serve(control: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Answer requests; return in forked processes only, with what they are to become and the descriptors they got."""
    requests = control.makefile("rb")
    while True:
        try:
            request, fds = _receive(control, requests)
        except (OSError, ValueError):
            os._exit(0)  # destructors of native libraries may hang or crash: nothing here needs them
        refused, refuses = os.pipe()
        try:
            os.chdir(request["cwd"])
            pid = _fork()
        except OSError as error:
            pid = -1
            answer: dict[str, Any] = {"error": f"cannot fork a check: {error}"}
        if pid == 0:
            os.setsid()
            requests.close()
            control.close()
            os.close(refused)
            if request["program"]:
                _start_program(request, fds, refuses)
            os.close(refuses)
            return request, fds
        for fd in (*fds, refuses):
            os.close(fd)
        # closed once it leads a session, by which it is killed, and is the script's or another program
        if select.select([refused], [], [], _LEADS_SECONDS)[0] and (why := os.read(refused, 16)):
            os.waitpid(pid, 0)
            pid, answer = -1, {"error": os.strerror(int(why)), "errno": int(why)}
        os.close(refused)
        if pid < 0:
            _send(control, answer)
            continue
        try:
            _send(control, {"pid": pid})
            # it is reaped later: until then the job may use its number. What it has left to init, which comes here
            # instead, is reaped at once, as init does: a check may wait until such a number is free again
            while (end := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)) and end.si_pid != pid:
                os.waitpid(end.si_pid, 0)
            assert end is not None
            _send(control, {"ended": end.si_status if end.si_code == os.CLD_EXITED else -end.si_status})
            asked = requests.read(1)
            _end_all()
            if not asked:
                os._exit(0)
            _send(control, {"left": 0})
        except OSError:
            _end_all()
            os._exit(0)


def _start_program(request: dict[str, Any], fds: list[int], refuses: int) -> None:
    """Become the program that was asked for, as `subprocess.Popen` starts one; write to ``refuses`` why not."""
    try:
        environment = _take_over(request, fds)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(request["argv"][0], request["argv"], environment)  # noqa: S606 - as the user wrote it
    except OSError as error:
        os.write(refuses, str(error.errno).encode())
    finally:
        os._exit(127)


def _take_over(request: dict[str, Any], fds: list[int]) -> dict[str, str]:
    """Print to the log, hold the lease, and return the environment, in which that is said."""
    for standard in (1, 2):
        os.dup2(fds[0], standard)
    os.close(fds[0])
    environment: dict[str, str] = request["env"]
    # a lease says by which descriptor it is held: that has another number here
    numbers = {str(there): str(here) for there, here in zip(request["lease"], fds[1:])}  # noqa: B905 - Python 3.8
    for fd in fds[1:]:
        os.set_inheritable(fd, True)
    if numbers:
        held = [mark.rpartition(":") for mark in environment[request["chain"]].split(",")]
        renumbered = [mark + colon + numbers.get(number, number) for mark, colon, number in held]
        environment[request["chain"]] = ",".join(renumbered)
    return environment


def become(request: dict[str, Any], fds: list[int]) -> types.CodeType:
    """Make this process what it would be if the interpreter had just been started with the script; return its code."""
    environment = _take_over(request, fds)
    os.environ.update(environment)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # else all checks would draw the same numbers; Python's own does this itself
    script = request["argv"][1]
    sys.argv[:] = request["argv"][1:]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = request["argv"]
    path = os.path.join(os.getcwd(), script) if sys.version_info >= (3, 9) else script
    try:
        with io.open_code(path) as file:
            source = file.read()
    except OSError as error:
        words = f"{request['argv'][0]}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}\n"
        sys.stderr.write(words)
        sys.exit(2)
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __file__=path, __cached__=None)
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    sys.modules["__main__"] = main
    return compile(source, path, "exec", dont_inherit=True)


def hide_own_frames() -> None:
    """Have an uncaught exception shown without the frames of this file."""
    shown = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        error.__traceback__ = trace
        shown(kind, error, trace)

    sys.excepthook = show


def _end_of_a_fork() -> int:
    """Fork a process that ends at once, as scripts end, and return its status.

    A library may wait at the end for a thread that it started when it was imported: a forked process has none.
    """
    pid = _fork()
    if not pid:
        signal.alarm(_TRIAL_SECONDS)
        sys.exit(0)
    return os.waitpid(pid, 0)[1]


def _import_installed(modules: list[str]) -> str:
    """Import modules, but none that a script finds elsewhere (beside it, in PYTHONPATH) or that is not installed."""
    library = os.path.dirname(os.__file__)
    at = sys.path.index(library) if library in sys.path else len(sys.path)
    ahead, sys.path[:] = sys.path[:at], sys.path[at:]
    wrong = _import(modules)
    sys.path[:0] = ahead
    for name in sorted({name.partition(".")[0] for name in sys.modules} - {"__main__", *sys.builtin_module_names}):
        spec = importlib.machinery.PathFinder.find_spec(name, ahead)
        if spec is not None and spec.has_location:  # a folder without __init__.py hides nothing
            return f"finds {name} in {spec.origin} first"
    places = [getattr(sys.modules.get(name), "__file__", None) or library for name in modules]
    strange = [one for one in places if not one.startswith(library) and f"-packages{os.sep}" not in one]
    return wrong or (f"finds {strange[0]}, which is not installed" if strange else "")


def start(fd: int, modules: list[str], script: str, *, installed: bool) -> socket.socket:
    """Import the modules, say how that went, and return the socket on which requests come."""
    control = socket.socket(fileno=fd)
    control.set_inheritable(False)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    sys.argv[:] = [script]
    _find_modules_beside(script)
    wrong = _import_installed(modules) if installed else _import(modules)
    # what is left in a buffer would be printed by each forked process
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    libc.fflush(None)
    # else the collections of each forked process write to all that it shares with this one, and so copy it
    gc.collect()
    gc.freeze()
    if not wrong and (status := _end_of_a_fork()):
        how = f"is killed by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exits with {status >> 8}"
        wrong = f"imports them, but a process that is forked from there does not end as it should: it {how}"
    _send(control, {"wrong": wrong} if wrong else {"pid": os.getpid(), "cwd": os.getcwd()})
    return control


if __name__ == "__main__":
    _OURS = sys.modules["__main__"]  # this file's module lives on when the script's takes its place
    _REQUEST, _FDS = serve(start(int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3], installed=bool(sys.argv[4])))
    try:
        _CODE = become(_REQUEST, _FDS)
        exec(_CODE, sys.modules["__main__"].__dict__)  # noqa: S102 - the user's script
    except SystemExit:
        raise
    except BaseException:
        hide_own_frames()
        raise
