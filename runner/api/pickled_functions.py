"""Functions of a program as files that workers run: by value, so that lambdas, closures and notebook cells work.

What a worker gets is a Python file of the run's own folder, as of ``checker=python``. It holds the function as
cloudpickle writes it; only the process that was given the function writes such a file, and only its workers read it.
"""

from __future__ import annotations

import base64
import dis
import functools
import inspect
import keyword
import os
import sys
import textwrap
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import cloudpickle

from runner.errors import UsageError

_FILE = '''\
"""The {key} that a program gave to winnow, which wrote this file; to read it takes the package cloudpickle."""

import base64
import pickle
import sys
import zlib

if sys.version_info[:2] != {version}:
    raise ImportError("it was written by Python %d.%d, and other versions cannot read it" % {version})
# what the function imports lies where the program found it
sys.path.extend(path for path in {folders!r} if path not in sys.path)
_GIVEN = pickle.loads(zlib.decompress(base64.b85decode("""
{content}
""".replace("\\n", ""))))


def {name}({parameters}):
    {returns}_GIVEN({parameters})
'''
_PARAMETERS = {"check": "model, inputs, expected", "inputs": ""}
_TAKEN = frozenset({"base64", "pickle", "sys", "zlib"})
_WIDTH = 120
# a call of these only makes a generator or a coroutine
_BEGUN = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
# cloudpickle keeps one list, for all threads, of modules whose functions it writes by value
_BY_VALUE = threading.Lock()


def name_of(function: Callable[..., Any], key: str) -> str:
    """Return what ``function`` is called in its file: as in the program, or ``key`` where that has no name for it."""
    plain = function if inspect.isbuiltin(function) else _plain(function)
    name = str(getattr(plain, "__name__", ""))
    fits = name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_") and name not in _TAKEN
    return name if fits else key


def source_of(function: Callable[..., Any], key: str) -> str:
    """Return a Python file in which a function of the same name (`name_of`) does what ``function`` does.

    ``key``: what the function was given as, check or inputs. The file is another one for another function: its code,
    what it closes over and what it uses of its own module are in it. Raises UsageError for one that cannot be sent to
    another process.
    """
    try:
        with _by_value(sys.modules.get(getattr(_plain(function), "__module__", None) or "")):
            written = cloudpickle.dumps(function)
    except Exception as error:
        raise UsageError(
            f"{key}: the function cannot be sent to a worker ({type(error).__name__}: {error}). Let it make inside "
            "what it needs (a session, a file, a lock), or run the check in this process: in_process=True"
        ) from error
    content = base64.b85encode(zlib.compress(written, 1)).decode()
    return _FILE.format(
        key=key,
        name=name_of(function, key),
        version=tuple(sys.version_info[:2]),
        folders=[*_folders()],
        content="\n".join(textwrap.wrap(content, _WIDTH, break_on_hyphens=False)),
        parameters=_PARAMETERS[key],
        returns="" if key == "check" and returns_nothing(function) else "return ",
    )


def returns_nothing(function: Callable[..., Any]) -> bool:
    """Whether a function has no statement that returns a value; where it cannot be told, it has."""
    code = getattr(_plain(function), "__code__", None)
    if code is None or code.co_flags & _BEGUN:
        return False
    steps = [*dis.get_instructions(code)]
    returns = [number for number, step in enumerate(steps) if step.opname in ("RETURN_VALUE", "RETURN_CONST")]
    if any(steps[number].opname == "RETURN_VALUE" and steps[number].is_jump_target for number in returns):
        return False  # what it returns was loaded elsewhere
    # some versions of Python have an instruction that returns a constant, all others load it first
    what = [steps[number - (steps[number].opname == "RETURN_VALUE")] for number in returns]
    return all(step.opname in ("LOAD_CONST", "RETURN_CONST") and step.argval is None for step in what)


def _plain(function: Any) -> Any:
    """Return the function in a partial, a method or an object that can be called."""
    while isinstance(function, functools.partial):
        function = function.func
    if not hasattr(function, "__code__") and not hasattr(function, "__func__") and not isinstance(function, type):
        function = getattr(type(function), "__call__", function)  # noqa: B004 - it is the method that is wanted
    return getattr(function, "__func__", function)


@contextmanager
def _by_value(module: ModuleType | None) -> Iterator[None]:
    """Have the functions of ``module`` written by value inside: a worker need not find it, and sees it as it is now."""
    with _BY_VALUE:
        new = module is not None and module.__name__ not in cloudpickle.list_registry_pickle_by_value()
        if new:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            if new:
                cloudpickle.unregister_pickle_by_value(module)


def _folders() -> Iterator[str]:
    """Yield where this program finds modules, without what belongs to the interpreter: a worker has that as well."""
    for entry in sys.path:
        folder = os.path.abspath(entry)  # noqa: PTH100 - of "", too
        if os.path.isdir(folder) and not folder.startswith((sys.prefix + os.sep, sys.base_prefix + os.sep)):  # noqa: PTH112
            yield folder
