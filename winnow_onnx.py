"""Winnow by a name that nobody else has: ``import winnow_onnx as winnow``, and the scripts ``winnow``, ``winnow-onnx``.

Winnow's packages are called runner, strategies and conf, as others may be: a project's on PYTHONPATH, say. Found from
here, they are Winnow's, whatever else is on the path. What a program may use of it is said in docs/python.md.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runner.api import *  # noqa: F403 - for type checkers; when run, a name is looked for when it is asked for


def __getattr__(name: str) -> Any:
    """Return what `runner.api` calls ``name``. Raises ImportError where another package called runner was imported."""
    if name.startswith("__") and name != "__all__":
        raise AttributeError(name)
    sys.path.insert(0, _OURS)
    try:
        for package in map(importlib.import_module, ("runner", "strategies", "conf")):
            if getattr(package, "DISTRIBUTION", "") != "winnow-onnx":
                raise ImportError(
                    f"{package.__name__} was imported from {package.__file__}, and Winnow has a package of this name. "
                    "Import winnow_onnx first, or run Winnow as a program of its own: winnow"
                )
        return getattr(importlib.import_module("runner.api"), name)
    finally:
        sys.path.remove(_OURS)


def __dir__() -> list[str]:
    return list(__getattr__("__all__"))


_OURS = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 - nothing is loaded yet


def main() -> None:
    """Run Winnow's command line, and exit with its code."""
    sys.path.insert(0, _OURS)
    try:
        from runner.__main__ import main as start  # noqa: PLC0415 - only now that it is found
    finally:
        del sys.path[0]
    start()


if __name__ == "__main__":
    main()
