"""Functions of a program as files that workers run: by value, so that lambdas, closures and notebook cells work.

What a worker gets is a Python file of the run's own folder, as of ``checker=python``. It holds the function as
cloudpickle writes it; only the process that was given the function writes such a file, and only its workers read it.
"""

from __future__ import annotations

import ast
import base64
import dis
import functools
import hashlib
import inspect
import io
import json
import keyword
import os
import pickletools
import re
import sys
import textwrap
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any

import cloudpickle

from runner.checkers.command_template import digests
from runner.exit_codes import UsageError
from runner.report.bundled_check_files import BY_VALUE, DATA_OPENED

PATHS = "paths.json"
"""Beside the files: the folders in which the program finds modules. It is handed on to nobody."""
_FILE = """\
{source}
{mark}
\"\"\"The {key} that a program gave to winnow, which wrote this file.

Python {python} reads it, and no other version, with the package cloudpickle (written with {cloudpickle}).
{modules}\"\"\"

import hashlib
import json
import os
import pickle
import sys
import zlib
from base64 import b85decode

if sys.version_info[:2] != {version}:
    raise ImportError("it was written by Python %d.%d, and other versions cannot read it" % {version})
HERE = os.path.dirname(os.path.abspath(__file__))
if os.path.isfile(os.path.join(HERE, {paths!r})):
    # what the function imports lies where the program found it
    with open(os.path.join(HERE, {paths!r})) as file:
        sys.path.extend(path for path in json.load(file) if path not in sys.path)
{content}
if hashlib.sha256(WRITTEN).hexdigest() != {digest!r}:
    raise ImportError("the function's data is not what winnow wrote: the file is incomplete or was changed")
GIVEN = pickle.loads(zlib.decompress(WRITTEN))


def {name}({parameters}):
    {returns}GIVEN({parameters})
"""
_INSIDE = """\
WRITTEN = b85decode(\"\"\"
{lines}
\"\"\".replace("\\n", ""))"""
_BESIDE = """\
try:
    with {opened} as file:
        WRITTEN = file.read()
except FileNotFoundError:
    raise ImportError("its {size} bytes lie in {file}, in the folder given/ of the run: put that beside")"""
_PARAMETERS = {"check": "model, inputs, expected", "inputs": ""}
_TAKEN = frozenset({"b85decode", "file", "hashlib", "json", "os", "pickle", "sys", "zlib", "HERE", "WRITTEN", "GIVEN"})
_WIDTH = 120
#: bytes of a function that stand in its file; one that closes over more has them beside it
_MOST_INSIDE = 1 << 16
_OF_A_KERNEL = re.compile(r"(?<=/)ipykernel_\d+(?=/)")
_LINES = re.compile(r"\r\n?|\n")
# cloudpickle keeps one list, for all threads, of modules whose functions it writes by value
_BY_VALUE = threading.Lock()


@dataclass(frozen=True)
class FunctionFile:
    """A function as the ``text`` of a Python file, with the content of what has to lie ``beside`` it, by names."""

    text: str
    beside: Mapping[str, bytes]


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Writes the same for a module that was compiled just now and for one whose bytecode was read.

    These differ in whether the file's name in a function is the very object that its module has. The names of a
    notebook's cells have the number of a process in them, which goes.
    """

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self._names: dict[str, str] = {}

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, CodeType):
            return super().reducer_override(obj)
        name = _OF_A_KERNEL.sub("ipykernel", obj.co_filename)
        copied = self._names.setdefault(name, name.encode("utf-8", "surrogatepass").decode("utf-8", "surrogatepass"))
        return self.dispatch_table[CodeType](obj.replace(co_filename=copied))


def name_of(function: Callable[..., Any], key: str) -> str:
    """Return what ``function`` is called in its file: as in the program, or ``key`` where that has no name for it."""
    plain = function if inspect.isbuiltin(function) else _plain(function)
    name = str(getattr(plain, "__name__", ""))
    fits = name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_") and name not in _TAKEN
    return name if fits else key


def confirm_parameters(function: Callable[..., Any], key: str) -> None:
    """Raise UsageError for what is no function, or one that cannot be called with what it would be given."""
    if isinstance(function, type):
        raise UsageError(f"{key}: the class {function.__name__} is no function. Give one, or an object with __call__")
    wanted = [name for name in _PARAMETERS[key].split(", ") if name]
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # of a built-in function nothing is known
    try:
        signature.bind(*wanted)
    except TypeError as error:
        raise UsageError(
            f"{key}: {name_of(function, key)}{signature} cannot be called ({error}): it is called as "
            f"{key}({_PARAMETERS[key]})"
        ) from None


def file_of(function: Callable[..., Any], key: str) -> FunctionFile:
    """Return a Python file in which a function of the same name (`name_of`) does what ``function`` does.

    ``key``: what the function was given as, check or inputs. The file is another one for another function: its code,
    what it closes over, what it uses of its own module and the digests of the program's other modules that it uses are
    in it. Raises UsageError for one that cannot be sent to another process.
    """
    own = getattr(_plain(function), "__module__", None) or ""
    try:
        with _by_value(sys.modules.get(own)):
            _Pickler(written := io.BytesIO()).dump(function)
    except Exception as error:
        raise UsageError(
            f"{key}: the function cannot be sent to a worker ({type(error).__name__}: {error}). Let it make inside "
            "what it needs (a session, a file, a lock)"
        ) from error
    pickled = written.getvalue()
    content = zlib.compress(pickled, 1)
    digest = hashlib.sha256(content).hexdigest()
    if len(content) > _MOST_INSIDE:
        file = f"{key}-{digest[:16]}.bin"
        beside = {file: content}
        data = _BESIDE.format(opened=DATA_OPENED.format(file=file), file=file, size=len(content))
    else:
        beside, encoded = {}, base64.b85encode(content).decode()
        data = _INSIDE.format(lines="\n".join(encoded[at : at + _WIDTH] for at in range(0, len(encoded), _WIDTH)))
    modules = digests({*_named(pickled), *_imports(function)} - {own, "__main__"})
    text = _FILE.format(
        source=_source(function),
        mark=BY_VALUE,
        key=key,
        name=name_of(function, key),
        python="{}.{}".format(*sys.version_info),
        cloudpickle=cloudpickle.__version__,
        modules="\nIt imports modules of that program:\n" * bool(modules)
        + "".join(f"    {name} (sha256 {digest_of_it})\n" for name, digest_of_it in modules.items()),
        version=tuple(sys.version_info[:2]),
        paths=PATHS,
        content=data,
        digest=digest,
        parameters=_PARAMETERS[key],
        returns="" if key == "check" and returns_nothing(function) else "return ",
    )
    return FunctionFile(text, beside)


def paths() -> bytes:
    """Return the content of the file `PATHS`: no folder of the interpreter's own, which a worker has as well."""
    own = (sys.prefix + os.sep, sys.base_prefix + os.sep)
    folders = (os.path.abspath(entry) for entry in sys.path)  # noqa: PTH100 - of "", too
    found = [one for one in folders if os.path.isdir(one) and not one.startswith(own)]  # noqa: PTH112
    return json.dumps(found, indent=1).encode()


def _text(function: Callable[..., Any]) -> str:
    """Return the source of a function; nothing where there is none."""
    try:
        return textwrap.dedent(inspect.getsource(_plain(function))).rstrip()
    except (OSError, TypeError, SyntaxError, IndexError):
        return ""


def _source(function: Callable[..., Any]) -> str:
    """Return the source of a function, each line of it as a comment."""
    lines = _LINES.split(_text(function) or "(a function without source)")
    return "\n".join(f"# {line}".rstrip() for line in lines).encode("utf-8", "replace").decode()


def _named(pickled: bytes) -> Iterator[str]:
    """Yield the loaded modules that something pickled names."""
    return (word for _, word, _ in pickletools.genops(pickled) if isinstance(word, str) and word in sys.modules)


def _imports(function: Callable[..., Any]) -> Iterator[str]:
    """Yield what a function imports itself."""
    pending = [getattr(_plain(function), "__code__", None)]
    while pending:
        code = pending.pop()
        if isinstance(code, CodeType):
            yield from (step.argval for step in dis.get_instructions(code) if step.opname == "IMPORT_NAME")
            pending += code.co_consts


def returns_nothing(function: Callable[..., Any]) -> bool:
    """Whether a function has no statement that returns something; where it cannot be told, it has."""
    try:
        made = ast.parse(_text(function)).body[0]
    except (SyntaxError, ValueError, IndexError):
        return False
    returns = (
        one.value is not None if isinstance(one, ast.Return) else isinstance(one, ast.Yield | ast.YieldFrom)
        for one in ast.walk(made)
    )  # a call of a generator only makes it
    return isinstance(made, ast.FunctionDef) and not any(returns)


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
