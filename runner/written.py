"""What a run wrote down for itself, read back: its folder may come from anywhere, so nothing in it is trusted."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

_LARGEST = 1 << 28


def json_of(path: Path) -> Any:
    """Return what the JSON file holds; None where there is no such file, or none that can be read."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST:  # a pipe would be waited for
            return None
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def inside(path: Path, folder: Path) -> bool:
    """Whether ``path`` lies in ``folder``, links and ``..`` followed (of ``path`` itself the link is meant)."""
    try:
        return folder.resolve() in (path.parent.resolve() / path.name).parents and path.name != ".."
    except (OSError, ValueError, RuntimeError):
        return False
