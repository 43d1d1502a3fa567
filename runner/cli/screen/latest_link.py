"""``outputs/latest``: a link to the newest run (or sweep) in Winnow's own default place."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from runner.errors import UsageError

OUTPUTS, NAME = "outputs", "latest"
#: a folder as conf/config.yaml names it, below the outputs
_DEFAULT = re.compile(r"\d{4}-\d\d-\d\d/\d\d-\d\d-\d\d-\d{6}(-sweep)?")


def point_to(folder: Path) -> Path | None:
    """Let the link lead to ``folder``, if that lies in the default place where the user stands.

    Return the folder that it led to before, None: there was none. A file or link of that name that is not Winnow's
    stays as it is, and one that cannot be made is no loss.
    """
    top = Path.cwd() / OUTPUTS
    if not folder.is_relative_to(top) or not _DEFAULT.fullmatch(target := folder.relative_to(top).as_posix()):
        return None
    link, made = top / NAME, top / f".{NAME}-{os.getpid()}"
    with suppress(OSError):
        before = os.readlink(link) if link.is_symlink() else None  # noqa: PTH115 - as it is written
        if not _DEFAULT.fullmatch(before) if before is not None else link.exists():
            return None
        made.symlink_to(target)
        try:
            made.replace(link)  # the link itself: what it led to is not touched
        finally:
            made.unlink(missing_ok=True)
        return top / before if before else None
    return None


@contextmanager
def leading_to(folder: Path) -> Iterator[None]:
    """Let the link lead to ``folder``; back to where it led if the run there is refused, which shows nothing."""
    before = point_to(folder)
    try:
        yield
    except UsageError:
        lead_back(folder, before)
        raise


def lead_back(folder: Path, before: Path | None) -> None:
    """Let the link that leads to ``folder`` lead where it did before, as `point_to` said; None: remove it.

    Where another run has taken the link since, it stays that one's.
    """
    top = next((parent for parent in folder.parents if parent.name == OUTPUTS), folder)
    link = top / NAME
    if not link.is_symlink() or link.resolve() != folder.resolve():
        return
    if before and before.is_dir():
        point_to(before)
        return
    with suppress(OSError):
        link.unlink()
