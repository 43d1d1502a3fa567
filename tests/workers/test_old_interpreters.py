"""What runs under the user's interpreter runs under Python 3.8: what newer ones alone can read is nowhere in it."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.workers.worker_main import OPERATIONS
from tests.harness import ROOT
from tests.test_architecture import SOURCES, graph

# operations of Winnow's own interpreter alone; the others are asked of the target's
_OWN = ("runner.model", "runner.jobs")
_BUILTINS = frozenset({"dict", "frozenset", "list", "set", "tuple", "type"})
_YOUNGER = frozenset({"removeprefix", "removesuffix", "bit_count", "is_relative_to", "hardlink_to", "pairwise"})
# the libraries that a worker imports need not be there: anything may be taken from these
_IMPORT = """
import importlib, sys, types
class Anything(type):
    def __getattr__(cls, name): return cls
    def __getitem__(cls, key): return cls
    def __call__(cls, *args, **named): return cls
    def __iter__(cls): return iter(())
    def __or__(cls, other): return cls
    __sub__ = __add__ = __truediv__ = __mul__ = __pow__ = __or__
class Library(types.ModuleType):
    __path__ = []
    def __getattr__(self, name):
        if name.startswith("__"): raise AttributeError(name)
        return Anything("Anything", (), {})
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numpy", "onnx", "google", "ml_dtypes", "onnxruntime"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
    def create_module(self, spec): return Library(spec.name)
    def exec_module(self, module): pass
import importlib.machinery
sys.meta_path.insert(0, Finder())
sys.path.insert(0, sys.argv[1])
import worker_main
worker_main._own_packages()
for name in sys.argv[2:]:
    importlib.import_module(name)
"""


def loaded() -> list[str]:
    """The modules that an interpreter other than Winnow's own may load, whenever they are imported."""
    edges, found = graph(), set[str]()
    left = ["runner.workers.worker_main", "runner.workers.fork_server_main"]
    left += [module for told, *_ in OPERATIONS.values() if not (module := told.partition(":")[0]).startswith(_OWN)]
    while left:
        if (name := left.pop()) not in found:
            found.add(name)
            left += edges[name]
    return sorted(found)


def at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is evaluated while a module is imported, which annotations are not."""
    for child in ast.iter_child_nodes(node):
        kept: list[ast.AST | None] = [child]
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            kept = [*child.decorator_list, *child.args.defaults, *child.args.kw_defaults]
        elif isinstance(child, ast.AnnAssign):
            kept = [child.value]
        for one in filter(None, kept):
            yield one
            yield from at_import(one)


def too_young(tree: ast.Module) -> Iterator[ast.AST]:
    for node in at_import(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            kinds = (node.left, node.right)
            if any(isinstance(one, ast.Subscript) or getattr(one, "value", 0) is None for one in kinds):
                yield node
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in _BUILTINS:
            yield node
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _YOUNGER:
            yield node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "zip" and node.keywords:
                yield node
            if node.func.id in ("isinstance", "issubclass"):
                yield from (one for one in node.args[1:] if isinstance(one, ast.BinOp))


def test_nothing_is_younger_than_python_3_8() -> None:
    names = loaded()
    assert "runner.backends.onnxruntime" in names and "runner.model.values.dtypes" in names
    found = {
        f"{name}:{getattr(node, 'lineno', 0)}: {ast.unparse(node)}"
        for name in names
        for node in too_young(ast.parse(SOURCES[name].read_text()))
    }
    assert not sorted(found)
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--target-version=py38", "--select=F,E9", "--no-cache"]
    done = subprocess.run([*ruff, *(str(SOURCES[name]) for name in names)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("version", ["3.8", "3.9"])
def test_an_old_interpreter_imports_it_all(version: str) -> None:
    places = [*Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), shutil.which(f"python{version}")]
    # a version manager may leave a command behind that only says that there is no such version
    runs = (
        one
        for one in filter(None, places)
        if subprocess.run([one, "-V"], capture_output=True, check=False).returncode == 0
    )
    python = next(runs, None)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    done = subprocess.run(
        [str(python), "-c", _IMPORT, str(ROOT / "runner" / "workers"), *loaded()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
