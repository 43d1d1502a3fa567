"""``outputs/latest``: a link to the newest run (or sweep) in Winnow's own default place."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

OUTPUTS, NAME = "outputs", "latest"
#: a folder as conf/config.yaml names it, below the outputs
_DEFAULT = re.compile(r"\d{4}-\d\d-\d\d/\d\d-\d\d-\d\d-\d{6}(-sweep)?")


def point_to(folder: Path) -> None:
    """Let the link lead to ``folder``, if that lies in the default place where the user stands.

    A file or link of that name that is not Winnow's stays as it is, and one that cannot be made is no loss.
    """
    top = Path.cwd() / OUTPUTS
    if not folder.is_relative_to(top) or not _DEFAULT.fullmatch(target := folder.relative_to(top).as_posix()):
        return
    link, made = top / NAME, top / f".{NAME}-{os.getpid()}"
    with suppress(OSError):
        if link.is_symlink() and not _DEFAULT.fullmatch(os.readlink(link)):  # noqa: PTH115 - as it is written
            return
        if not link.is_symlink() and link.exists():
            return
        made.symlink_to(target)
        try:
            made.replace(link)  # the link itself: what it led to is not touched
        finally:
            made.unlink(missing_ok=True)
