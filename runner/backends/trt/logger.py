"""TensorRT's one logger in a process: its messages are kept apart call by call, those on stderr included.

TensorRT keeps the first logger that it is given for as long as the process lives, so there is one, and each call
starts it anew. What Myelin (the compiler behind it) prints goes past the logger to descriptor 2.
"""

# runs under Python 3.8 (and so without subscripted builtins)
# ruff: noqa: UP006, UP035, PTH123, SIM115
from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, TextIO

from runner.backends.trt.library import Library

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
