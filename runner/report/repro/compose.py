"""A script made of templates: of their functions and classes those that ``main`` needs, and what these import.

A template is Python source; a line that ends in ``#? name`` stays if that value is given, after ``#? !name`` if not.
Values are names in upper case.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from textwrap import indent
from typing import Any

from runner.report.repro.literal import set_to, set_together

_DEFINED = (ast.FunctionDef, ast.ClassDef)
_MARK = re.compile(r"  #\? (!?)(\w+)$")
_PACKAGES = {
    "np": ("numpy", "import numpy as np"),
    "onnx": ("onnx", "import onnx"),
    "ReferenceEvaluator": ("onnx", "from onnx.reference import ReferenceEvaluator"),
    "onnxruntime": ("onnxruntime", 'os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")\nimport onnxruntime'),
}
_WIDTH, _WIDTH_ALONE = 116, 96
_HEAD = '''"""Shows one failure of {model}: run it with `python repro.py`.

It needs {needs}.
Exit status: 1 the failure shows, 0 it does not, 2 it cannot be told here (the reason is printed).
"""
'''
_HEAD_ALONE = '''"""Shows one failure of the model that is in here: run it with `python repro.py`."""
# It needs {needs}.
# Exit status: 1 the failure shows, 0 it does not, 2 it cannot be told here (the reason is printed).
'''
_END = """if __name__ == "__main__":
    try:
        os._exit(main())  # what is not written by now cannot be
    except Exception as error:  # the exit status of a traceback is that of a failure which shows
        os._exit(say(CANNOT_TELL, repr(error)))
"""
_ONCE = "        os._exit(main())  # what is not written by now cannot be\n"
_AGAIN = """        for _ in range({times}):  # flaky: {failed} of {of} checks failed
            ended = main()
            if ended != GONE:
                break
        else:
            with contextlib.suppress(OSError):  # nobody may read it
                print("It did not show in {times} tries. {failed} of {of} checks failed when it was found:")
                print("by that rate fewer than 1 run of this script in {rarely} misses it.", flush=True)
        os._exit(ended)  # what is not written by now cannot be
"""


def compose(templates: Iterable[str], values: Mapping[str, Any], needs: Sequence[str], *, alone: bool = False) -> str:
    """Return the source of a script: what it needs of the templates, in their order, and of the values.

    ``needs``: what has to be there besides the files of the bundle, Python, and packages that are imported.
    ``alone``: the script has no files beside it, and the lines of a page.
    """
    definitions = _definitions("\n".join(line for text in templates for line in held(text, values)))
    used, waiting = {"main"}, ["main"]
    while waiting:
        name = waiting.pop()
        names = definitions[name].free - used if name in definitions else frozenset[str]()
        waiting += names
        used |= names
    imported = [found for name, found in _PACKAGES.items() if name in used]
    packages = list(dict.fromkeys(package for package, _ in imported))
    modules = sorted((used | {"os"}) & sys.stdlib_module_names)
    modules = ["importlib.util" if name == "importlib" else name for name in modules]
    head = [f"import {', '.join(modules)}"] if alone else [f"import {name}" for name in modules]
    statements = [text for _, text in imported]
    if alone:
        head += _short_imports(statements) if statements else [""]
    else:
        head += ["from pathlib import Path", *_imports(statements, child=bool(values["child"]))]
    constants = {name.upper(): value for name, value in {**values, "packages": packages}.items()}
    constants = {name: value for name, value in constants.items() if name in used}
    head += set_together(constants, _WIDTH_ALONE) if alone else (set_to(*one, _WIDTH) for one in constants.items())
    head += [*([] if alone else ["HERE = Path(__file__).resolve().parent"]), "SHOWS, GONE, CANNOT_TELL = 1, 0, 2"]
    body = [one.text for name, one in definitions.items() if name in used]
    beside = [] if alone else ["the files beside it"]
    told = [*beside, "Python >= 3.8", *packages, *needs]
    said = (_HEAD_ALONE if alone else _HEAD).format(
        model=values["model"], needs=f"{', '.join(told[:-1])} and {told[-1]}"
    )
    end = _END.replace(_ONCE, _AGAIN.format_map(values["flaky"])) if values.get("flaky") else _END
    return ("\n\n" if alone else "\n\n\n").join(["\n".join([said, *head]), *body, end])


def _short_imports(statements: Sequence[str]) -> list[str]:
    """Return the lines that import packages in the child: an error ends this before it has said anything."""
    lines = [line for statement in statements for line in statement.splitlines()]
    plain = [line for line in lines if line.startswith("import ")]
    others = [line for line in lines if line not in plain]
    together = "import " + ", ".join(line.partition(" ")[2] for line in plain)
    return ['if sys.argv[1:] == ["--judge"]:', *(f"    {line}" for line in [*others, together]), ""]


def _imports(statements: Sequence[str], *, child: bool) -> list[str]:
    """Return the lines that import packages: in the child, which a library that is broken may take down."""
    if not statements:
        return [""]
    told = 'print("cannot tell:", ascii(str(error)), flush=True)'
    lines = ["try:", *indent("\n".join(statements), "    ").splitlines(), "except Exception as error:"]
    if child:
        lines += [f"    {told}", "    sys.exit(82)"]
        lines = ['if sys.argv[1:2] == ["--judge"]:', *indent("\n".join(lines), "    ").splitlines()]
    else:
        lines += ["    try:", f"        {told}", "    finally:", "        os._exit(2)"]
    return ["", *lines, ""]


def held(template: str, values: Mapping[str, Any]) -> list[str]:
    """Return the lines of a template that stay with these values."""
    marked = [(line, _MARK.search(line)) for line in template.splitlines()]
    return [_MARK.sub("", line) for line, mark in marked if not mark or bool(values.get(mark[2])) is not bool(mark[1])]


@dataclass(frozen=True)
class _Definition:
    """``free``: the names that it takes from outside of it."""

    text: str
    free: frozenset[str]


@lru_cache(maxsize=1)  # a run makes two scripts that differ in a path
def _definitions(source: str) -> Mapping[str, _Definition]:
    """Return the functions and classes of a source by their names, in its order."""
    lines, nodes = source.split("\n"), [node for node in ast.parse(source).body if isinstance(node, _DEFINED)]
    return {node.name: _Definition(_text(node, lines), _free(node)) for node in nodes}


def _free(definition: ast.AST) -> frozenset[str]:
    names, bound = set[str](), set[str]()
    for one in ast.walk(definition):
        if isinstance(one, ast.Name):
            (bound if isinstance(one.ctx, ast.Store) else names).add(one.id)
        elif isinstance(one, ast.arg):
            bound.add(one.arg)
        elif isinstance(one, ast.Import):
            bound.update(alias.asname or alias.name for alias in one.names)
        elif isinstance(one, _DEFINED) and one is not definition:
            bound.add(one.name)
    return frozenset(names - bound)


def _text(node: ast.FunctionDef | ast.ClassDef, lines: Sequence[str]) -> str:
    first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    return "\n".join(lines[first - 1 : node.end_lineno])
