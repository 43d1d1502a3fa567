"""Outputs that this process holds in its memory and has not written: the operation ``write_held`` writes some of them.

Arguments: ``paths``: of the files. What is written is let go of.
"""

# runs under Python 3.8 (and so without subscripted builtins)
# ruff: noqa: UP006, UP035
from __future__ import annotations

from typing import Any, Dict, List

from runner.backends.values import tensor_proto


class _Held:
    """The pieces of files that are not written, by path; ``bytes``: of all of them."""

    def __init__(self) -> None:
        self.pieces: Dict[str, List[Any]] = {}
        self.bytes = 0


_held = _Held()  # as long as the process: what asks for them is a later request


def hold(path: str, pieces: List[Any], size: int, limit: int) -> bool:
    """Hold the pieces of a file of ``size`` bytes; whether that leaves no more than ``limit`` bytes held."""
    if _held.bytes + size > limit:
        return False
    _held.pieces[path] = pieces
    _held.bytes += size
    return True


def write_held(args: Dict[str, Any]) -> Dict[str, Any]:
    """Write the files that are held of ``args["paths"]``; nothing is said of others."""
    for path in args["paths"]:
        if path in _held.pieces:
            tensor_proto.write_pieces(_held.pieces[path], path)
            _held.bytes -= sum(map(len, _held.pieces.pop(path)))
    return {}
