"""The operations ``user_check`` and ``user_inputs``: functions from a Python file that the user named."""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PTH100, PTH103, PTH118, PTH120, PTH123
from __future__ import annotations

import ast
import hashlib
import os
import sys
import traceback
import types
from typing import Any, Callable, Dict, List

from runner.backends import tensor_files
from runner.backends.errors import StageError
from runner.backends.numpy_arrays import from_array, from_python, to_python

_JSON = (bool, int, float, str, type(None))


def _function(path: str, name: str) -> Callable[..., Any]:
    """Load a file and return its function. A file that has not changed is loaded once: it may hold a golden model."""
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        raise StageError("setup", "NoSuchFile", f"file={path}: {error.strerror}") from error
    digest = hashlib.sha256(os.path.abspath(path).encode() + b"\0" + source).hexdigest()[:16]
    module_name = f"_user_{digest}"
    module = sys.modules.get(module_name)
    if module is None:
        folder = os.path.dirname(os.path.abspath(path))
        if folder not in sys.path:
            # as if it had been started as a script: it may import what lies beside it
            sys.path.insert(0, folder)
        if not path.endswith(".py"):
            raise StageError("setup", "NotPython", f"file={path} is not a Python file (its name must end in .py)")
        module = types.ModuleType(module_name)
        module.__file__ = path
        sys.modules[module_name] = module
        try:
            # not through importlib, which may take cached bytecode of another state of the file, and writes some
            exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)  # noqa: S102
        except BaseException as error:
            del sys.modules[module_name]
            if isinstance(error, (Exception, SystemExit)):
                message = f"file={path} cannot be imported: {type(error).__name__}: {error}"
                raise StageError("setup", type(error).__name__, message) from error
            raise
    function = getattr(module, name, None)
    if not callable(function):
        names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        listed = ", ".join(sorted(names)) or "none"
        raise StageError("setup", "NoSuchFunction", f"function={name} is not in {path}; functions there: {listed}")
    return function  # type: ignore[no-any-return]


def _arrays(sample: Dict[str, str], structures: Dict[str, Any]) -> Dict[str, Any]:
    return {name: to_python(tensor_files.read_container(path, structures.get(name))) for name, path in sample.items()}


def user_check(args: Dict[str, Any]) -> Dict[str, Any]:
    """Call ``function(model, inputs, expected)`` and return {"result": bool | str | number | dict | None}.

    Where the function raises: {"raised": its traceback, from the function on}. None: it returned nothing, and has no
    statement that returns anything, so that it judges by what it raises.

    ``inputs`` and ``expected``: a list with one {name: array} for each sample; ``args["structures"]`` says of what is
    no tensor what it is (a sequence is a list of arrays, an optional without a value None).
    Raises TypeError if it returns anything else.
    """
    function = _function(args["file"], args["function"])
    structures = args.get("structures") or {}
    inputs = [_arrays(sample, structures) for sample in args["samples"]]
    expected = [_arrays(sample, structures) for sample in args.get("expected") or []]
    try:
        result = function(args["model"], inputs, expected)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - what it means is not for this process to say
        trace = error.__traceback__.tb_next if error.__traceback__ else None
        if isinstance(error, TypeError) and trace is None:  # it takes other arguments
            error.args = (f"{error}. Winnow calls {args['function']}(model, inputs, expected)",)
        raised = "".join(traceback.format_exception(type(error), error.with_traceback(trace), trace))
        sys.stderr.write(raised)  # a check's log
        return {"raised": raised}
    if result is None and not _returns(args["file"], args["function"]):
        return {"result": None}
    return {"result": _result(result, args["function"])}


def _returns(path: str, name: str) -> bool:
    """Whether a function has a statement that returns something; where it cannot be told, it has."""
    with open(path, "rb") as file:
        tree = ast.parse(file.read())
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    return not found or any(isinstance(node, ast.Return) for node in ast.walk(found[-1]))


def _result(result: Any, name: str) -> Any:
    if hasattr(result, "item") and getattr(result, "size", 0) == 1:
        result = result.item()
    if isinstance(result, (str, int, float)):
        return result
    if isinstance(result, dict):
        return _plain(result)
    message = f"{name} returned {type(result).__name__}: it has to return True or False, a number, a string or a dict"
    raise TypeError(message)


def _plain(value: Any) -> Any:
    """Return plain JSON types: numpy's scalars and arrays as numbers and lists, anything else as text."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return value if isinstance(value, _JSON) else str(value)


def user_inputs(args: Dict[str, Any]) -> Dict[str, Any]:
    """Call ``function()``, an iterable of {name: array} (or one such dict), and write the values into ``out``.

    ``args["structures"]`` says of what is to be no tensor what it is to be.
    """
    structures = args.get("structures") or {}
    function = _function(args["file"], args["function"])
    made = function()
    if isinstance(made, dict):
        made = [made]
    samples: List[Dict[str, Any]] = []
    os.makedirs(args["out"], exist_ok=True)
    for number, sample in enumerate(made):
        if not isinstance(sample, dict):
            raise TypeError(
                f"{args['function']} gave {type(sample).__name__} as sample {number}: each has to be a dict"
            )
        entry = {}
        for index, (name, value) in enumerate(sample.items()):
            path = os.path.join(args["out"], f"{number}_{index}.pb")
            try:
                structure = structures.get(name)
                held = from_array(value) if structure is None else from_python(value, structure)
                entry[str(name)] = tensor_files.write_container(held, structure, str(name), path)
            except TypeError as error:
                raise TypeError(f"{args['function']}: sample {number}, {name!r}: {error}") from error
        samples.append(entry)
    if not samples:
        raise ValueError(f"{args['function']} gave no sample")
    return {"samples": samples}
