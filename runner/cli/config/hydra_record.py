"""What a folder said of its settings before Hydra wrote others: put back where those are refused.

Hydra writes a run's configuration before anybody has looked at it, and `winnow resume RUN` goes on from what is written
there: settings that were refused would otherwise be the run's from then on.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from runner.files import write_text

_OF_A_RUN = (".hydra/config.yaml", ".hydra/hydra.yaml", ".hydra/overrides.yaml", "ended.json")
_OF_A_SWEEP = ("multirun.yaml",)
BEFORE = "multirun.before.yaml", "multirun.before.{}.yaml"
"""What a sweep's folder said before, where a sweep of which some jobs were refused has written other settings.

The second and any later one are numbered from 2 on: none takes the place of another.
"""
_MOST = 1000


@dataclass
class HydraRecord:
    """The files as they were; those that were not there are not put back."""

    _before: dict[Path, str] = field(default_factory=dict)

    def keep(self, folder: Path, *, sweep: bool = False) -> None:
        """Remember what lies in the folder of a run (a ``sweep``)."""
        for name in _OF_A_SWEEP if sweep else _OF_A_RUN:
            with suppress(OSError, ValueError):
                self._before[folder / name] = (folder / name).read_text(encoding="utf-8")

    def restore(self) -> None:
        """Put it back."""
        for path, content in self._before.items():
            with suppress(OSError):
                write_text(path, content)

    def set_aside(self, folder: Path) -> Path | None:
        """Keep what a sweep's ``folder`` said before under another name; return that, None where nothing else was said.

        Raises OSError.
        """
        for path, content in self._before.items():
            if path.read_text(encoding="utf-8", errors="replace") != content:
                first, later = BEFORE
                places = (folder / name for name in (first, *map(later.format, range(2, _MOST))))
                place = next((one for one in places if not one.exists() or _says(one, content)), folder / first)
                write_text(place, content)
                return place
        return None


def _says(path: Path, content: str) -> bool:
    """Whether a file holds just this."""
    with suppress(OSError, ValueError):
        return path.read_text(encoding="utf-8") == content
    return False
