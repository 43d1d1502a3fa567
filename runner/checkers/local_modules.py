"""The modules that a check imports: what is neither the interpreter's nor an installed package's.

Another state of one of them is another check. They are found in the text of the files, not by what happens to be
loaded: every process finds the same.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from runner.files import read_plain, sha256_of

_INSTALLED = frozenset({"site-packages", "dist-packages"})
_STANDARD = (os.path.realpath(os.path.dirname(os.__file__)) + os.sep,)  # noqa: PTH120 - a prefix of texts
#: the versions of these are part of every run
_OURS = frozenset({"runner", "strategies", "conf"})
# a longer script is not read to its end
_LARGEST = 1 << 20


def digests(names: Iterable[str]) -> dict[str, str]:
    """Return the digests of the local modules among ``names``, and of those that these import, by their names."""
    return {name: sha256_of(path) for name, path in local(names).items()}


def imported(script: Path, places: Sequence[str | Path]) -> dict[str, Path]:
    """Return the files of the local modules that a script imports, and of those that these import, by their names.

    ``places``: the folders in which its interpreter looks for what is not installed.
    """
    text = read_plain(script, _LARGEST)
    if script.suffix != ".py" and not re.match(rb"#!.*python", text):
        return {}
    return local(_imported(text, ""), places)


def search_path(environment: Mapping[str, str], cwd: Path) -> tuple[Path, ...]:
    """Return the folders that PYTHONPATH names; ``cwd``: where the interpreter is started."""
    given = environment.get("PYTHONPATH", "")
    return tuple(cwd / place for place in given.split(os.pathsep)) if given else ()


def local(names: Iterable[str], places: Sequence[str | Path] | None = None) -> dict[str, Path]:
    """Return the files of the local modules among ``names``, and of those that these import, by their names.

    ``places``: where they are looked for, None: where this process does.
    """
    found: dict[str, Path] = {}
    pending, seen = [*names], set[str]()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        if "." in name:
            pending.append(name.rpartition(".")[0])
        spec = _spec(name, places)
        if spec is None or spec.origin is None or not _local(spec.origin) or name.partition(".")[0] in _OURS:
            continue
        found[name] = Path(spec.origin)
        if spec.origin.endswith(".py"):
            pending += _imported(read_plain(found[name]), spec.parent or "")
    return dict(sorted(found.items()))


def _spec(name: str, start: Sequence[str | Path] | None) -> ModuleSpec | None:
    """Return where a module lies, without loading anything."""
    loaded = getattr(sys.modules.get(name), "__spec__", None) if start is None else None
    if isinstance(loaded, ModuleSpec):
        return loaded
    parent = name.rpartition(".")[0]
    package = _spec(parent, start) if parent else None
    if parent and (package is None or package.submodule_search_locations is None):
        return None
    own = None if start is None else [os.fspath(place) for place in start]
    places: list[str] | None = own if package is None else list(package.submodule_search_locations or ())
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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
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
