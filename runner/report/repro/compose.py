"""A script made of templates: of their functions and classes those that ``main`` needs, and what these import.

A template is Python source; a line that ends in ``#? name`` stays if that value is given, after ``#? !name`` if not.
Values are names in upper case.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from runner.report.repro.literal import set_together

_DEFINED = (ast.FunctionDef, ast.ClassDef)
_MARK = re.compile(r"  #\? (!?)(\w+)$")
_PACKAGES = {
    "np": ("numpy", "import numpy as np"),
    "onnx": ("onnx", "import onnx"),
    "ReferenceEvaluator": ("onnx", "from onnx.reference import ReferenceEvaluator"),
    "onnxruntime": ("onnxruntime", 'os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")\nimport onnxruntime'),
}
_WIDTH = 96
_HEAD = '''"""Shows one failure of {shown}: run it with `python repro.py`."""
{needs}
# Exit status: 1 the failure shows, 0 it does not, 2 it cannot be told here (the reason is printed).
'''
_END = """if __name__ == "__main__":
    try:
        os._exit(main())  # what is not written by now cannot be
    except Exception as error:  # the exit status of a traceback is that of a failure which shows
        os._exit(say(CANNOT_TELL, "%s: %s" % (type(error).__name__, error)))
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


def compose(templates: Iterable[str], values: Mapping[str, Any], needs: Sequence[str]) -> str:
    """Return the source of a script: what it needs of the templates, in their order, and of the values.

    ``needs``: what has to be there besides Python, packages that are imported, and the files of the bundle, if these
    are ``beside`` it.
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
    head = [f"import {line.rstrip(',')}" for line in textwrap.wrap(", ".join(modules), _WIDTH - len("import "))]
    head += ["from pathlib import Path"] if used & {"HERE", "Path"} else []
    head += _imports([text for _, text in imported]) if imported else [""]
    constants = {name.upper(): value for name, value in {**values, "packages": packages}.items()}
    head += set_together({name: value for name, value in constants.items() if name in used}, _WIDTH)
    head += ["HERE = Path(__file__).resolve().parent"] if "HERE" in used else []
    head += ["SHOWS, GONE, CANNOT_TELL = 1, 0, 2"]
    body = [one.text for name, one in definitions.items() if name in used]
    beside = ["the files beside it"] if values["beside"] else []
    told = [*beside, "Python >= 3.8", *packages, *needs]
    shown = values["model"] if beside else "the model that is in here"
    needed = f"It needs {', '.join(told[:-1])} and {told[-1]}." if told[1:] else f"It needs {told[0]}."
    needed = textwrap.fill(needed, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
    said = _HEAD.format(shown=shown, needs=needed)
    end = _END.replace(_ONCE, _AGAIN.format_map(values["flaky"])) if values.get("flaky") else _END
    return "\n\n".join(["\n".join([said, *head]), *body, end])


def template(name: str) -> str:
    """Return the source of a template."""
    return Path(__file__).with_name("templates").joinpath(f"{name}.txt").read_text(encoding="utf-8")


def _imports(statements: Sequence[str]) -> list[str]:
    """Return the lines that import packages in the child: an error ends this before it has said anything."""
    lines = [line for statement in statements for line in statement.splitlines()]
    plain = [line for line in lines if line.startswith("import ")]
    others = [line for line in lines if line not in plain]
    together = "import " + ", ".join(line.partition(" ")[2] for line in plain)
    return ['if sys.argv[1:2] == ["--judge"]:', *(f"    {line}" for line in [*others, together]), ""]


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
