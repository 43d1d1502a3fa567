"""Lines of the sources: all of them, and those of code (no blanks, no comments, no docstrings), for each room.

python -m benchmarks.count_lines [folder ...]
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import defaultdict
from pathlib import Path
from statistics import median

NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING),
    tokenize.ENDMARKER,
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(text: str) -> int:
    """The lines that hold a token of code; a line of a docstring holds none."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            lines -= set(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return len(lines)


def main() -> None:
    """Print one row for each room, and their sum."""
    rooms: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for folder in sys.argv[1:] or ["runner", "strategies"]:
        for path in sorted(Path(folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            room = "/".join(path.parts[:2] if len(path.parts) > 2 else path.parts[:1])
            rooms[room].append((text.count("\n"), code_lines(text)))
    rooms["all"] = [module for room in list(rooms.values()) for module in room]
    print(f"{'room':24} {'modules':>8} {'lines':>8} {'code':>8} {'median':>8}")
    for room, modules in rooms.items():
        total, code = (sum(module[column] for module in modules) for column in (0, 1))
        print(f"{room:24} {len(modules):8} {total:8} {code:8} {median(code for _, code in modules):8.0f}")


if __name__ == "__main__":
    main()
