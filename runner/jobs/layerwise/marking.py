"""What marking tensors does to a model's own outputs: nothing, or it changes them, or it hides their failure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]
SAME, HIDES, CHANGES = "same", "hides", "changes"


@dataclass
class Marking:
    """``plain``: rows of the model's outputs without marks. ``bad``: whether a row is wrong as the check means it."""

    plain: Mapping[str, Row]
    bad: Callable[[Row], bool]
    word: str = field(default=SAME, init=False)

    @staticmethod
    def of(rows: Iterable[Row], bad: Callable[[Row], bool]) -> Marking:
        """Begin with what the outputs are like without marks."""
        return Marking({row["tensor"]: row for row in rows}, bad)

    def shows(self, rows: Iterable[Row]) -> bool:
        """Return whether the failure shows with some tensors marked, and remember what the marks did.

        The outputs are the same if what their errors differ by would pass the check.
        """
        marked = {row["tensor"]: row for row in rows if row["tensor"] in self.plain}
        if not marked or (self._fails(self.plain) and not self._fails(marked)):
            self.word = HIDES
            return False
        if self.word == SAME and any(not _alike(self.plain[name], row) for name, row in marked.items()):
            self.word = CHANGES
        return True

    def _fails(self, rows: Mapping[str, Row]) -> bool:
        return any(map(self.bad, rows.values()))


def _alike(before: Row, after: Row) -> bool:
    if before["kind"] != after["kind"]:
        return False
    return bool(abs(before["error"] - after["error"]) <= max(before["limit"], after["limit"]))
