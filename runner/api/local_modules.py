"""The modules of a program that a function imports: what is neither the interpreter's nor an installed package's.

A worker imports them from their files, so another state of one of them is another function. They are found in the text
of the files, not by what happens to be loaded: every process finds the same.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

_INSTALLED = frozenset({"site-packages", "dist-packages"})
_STANDARD = tuple({os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")})
#: the versions of these are part of every run
_OURS = frozenset({"runner", "strategies", "conf"})


def digests(names: Iterable[str]) -> dict[str, str]:
    """Return the digests of the local modules among ``names``, and of those that these import, by their names."""
    found: dict[str, str] = {}
    pending, seen = [*names], set[str]()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        if "." in name:
            pending.append(name.rpartition(".")[0])
        spec = _spec(name)
        if spec is None or spec.origin is None or not _local(spec.origin) or name.partition(".")[0] in _OURS:
            continue
        try:
            content = Path(spec.origin).read_bytes()
        except OSError:
            continue
        found[name] = hashlib.sha256(content).hexdigest()
        if spec.origin.endswith(".py"):
            pending += _imported(content, spec.parent or "")
    return dict(sorted(found.items()))


def _spec(name: str) -> ModuleSpec | None:
    """Return where a module lies, without loading anything."""
    loaded = getattr(sys.modules.get(name), "__spec__", None)
    if isinstance(loaded, ModuleSpec):
        return loaded
    parent = name.rpartition(".")[0]
    package = _spec(parent) if parent else None
    if parent and (package is None or package.submodule_search_locations is None):
        return None
    places = None if package is None else list(package.submodule_search_locations or ())
    try:
        return PathFinder.find_spec(name, places)
    except (ImportError, ValueError, OSError):
        return None


def _local(origin: str) -> bool:
    real = os.path.realpath(origin)
    return os.path.isfile(real) and not real.startswith(_STANDARD) and _INSTALLED.isdisjoint(Path(real).parts)  # noqa: PTH113


def _imported(content: bytes, package: str) -> Iterator[str]:
    """Yield the names of modules (and of what may be one) that a file of ``package`` imports anywhere in it."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            try:
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            except ImportError:
                continue
            yield from (base, *(f"{base}.{one.name}" for one in node.names))
