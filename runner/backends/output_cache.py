"""Outputs that this process holds in its memory and has not written: the operation ``write_held`` writes some of them.

Arguments: ``paths``: of the files. What is written is let go of; ``let_go``: all others as well.
"""

# runs under Python 3.8 (and so without subscripted builtins)
# ruff: noqa: UP006, UP035, PTH123
from __future__ import annotations

import contextlib
import resource
from typing import Any, Dict, List

from runner.backends import tensor_files


class _Held:
    """The pieces of files that are not written, by path; ``bytes``: of all of them.

    ``before``: bytes of memory that this process had when it held nothing.
    """

    def __init__(self) -> None:
        self.pieces: Dict[str, List[Any]] = {}
        self.bytes = 0
        self.before = 0


_held = _Held()  # as long as the process: what asks for them is a later request


def begin() -> None:
    """Note the memory that this process has, if it holds nothing yet."""
    if not _held.pieces:
        _held.before = _own_memory()


def grown() -> int:
    """Return the bytes that this process has more than when it held nothing: a runtime gives its own back as one."""
    return _own_memory() - _held.before


def hold(path: str, pieces: List[Any], size: int, limit: int) -> bool:
    """Hold the pieces of a file of ``size`` bytes; whether that leaves no more than ``limit`` bytes held."""
    if _held.bytes + size > limit:
        return False
    _held.pieces[path] = pieces
    _held.bytes += size
    return True


def let_go(path: str, *, write: bool) -> None:
    """Hold a file no longer, which is written first if ``write``."""
    if write:
        tensor_files.write_pieces(_held.pieces[path], path)
    _held.bytes -= sum(map(len, _held.pieces.pop(path)))


def write_held(args: Dict[str, Any]) -> Dict[str, Any]:
    """Write the files that are held of ``args["paths"]``; nothing is said of others."""
    for path in args["paths"]:
        if path in _held.pieces:
            let_go(path, write=True)
    for path in [*_held.pieces] if args.get("let_go") else []:
        let_go(path, write=False)
    return {}


def _own_memory() -> int:
    """Return the bytes of memory of this process that are in no file; 0 where the system does not tell."""
    with contextlib.suppress(OSError), open("/proc/self/statm") as file:
        resident, in_files = file.read().split()[1:3]
        return (int(resident) - int(in_files)) * resource.getpagesize()
    return 0
