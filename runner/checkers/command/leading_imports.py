"""What a script imports before it does anything else, as far as that may be imported ahead (``checker.preload=auto``).

The script is read, and never run.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

_STANDARD = """
__future__ abc argparse ast base64 bisect collections contextlib copy csv ctypes dataclasses datetime decimal difflib
enum errno fnmatch fractions functools gc glob gzip hashlib heapq importlib inspect io itertools json logging math
multiprocessing operator os pathlib pickle platform pprint random re shlex shutil signal statistics string struct
subprocess sys tempfile textwrap threading time traceback types typing unittest uuid warnings zipfile zlib
collections.abc concurrent.futures importlib.metadata importlib.util os.path
"""
_HEAVY = """
numpy numpy.linalg numpy.random
onnx onnx.checker onnx.external_data_helper onnx.helper onnx.numpy_helper onnx.reference onnx.shape_inference
"""
STANDARD = frozenset(_STANDARD.split())
"""What checks have in common of the standard library, as far as importing it does nothing.

Some of it does (antigravity, this), or is deprecated, which is said to a script that imports it itself.
"""
HEAVY = frozenset(_HEAVY.split())
"""What takes most of a check's time, and was tried under fork. ONNX Runtime is not there: docs/adr/0051."""
# a larger script is not read
_LARGEST = 1 << 20


def leading_imports(script: Path) -> tuple[str, ...]:
    """Return the modules that may be imported ahead, in the order in which ``script`` imports them.

    Empty where none of them takes any time, and where the file cannot be read or parsed: it may be of another Python's.
    """
    try:
        if script.stat().st_size > _LARGEST:
            return ()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is to be said of the script, its own interpreter says
            tree = ast.parse(script.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    found: list[str] = []
    for name in _leading(tree.body):
        if name not in STANDARD | HEAVY:
            break
        found.append(name)
    return tuple(dict.fromkeys(found)) if HEAVY & set(found) else ()


def _leading(body: list[ast.stmt]) -> Iterator[str]:
    """Yield what the leading import statements name, in their order, and "" where they end."""
    for number, statement in enumerate(body):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and not statement.level and statement.module:
            yield statement.module
            inner = (f"{statement.module}.{alias.name}" for alias in statement.names)
            yield from (name for name in inner if name in HEAVY)
        elif number or not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            break  # no docstring
    yield ""
