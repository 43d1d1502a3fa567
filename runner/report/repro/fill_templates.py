"""A script made of templates: of their functions and classes those that ``main`` needs, and what these import.

A template is Python source; a line that ends in ``#? name`` stays if that value is given, after ``#? !name`` if not.
Values are names in upper case.
"""

from __future__ import annotations

import ast
import math
import pprint
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from runner.backends.onnxruntime import LEVELS
from runner.backends.trt.build_options import bytes_of, capability_of, range_of
from runner.backends.trt.library import MODULES
from runner.schema.backend import BackendSettings, OnnxRuntimeBackend, Rounding, TensorRtBackend
from runner.text import hide_environment

# Python source of plain values: no text among them can become code.


class _Endless(float):
    """A number whose source is a call: an infinity has no literal."""

    def __repr__(self) -> str:
        return f'float("{float.__repr__(self)}")'


class _FromTheEnvironment(str):
    """A text that is taken from the environment of whoever runs the script, as settings took it from the user's."""

    def __repr__(self) -> str:
        return f"__import__('os').path.expandvars({str.__repr__(self)})"


def set_together(values: Mapping[str, Any], width: int) -> list[str]:
    """Return the sources that set variables, in as few lines as there can be: as many on one as there is room for."""
    lines: list[str] = []
    for variable, value in values.items():
        names, equals, sources = lines[-1].partition(" = ") if lines else ("", "", "")
        together = f"{names}, {variable} = {sources}, {inline(value)}"
        indent = len(variable) + len(" = ")
        if equals and "\n" not in sources and len(together) <= width:
            lines[-1] = together
        else:  # over several lines if it is long
            text = pprint.pformat(_plain(value), width=width - indent, sort_dicts=False, compact=True)
            lines.append(f"{variable} = " + text.replace("\n", "\n" + " " * indent))
    return lines


def inline(value: Any) -> str:
    """Return the source of a value on one line: ``repr`` escapes whatever could end a string or hide in it."""
    return repr(_plain(value))


def call(function: str, *values: Any, on: str = "") -> str:
    """Return the source of a call with values, after the variable ``on`` if one is named, on one line."""
    return f"{function}({', '.join([*([on] if on else []), *map(inline, values)])})"


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, Mapping):
        return {_plain(str(name)): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return (tuple if isinstance(value, tuple) else list)(map(_plain, value))
    if isinstance(value, float) and not math.isfinite(value):
        return _Endless(value)
    if value is None or type(value) in (bool, int, float):
        return value
    named = hide_environment(str(value))
    return named if named == str(value) else _FromTheEnvironment(named.replace("${oc.env:", "${"))


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
# Exit code: 1 the failure shows, 0 it does not, 2 it cannot be told here (the reason is printed).
'''


def compose(templates: Iterable[str], values: Mapping[str, Any], needs: Sequence[str]) -> str:
    """Return the source of a script: what it needs of the templates, in their order, and of the values.

    ``needs``: what has to be there besides Python, packages that are imported, and the files of the bundle, if these
    are ``beside`` it.
    """
    source = "\n".join(line for text in templates for line in held(text, values))
    definitions = {node.name: node for node in ast.parse(source).body if isinstance(node, _DEFINED)}
    end = "\n".join(held(template("end"), values))
    used = waiting = _free(ast.parse(end))
    while waiting:
        waiting = {name for one in waiting if one in definitions for name in _free(definitions[one])} - used
        used |= waiting
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
    body = [_text(node, source.split("\n")) for name, node in definitions.items() if name in used]
    told = [*["the files beside it"] * values["beside"], "Python >= 3.8", *packages, *needs]
    shown = values["model"] if values["beside"] else "the model that is in here"
    needed = f"It needs {' and '.join(filter(None, (', '.join(told[:-1]), told[-1])))}."
    needed = textwrap.fill(needed, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
    said = _HEAD.format(shown=shown, needs=needed)
    return "\n\n".join(["\n".join([said, *head]), *body, f"{end}\n"])


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


def _free(definition: ast.AST) -> set[str]:
    """Return the names that a function or a class takes from outside of it."""
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
    return names - bound


def _text(node: ast.FunctionDef | ast.ClassDef, lines: Sequence[str]) -> str:
    first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    return "\n".join(lines[first - 1 : node.end_lineno])


# How a backend ran, as the source of a function that runs it so again, and as values that a build needs.

_EXTENSIONS = "onnxruntime_extensions"  # the package that brings custom operators, and is known by its name
ROUNDED = "rounded.onnx"
"""The model that is run where low precision is emulated."""
RUNTIMES = frozenset({"onnxruntime", "onnx_reference", "tensorrt"})
"""What a script runs by itself; other packages may add more."""


def rounds(settings: BackendSettings) -> bool:
    """Whether a model that rounds was run in place of the model itself."""
    return isinstance(settings, OnnxRuntimeBackend) and settings.rounding in (Rounding.on, Rounding.strict)


def runner(role: str, settings: BackendSettings, cwd: Path) -> str:
    """Return the source of a function ``role(model, inputs)`` that runs a model as it was run.

    ``cwd``: where the user stands, whom paths are relative to.
    """
    source = template(settings.name).replace("def run(", f"def {role}(").replace("ROLE", role)
    if not isinstance(settings, OnnxRuntimeBackend):
        return source
    disabled, plugged = settings.disabled_optimizers, [*settings.provider_libraries]
    used = "None" if plugged else "providers"  # a session takes those of libraries from its options
    used += f", disabled_optimizers={inline(disabled)}" if disabled else ""
    before = [f"model = str(HERE / {inline(ROUNDED)})"] if rounds(settings) else []
    for word, text in (
        ("OPTIONS", "\n    ".join([*before, *session_options(settings, cwd)])),
        ("PROVIDERS", inline(providers(settings))),
        (", *PLUGGED", f", *{inline(plugged)}" if plugged else ""),
        ("USED", used),
    ):
        source = source.replace(word, text)
    return source


def providers(settings: OnnxRuntimeBackend) -> list[Any]:
    """Return the providers: the name of each, or that and its options."""
    found: list[Any] = []
    for one in settings.providers:
        found += [(name, dict(given or {})) for name, given in one.items()] if isinstance(one, Mapping) else [one]
    return found


def session_options(settings: OnnxRuntimeBackend, cwd: Path) -> list[str]:
    """Return the lines that make the options of a session, as ``options``."""
    told = {one[0]: one[1] for one in providers(settings) if isinstance(one, tuple)}
    level = "ORT_DISABLE_ALL" if rounds(settings) else LEVELS[settings.optimization.value]
    lines = [
        "options = onnxruntime.SessionOptions()",
        f"options.intra_op_num_threads = {settings.threads:d}",
        f"options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.{level}",
    ]
    for name, text in settings.session_options.items():
        lines.append(call("set_option", name, str(text), on="options"))
    for name, text in settings.config_entries.items():
        lines.append(call("options.add_session_config_entry", name, str(text)))
    lines += [call("register", _library(library, cwd), on="options") for library in settings.custom_ops]
    for name, path in settings.provider_libraries.items():
        library = _library(path, cwd) if "/" in path or path.endswith((".so", ".dylib")) else path
        lines.append(call("plug_in", name, library, told.get(name, {}), on="options"))
    return lines


def _library(library: str, cwd: Path) -> str:
    return library if library == _EXTENSIONS else str(cwd / Path(library).expanduser())


def values_of(settings: TensorRtBackend, cwd: Path) -> dict[str, Any]:
    """Return what is set of a build, with whole paths, sizes in bytes, and ranges as three lists."""
    wanted = settings.flavor.value
    return {
        **vars(settings),
        "modules": [name for flavor, names in MODULES.items() if wanted in (flavor, "auto") for name in names],
        "plugins": [_library(path, cwd) for path in settings.plugins],
        "memory_pools": {name: bytes_of(name, size) for name, size in settings.memory_pools.items()},
        "compute_capabilities": [capability_of(str(one)) for one in settings.compute_capabilities],
        "profiles": {name: range_of(name, given) for name, given in settings.profiles.items()},
        "shape_values": {name: range_of(name, given) for name, given in settings.shape_values.items()},
    }
