"""The folder of a step: a run's own, with what the step was asked, so that a triage that goes on asks nothing twice."""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from runner import run_folder
from runner.artifacts.disk_space import FULL, Room
from runner.errors import OtherConditionsError, WinnowError
from runner.files import json_of, write_text
from runner.jobs import job
from runner.judgment import ENDED_WELL, Status
from runner.loading.input_digests import digests, unchanged
from runner.report.result import read_result, result_json, write_result
from runner.report.summary import Summary
from runner.run_folder import STEPS, Marker
from runner.schema.diagnosis import VersionsSettings
from runner.schema.root import Settings
from runner.schema.run import BudgetSettings

log = logging.getLogger(__name__)

_ASKED = "asked.json"


@dataclass(frozen=True)
class StepFolder:
    """``triage``: the folder of the triage, ``budget``: its own; ``at``: which step it is, from 1.

    ``installed``: under the interpreters that take part.
    """

    triage: Path
    budget: BudgetSettings
    at: int
    step: str
    installed: Mapping[str, str]

    @property
    def name(self) -> str:
        """Where it lies in the triage's folder."""
        return f"{STEPS}/{self.at:02d}-{self.step}"

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self.triage / self.name

    def ended(self, settings: Settings) -> Mapping[str, Any] | None:
        """Return the result of a step that was asked the same and ended well; None: it has to be run."""
        before, asked = json_of(self.folder / _ASKED), self._asked(settings)
        if not isinstance(before, dict) or {**before, "files": asked["files"]} != asked:
            return None
        if not isinstance(before.get("files"), dict) or not unchanged(before["files"], asked["files"]):
            return None
        result = read_result(self.folder)
        return result if result and result.get("exit_code") in ENDED_WELL else None

    def run(self, settings: Settings) -> Mapping[str, Any]:
        """Run a step, on what it was cut off in, and return its result, also where it could not be done."""
        self._claim(settings)
        try:
            summary = self._answered(settings)
        except WinnowError as error:
            summary = self._failed(settings, error.status, str(error))
        except OSError as error:
            if error.errno not in FULL:
                summary = self._broken(settings, error)
            else:
                full = Room(self.folder).none(f"{error.strerror}: {error.filename or self.folder}")
                summary = self._failed(settings, full.status, str(full))
        except Exception as error:  # noqa: BLE001 - a bug in one step is not the end of the others
            summary = self._broken(settings, error)
        left = frozenset(run_folder.present(self.folder)) - {run_folder.NAME}
        run_folder.write(self.folder, Marker(running=False, wrote=left))
        return result_json(summary)

    def _answered(self, settings: Settings) -> Summary:
        """Run a step; anew, where the verdicts that it would go on from hold no more."""
        try:
            return job.run(settings, self.folder, ())
        except OtherConditionsError as error:
            log.warning("%s begins anew: %s", self.name, error)
            shutil.rmtree(self.folder, ignore_errors=True)
            self._claim(settings)
            return job.run(settings, self.folder, ())

    def _claim(self, settings: Settings) -> None:
        """Have the folder for this question: what another one left under this number goes."""
        asked = self._asked(settings)
        for other in self.triage.glob(f"{STEPS}/{self.at:02d}-*"):
            if (other != self.folder or not _same(json_of(other / _ASKED), asked)) and not other.is_symlink():
                shutil.rmtree(other, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "result.json").unlink(missing_ok=True)
        run_folder.write(self.folder, Marker(running=True))
        write_text(self.folder / _ASKED, json.dumps(asked) + "\n")

    def _asked(self, settings: Settings) -> dict[str, Any]:
        """Return all that the answer depends on: settings, the budget of the triage, files by content, packages.

        Where releases are asked that a cache holds, these as well.
        """
        plain = dataclasses.asdict(settings)
        for name in ("budget", "log", "verbosity", "workers", "journal"):
            plain.pop(name)
        plain["cwd"] = str(Path.cwd())  # whether it was said or not
        asked: dict[str, Any] = {
            "settings": plain,
            "files": digests(settings),
            "budget": dataclasses.asdict(self.budget),
        }
        strategy = settings.strategy
        if isinstance(strategy, VersionsSettings) and strategy.offline:
            cache = Path(strategy.cache).expanduser()
            asked["releases"] = sorted(path.name for path in cache.glob(f"{strategy.package}-*"))
        asked["installed"] = {**self.installed}
        told: dict[str, Any] = json.loads(json.dumps(asked, default=_plain))  # as it will be read
        return told

    def _failed(self, settings: Settings, status: Status, said: str) -> Summary:
        summary = Summary(status, status.exit_code, settings.strategy.name, said)
        write_result(summary, self.folder)
        return summary

    def _broken(self, settings: Settings, error: Exception) -> Summary:
        log.error("%s: %s: %s; its traceback is in the log at debug", self.name, type(error).__name__, error)
        log.debug("%s", self.name, exc_info=True)
        return self._failed(settings, Status.internal_error, f"{type(error).__name__}: {error}")


def drop_after(triage: Path, last: int) -> None:
    """Remove the steps that an earlier triage in this folder took beyond the last one of this."""
    for other in triage.glob(f"{STEPS}/[0-9][0-9]-*"):
        if other.name[:2].isdecimal() and int(other.name[:2]) > last and not other.is_symlink():
            shutil.rmtree(other, ignore_errors=True)


def _same(before: Any, asked: Mapping[str, Any]) -> bool:
    """Whether a folder was made for these settings: its journal says by content whether its verdicts still hold."""
    return isinstance(before, dict) and before.get("settings") == asked["settings"]


def _plain(value: Enum) -> Any:
    return value.value
