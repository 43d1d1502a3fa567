"""A script made of a template: only the lines that are asked for, and only the functions that these reach.

A template is Python source. A line that ends in ``#? a b&!c`` stays if one of its conditions holds (a flag ``a``; or
``b`` without ``c``); a line that is nothing but such a mark begins a block, which a bare ``#?`` ends (blocks nest).
What is left is read as Python, and of its definitions those stay that ``main`` needs: a person who reads the script
sees nothing else.
"""

from __future__ import annotations

import ast
import math
import pprint
import re
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from typing import Any

_MARK = re.compile(r"^(?P<line>.*?)(?:^|  )[ ]*#\?(?P<conditions>.*)$")
_STANDARD = [
    "contextlib",
    "ctypes",
    "glob",
    "hashlib",
    "importlib",
    "importlib.util",
    "json",
    "os",
    "platform",
    "re",
    "shlex",
    "signal",
    "subprocess",
    "sys",
    "tempfile",
    "time",
    "traceback",
    "zipfile",
]
_WIDTH = 116
_END = """if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception as error:  # the exit status of a traceback is that of a failure which shows
        sys.exit(say(CANNOT_TELL, repr(error)))"""


def compose(template: str, flags: Collection[str], constants: Mapping[str, Any], imports: Mapping[str, str]) -> str:
    """Return the source of a script without its docstring.

    ``constants``: plain values by name. ``imports``: the statements that bring names which are no part of Python. No
    text among the values can become code.
    """
    chosen = "\n".join(selected(template, flags))
    definitions = dict(_definitions(chosen))
    used = _reached("main", definitions)
    packages = [statement for name, statement in imports.items() if name in used]
    modules = [name for name in _STANDARD if name in used | {"sys", *(["os"] if packages else [])}]
    lines = [f"import {name}" for name in modules]
    lines += ["from pathlib import Path"] if "Path" in used else []
    if packages:
        # in a child, which a library that is broken may take down
        inside = ['    if sys.argv[1:2] == ["--judge"]:'] if "inside" in flags else []
        indent = "        " if inside else "    "
        lines += ["", "try:", *inside, *(f"{indent}{line}" for text in packages for line in text.splitlines())]
        lines += ["except Exception as error:", '    print("cannot tell:", ascii(str(error)))']
        lines += [f"    sys.exit({82 if inside else 2})"]
    lines += ["", *(f"{name} = {literal(value)}" for name, value in constants.items() if name in used)]
    lines += ["HERE = Path(__file__).resolve().parent"] if "HERE" in used else []
    lines += ["SHOWS, GONE, CANNOT_TELL = 1, 0, 2"]
    body = [text for name, (text, _) in definitions.items() if name in used]
    # a table names functions: it comes after all of them
    body.sort(key=lambda text: not text.startswith(("def ", "class ", "@")))
    return "\n\n\n".join(["\n".join(lines), *body, _END]) + "\n"


def selected(template: str, flags: Collection[str]) -> Iterator[str]:
    """Yield the lines whose conditions hold, without their marks."""
    blocks: list[bool] = []
    for line in template.splitlines():
        match = _MARK.match(line)
        if match is None:
            if all(blocks):
                yield line
        elif match["line"].strip():
            if all(blocks) and _holds(match["conditions"], flags):
                yield match["line"]
        elif match["conditions"].strip():
            blocks.append(_holds(match["conditions"], flags))
        else:
            blocks.pop()


def _holds(conditions: str, flags: Collection[str]) -> bool:
    return any(
        all((word.lstrip("!") in flags) is not word.startswith("!") for word in condition.split("&"))
        for condition in conditions.split()
    )


def _definitions(source: str) -> Iterator[tuple[str, tuple[str, set[str]]]]:
    """Yield each function, class and table: its name, its text, and all names that it uses."""
    lines = source.splitlines()
    for node in ast.parse(source).body:
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
        names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        names |= {
            f"{one.value.id}.{one.attr}"
            for one in ast.walk(node)
            if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name)
        }
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            name = node.name
        else:
            assert isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            name = node.targets[0].id
        yield name, ("\n".join(lines[first - 1 : node.end_lineno]), names)


def _reached(name: str, definitions: Mapping[str, tuple[str, set[str]]]) -> set[str]:
    """Return all names that are used from a definition on."""
    found, waiting = {name}, [name]
    while waiting:
        _, names = definitions.get(waiting.pop(), ("", set()))
        waiting += names - found
        found |= names
    return found


class _Endless(float):
    """A number whose source is a call: an infinity has no literal."""

    def __repr__(self) -> str:
        return f'float("{float.__repr__(self)}")'


def literal(value: Any) -> str:
    """Return Python source of plain values. ``repr`` escapes whatever could end a string or hide in it."""
    return pprint.pformat(_plain(value), width=_WIDTH, sort_dicts=False)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, Mapping):
        return {_text(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return _Endless(value)
    return value if value is None or type(value) in (bool, int, float, str) else _text(value)


def _text(value: Any) -> str:
    return str(value.value if isinstance(value, Enum) else value)
