"""The TensorRT library, found and loaded, and its logger.

What a version can do is asked of it (``hasattr``), never told from its number; enumerations are looked up by name,
since TensorRT 11 renumbered them.
"""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PTH100, PTH118, PTH120, PTH123, PTH207, SIM115
from __future__ import annotations

import ctypes
import glob
import importlib.util
import os
import re
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, TextIO, Tuple

from runner.backends.errors import StageError, choose

FLAVORS = ("auto", "tensorrt", "tensorrt_rtx")
# flavor -> modules that may provide it, in the order in which they are tried
MODULES = {
    "tensorrt": ("tensorrt",),
    "tensorrt_rtx": ("tensorrt_rtx", "tensorrt_rtx_bindings"),
}
_INSTALL = {
    "tensorrt": "pip install tensorrt",
    "tensorrt_rtx": "pip install onnxruntime-ep-nv-tensorrt-rtx-cu13 tensorrt-rtx-cu13-bindings (of one release), "
    "or NVIDIA's own tensorrt_rtx package",
}
# the wheel that brings the libraries of RTX without Python bindings, and what it holds in the order of loading
_RTX_LIBRARIES = "onnxruntime_ep_nv_tensorrt_rtx"
_RTX_NAMES = ("libtensorrt_rtx.so", "libtensorrt_onnxparser_rtx.so")


@dataclass(frozen=True)
class Library:
    """A loaded TensorRT. ``api``: its Python module; ``flavor``: tensorrt or tensorrt_rtx; ``version``: its own."""

    api: Any
    flavor: str
    version: str

    def __str__(self) -> str:
        return f"{self.flavor} {self.version}"

    def members(self, enumeration: str) -> Dict[str, Any]:
        """Return an enumeration's members by name; empty where this TensorRT has no such enumeration."""
        found = getattr(self.api, enumeration, None)
        return dict(getattr(found, "__members__", {}))

    def member(self, enumeration: str, key: str, name: str) -> Any:
        """Return a member that the setting ``key`` names, in any case. Raises StageError (setup) if it is not there."""
        members = self.members(enumeration)
        if name.upper() in members:
            return members[name.upper()]
        raise self.lacks(key, name, members)

    def lacks(self, key: str, given: str, valid: Iterable[str]) -> StageError:
        """Return the error for something that this TensorRT does not have."""
        error = choose(key, given, valid)
        return StageError("setup", error.kind, str(error).replace("not known here", f"not in {self}", 1))


_loaded: Dict[str, Library] = {}  # a process loads each flavor once: two cannot be told from one another in its memory


def load(flavor: str) -> Library:
    """Return the library of this flavor; auto: the first that is installed.

    Raises StageError (setup): NotInstalled with what to install, or for a flavor that does not exist.
    """
    if flavor not in FLAVORS:
        raise choose("flavor", flavor, FLAVORS)
    if flavor not in _loaded:
        _loaded[flavor] = _load(flavor)
    return _loaded[flavor]


def _load(flavor: str) -> Library:
    wanted = [flavor] if flavor != "auto" else list(MODULES)
    said = []
    for name in wanted:
        for module in MODULES[name]:
            if importlib.util.find_spec(module) is None:
                continue
            try:
                if module.endswith("_bindings"):
                    _preload()
                api = importlib.import_module(module)
                # a model, and an engine that was built before, may hold any of TensorRT's own plugins
                register = getattr(api, "init_libnvinfer_plugins", None)
                if register is not None and not register(None, ""):
                    raise OSError("its own plugins cannot be registered")
                return Library(api, name, str(api.__version__))
            except Exception as error:  # noqa: BLE001 - a broken installation may raise anything
                said.append(f"{module}: {type(error).__name__}: {error}")
    ways = "; ".join(f"{name}: {_INSTALL[name]}" for name in wanted)
    why = f" ({' | '.join(said)})" if said else ""
    raise StageError(
        "setup",
        "NotInstalled",
        f"TensorRT is not {'usable' if said else 'installed'} under this interpreter{why}. Install one ({ways}), "
        "or name an interpreter that has it: target.python=PATH (reference.python=PATH for a reference)",
    )


def has_gpu() -> bool:
    """Return whether the CUDA driver finds a GPU that this process may use."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int(0)
        return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
    except (OSError, AttributeError):
        return False


def _preload() -> None:
    """Load the libraries that the bindings without libraries need, in this order, for all to see."""
    spec = importlib.util.find_spec(_RTX_LIBRARIES)
    if spec is None or spec.origin is None:
        return
    folder = os.path.dirname(os.path.abspath(spec.origin))
    for name in _RTX_NAMES:
        path = _newest(os.path.join(folder, name))
        if path is None:
            raise OSError(f"{_RTX_LIBRARIES} holds no {name}")
        try:
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            # the second library needs the first under its short name: importing the package creates that link
            importlib.import_module(_RTX_LIBRARIES)
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)


def _newest(start: str) -> Any:
    def version(path: str) -> Tuple[List[int], int]:
        return [int(part) for part in re.findall(r"\d+", path[len(start) :])], -len(path)

    return max(glob.glob(glob.escape(start) + "*"), key=version, default=None)


# TensorRT's one logger in a process: its messages are kept apart call by call, those on stderr included.
#
# TensorRT keeps the first logger that it is given for as long as the process lives, so there is one, and each call
# starts it anew. What Myelin (the compiler behind it) prints goes past the logger to descriptor 2.

_ERRORS = ("ERROR", "INTERNAL_ERROR")
# of a fused layer: its name, then the ONNX nodes that went into it
_METADATA = " metadata: [ONNX Layer:"
_MOST_ERRORS = 64
_MOST_LAYERS = 100_000
_MOST_BYTES = 1 << 28
_STDERR_BYTES = 1 << 16


class Messages:
    """The messages of one call. ``errors``: texts; ``layers``: lines that tell of fused layers; ``path``: all of it."""

    def __init__(self) -> None:
        self.errors: List[str] = []
        self.layers: List[str] = []
        self.listener: Callable[[str], None] | None = None
        self._file: TextIO | None = None
        self._written = 0
        self._stderr = 0

    def start(self, path: str | None) -> None:
        """Forget the last call; with ``path`` every message is written there (256 MiB at most)."""
        self.stop()
        self.errors.clear()
        self.layers.clear()
        self.listener = None
        self._written = 0
        self._file = None if path is None else open(path, "w", encoding="utf-8", errors="replace")
        self._stderr = _size_of_stderr()

    def stop(self) -> None:
        """Close the file; what the C library printed comes last."""
        if self._file is not None:
            self._file.writelines(f"[stderr] {line}\n" for line in self.printed())
            self._file.close()
            self._file = None

    def hear(self, severity: str, text: str) -> None:
        """Take one message; ``listener`` hears it too."""
        if self.listener is not None:
            self.listener(text)
        if severity in _ERRORS and len(self.errors) < _MOST_ERRORS:
            self.errors.append(text)
        elif _METADATA in text and len(self.layers) < _MOST_LAYERS:
            self.layers.append(text)
        if self._file is not None and self._written < _MOST_BYTES:
            self._written += len(text) + len(severity) + 4
            self._file.write(f"[{severity}] {text}\n")

    def printed(self) -> List[str]:
        """Return the lines that went to descriptor 2 meanwhile (the worker's log is a file that can be read again)."""
        try:
            end = _size_of_stderr()
            text = os.pread(2, min(end - self._stderr, _STDERR_BYTES), self._stderr)
        except (OSError, ValueError):
            return []
        return [line for line in text.decode(errors="replace").splitlines() if line.strip()]


def _size_of_stderr() -> int:
    """Return where the file ends to which the worker's stderr goes; 0 where it goes to none."""
    try:
        return os.fstat(2).st_size
    except OSError:
        return 0


_loggers: Dict[str, Any] = {}  # TensorRT's own rule: a process has one logger


def logger(library: Library) -> Any:
    """Return the process's logger; its attribute ``messages`` holds what was said."""
    if library.flavor not in _loggers:
        api = library.api

        class Logger(api.ILogger):  # type: ignore[misc,name-defined,unused-ignore]
            def __init__(self) -> None:
                api.ILogger.__init__(self)
                self.messages = Messages()

            def log(self, severity: Any, text: str) -> None:
                self.messages.hear(getattr(severity, "name", str(severity)), text)

        _loggers[library.flavor] = Logger()
    return _loggers[library.flavor]
