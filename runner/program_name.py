"""How the user started Winnow, for the commands that messages tell: one that is copied from a message has to work."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from runner import DISTRIBUTION

#: what the console scripts are called
SCRIPTS = ("winnow", "winnow-onnx")
_ENV = re.compile(r"^(\+{0,2}checker\.env[^=]*=).*", re.DOTALL)


def program_words(program: str | None = None) -> tuple[str, ...]:
    """Return the words by which ``program``, sys.argv[0] unless it is given, was started.

    Whatever else runs Winnow (a notebook, a test) is not typed again: there it is the script.
    """
    path = Path(sys.argv[0] if program is None and sys.argv else program or "")
    if path.parts[-2:] == (Path(__file__).parent.name, "__main__.py"):
        return ("python", "-m", "runner")
    if path.name == "winnow_onnx.py":
        return ("python", "-m", "winnow_onnx")
    return (path.name if path.name in SCRIPTS else SCRIPTS[0],)


def program_name() -> str:
    """Return what a command begins with: ``winnow`` or ``python -m runner``."""
    return " ".join(program_words())


def install(extra: str, root: Path = Path(__file__).parents[1]) -> str:
    """Return how an extra is installed: where ``root`` is a clone from that, else by the distribution's name."""
    if (root / "pyproject.toml").is_file():
        return f"pip install -e '.[{extra}]' (in the clone of {DISTRIBUTION})"
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def without_values(command: Sequence[str]) -> list[str]:
    """Return a command without the values that it gives to variables of the environment, which may be secret."""
    return [_ENV.sub(r"\1...", word) for word in command]
