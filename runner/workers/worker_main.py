"""The worker's side: a script started by path under any interpreter from Python 3.8 on, with the standard library only.

It answers requests until its pipe closes, each a line of JSON, on two pipes of its own: what native code or a user's
function prints goes to the log and never between two lines.
"""

# runs under Python 3.8; the path is cleaned before the first import that it could mislead
# ruff: noqa: E402, PTH100, PTH118, PTH120, PTH123
from __future__ import annotations

import os
import sys

# started by path, the interpreter looks for modules in this folder first: no module of the user's may be shadowed by
# ours
_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _HERE]

import ctypes
import faulthandler
import importlib
import importlib.util
import json
import resource
import select
import signal
import threading
import time
import traceback
from typing import Any, Callable  # noqa: UP035 - the alias below is read when the module is, under Python 3.8 too

# what can be asked for: operation -> (module:function, the stage of an error that names none, what else it imports
# before its time is taken). Nothing else is ever imported by name
OPERATIONS = {
    "run": ("runner.backends.run_model:run", "internal"),
    "latency": ("runner.backends.run_model:latency", "internal"),
    "build": ("runner.backends.trt.build:build", "internal"),
    "tactics_support": ("runner.backends.trt.tactics:tactics_support", "internal"),
    "versions": ("runner.backends.versions:versions", "internal"),
    "round": ("runner.backends.rounding:write", "setup"),
    "user_check": ("runner.backends.user_functions:user_check", "check"),
    "user_inputs": ("runner.backends.user_functions:user_inputs", "inputs"),
    "ingest": ("runner.model.files.read_model:ingest", "ingest"),
    "describe_model": ("runner.jobs.model_concerns:describe_model", "inspect"),
    "engine_layers": ("runner.backends.trt.engine:engine_layers", "setup"),
    "sanitize": ("runner.model.passes.sanitize:sanitize", "sanitize"),
    "prepare_cast": ("runner.jobs.precision.prepare_model:prepare", "cast"),
    "convert_weights": ("runner.jobs.precision.prepare_model:convert_weights", "cast"),
    "eight_bits": ("runner.jobs.precision.prepare_model:eight_bits", "cast", "onnxruntime"),
    "name_nodes": ("runner.jobs.precision.prepare_model:name_nodes", "cast"),
    "quantize": ("runner.backends.quantize_model:quantize", "cast", "onnxruntime"),
    "overflow": ("runner.backends.emulation.overflow:overflow", "overflow", "onnxruntime"),
    "contrib_schemas": ("runner.backends.onnxruntime:contrib_schemas", "cast"),
    "loads": ("runner.backends.onnxruntime:loads", "load", "onnxruntime"),
    "optimizers": ("runner.backends.onnxruntime:optimizers", "load", "onnxruntime"),
    "introduced": ("runner.backends.emulation.error_measurement:introduced", "introduced", "onnxruntime"),
    "infer_shapes": ("runner.model.passes.infer_shapes:infer_shapes", "shapes"),
    "check_types": ("runner.model.passes.infer_shapes:check_types", "types"),
    "mend_types": ("runner.model.passes.infer_shapes:mend_types", "types"),
    "print_model": ("runner.model.files.onnx_text:print_model", "print_model"),
    "check_model": ("runner.model.files.read_model:check_model", "check_model"),
}
_WATCH_SECONDS = 0.5
_MESSAGE_CHARACTERS = 8000

Operation = Callable[["dict[str, Any]"], "dict[str, Any]"]


def _watch(reader: int) -> None:
    """End this process and what it started once the job is gone, whatever the main thread does.

    The job's end of the pipe is what tells: the parent may be a script that has started the interpreter.
    """
    poller = select.poll()
    poller.register(reader, 0)  # only that the other end is closed
    poller.poll()
    time.sleep(_WATCH_SECONDS)  # the main thread ends by itself, unless it is busy
    if os.getpgrp() == os.getsid(0):
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


def _unbuffer() -> None:
    """Print line by line: a process that dies has printed what it had to say."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(line_buffering=True, errors="backslashreplace")
    try:
        libc = ctypes.CDLL(None)
        libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, 1, 0)  # 1 is _IOLBF
    except (OSError, ValueError, AttributeError):
        pass  # native output may then come late, no more


def _own_packages() -> None:
    """Make our modules importable without opening our site-packages to another version of Python."""
    folder = os.path.dirname(_HERE)
    spec = importlib.util.spec_from_file_location(
        "runner", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["runner"] = package
    spec.loader.exec_module(package)


def _reset_peak() -> None:
    """Make the kernel measure the peak anew: a warm worker's earlier calls are not this one's."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass


def _memory() -> dict[str, float]:
    """Return MiB of resident memory: ``peak_mb`` and ``rss_mb`` (empty where the system does not tell)."""
    values = {}
    try:
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith(("VmHWM:", "VmRSS:")):
                    key, value = line.split()[:2]
                    values["peak_mb" if key == "VmHWM:" else "rss_mb"] = int(value) / 1024.0
    except OSError:
        pass
    return values


def _error(error: BaseException, stage: str) -> dict[str, Any]:
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - a user's exception may fail to say what it is
        message = "(its message cannot be shown)"
    if len(message) > _MESSAGE_CHARACTERS:
        message = message[:_MESSAGE_CHARACTERS] + " ..."
    stage = str(getattr(error, "stage", stage))
    if stage not in ("setup", "load", "build", "infer", "untried"):
        traceback.print_exception(type(error), error, error.__traceback__)
    return {"stage": stage, "type": str(getattr(error, "kind", type(error).__name__)), "message": message}


def _find(name: str) -> Operation:
    if name not in OPERATIONS:
        raise KeyError(f"unknown operation {name!r}: one of {', '.join(sorted(OPERATIONS))}")
    module, _, function = OPERATIONS[name][0].partition(":")
    found: Operation = getattr(importlib.import_module(module), function)
    return found


def _prepare(args: dict[str, Any]) -> dict[str, Any]:
    """Do the imports of an operation before its time is taken."""
    operation = _find(args["op"])
    for name in OPERATIONS[args["op"]][2:]:
        importlib.import_module(name)
    prepare = getattr(sys.modules[operation.__module__], "prepare", None)
    if prepare is not None:
        prepare(args["args"])
    return {}


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    name = request["op"]
    try:
        value = _prepare(request["args"]) if name == "prepare" else _find(name)(request["args"])
        json.dumps(value)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a model or a user's function raises is an answer
        return {"error": _error(error, OPERATIONS.get(name, ("", "setup"))[1])}
    return {"value": value}


def serve(reader: int, writer: int, lease: int) -> None:
    """Answer requests until the pipe ``reader`` closes, on the pipe ``writer``.

    ``lease``: the descriptor that holds it (0: none), which stays open as long as this process lives.
    """
    for fd in (reader, writer, *((lease,) if lease else ())):
        # programs that an operation starts get none of them
        os.set_inheritable(fd, False)
    threading.Thread(target=_watch, args=(reader,), daemon=True).start()
    _unbuffer()
    _own_packages()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    faulthandler.enable()
    answers = open(writer, "w", encoding="ascii")  # noqa: SIM115 - as long as this process
    print(json.dumps({"hello": list(sys.version_info[:3]), "pid": os.getpid()}), file=answers, flush=True)
    for request in open(reader, "rb"):  # noqa: SIM115 - as long as this process
        _reset_peak()
        answer = _answer(json.loads(request))
        answer.update(_memory())
        sys.stdout.flush()
        sys.stderr.flush()
        print(json.dumps(answer), file=answers, flush=True)
    # destructors of native libraries may hang or crash: nothing here needs them
    os._exit(0)


if __name__ == "__main__":
    serve(*map(int, sys.argv[1:]))
