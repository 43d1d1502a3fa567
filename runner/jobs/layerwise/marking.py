"""What marking tensors does to a model's own outputs: nothing, it changes them, or it hides or makes a failure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]
SAME, HIDES, CHANGES, BREAKS = "same", "hides", "changes", "breaks"


@dataclass
class Marking:
    """``word``: what marks did so far; ``breaks``: what passes without marks fails with them."""

    word: str = SAME
    _plain: Mapping[str, Row] = field(default_factory=dict)
    _bad: Callable[[Row], bool] = bool
    _fails: bool = False

    def begin(self, plain: Mapping[str, Row], bad: Callable[[Row], bool], *, fails: bool) -> None:
        """Take in the rows of the model's outputs without marks.

        ``bad``: whether one is wrong by the check. ``fails``: whether the check says that the model fails.
        """
        self._plain, self._bad = dict(plain), bad
        self._fails = fails and any(map(bad, plain.values()))

    @property
    def hides(self) -> bool:
        """Whether some marks made the failure go away."""
        return self.word == HIDES

    def shows(self, rows: Iterable[Row]) -> bool:
        """Return whether the failure (if there is one) shows with tensors marked, and remember what the marks did.

        ``rows``: of a run that gave an answer. The outputs are the same if what their errors differ by would
        pass the check.
        """
        marked = {row["tensor"]: row for row in rows if row["tensor"] in self._plain}
        if self._fails and not any(map(self._bad, marked.values())):
            self.word = HIDES
            return False
        if not self._fails and any(self._bad(row) and not self._bad(self._plain[name]) for name, row in marked.items()):
            self.word = BREAKS
        elif self.word == SAME and any(not _alike(self._plain[name], row) for name, row in marked.items()):
            self.word = CHANGES
        return True


def _alike(before: Row, after: Row) -> bool:
    counts = [[row.get(key, (0, 0)) for key in ("nan", "inf")] for row in (before, after)]
    if [mine for mine, _ in counts[0]] != [mine for mine, _ in counts[1]]:
        return False
    if any(theirs for row in counts for _, theirs in row):  # the reference is another where it is run without marks
        return True
    return bool(abs(before["error"] - after["error"]) <= max(before["limit"], after["limit"]))
