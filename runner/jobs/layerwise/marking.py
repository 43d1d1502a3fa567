"""What marking tensors does to a model's own outputs: nothing, or it changes them, or it hides their failure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]
SAME, HIDES, CHANGES = "same", "hides", "changes"


@dataclass
class Marking:
    """``word``: what marks did so far."""

    word: str = SAME
    _plain: Mapping[str, Row] = field(default_factory=dict)
    _bad: Callable[[Row], bool] = bool

    def begin(self, plain: Mapping[str, Row], bad: Callable[[Row], bool]) -> None:
        """Take in the rows of the model's outputs without marks. ``bad``: whether one is wrong by the check."""
        self._plain, self._bad = dict(plain), bad

    @property
    def hides(self) -> bool:
        """Whether some marks made the failure go away."""
        return self.word == HIDES

    def shows(self, rows: Iterable[Row]) -> bool:
        """Return whether the failure shows with some tensors marked, and remember what the marks did.

        The outputs are the same if what their errors differ by would pass the check.
        """
        marked = {row["tensor"]: row for row in rows if row["tensor"] in self._plain}
        if not marked or (self._fails(self._plain) and not self._fails(marked)):
            self.word = HIDES
            return False
        if self.word == SAME and any(not _alike(self._plain[name], row) for name, row in marked.items()):
            self.word = CHANGES
        return True

    def _fails(self, rows: Mapping[str, Row]) -> bool:
        return any(map(self._bad, rows.values()))


def _alike(before: Row, after: Row) -> bool:
    counts = [[row.get(key, (0, 0)) for key in ("nan", "inf")] for row in (before, after)]
    if [mine for mine, _ in counts[0]] != [mine for mine, _ in counts[1]]:
        return False
    if any(theirs for row in counts for _, theirs in row):  # the reference is another where it is run without marks
        return True
    return bool(abs(before["error"] - after["error"]) <= max(before["limit"], after["limit"]))
