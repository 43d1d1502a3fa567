"""Runs `strategy=bugs`: failures that still stand, grouped by what heals them, in bugs.md."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.errors import UsageError
from runner.files import write_text
from runner.judgment import Status
from runner.report.sections.bugs_section import BUGS_NAME, bugs_page
from runner.report.summary import Summary
from runner.schema.diagnosis import BugsSettings
from runner.schema.root import Settings
from runner.schema.strategy import chosen
from runner.sweeps.bugs.failure import Failure, ShownRemedy, failure_of
from runner.sweeps.bugs.grouping import Bug, grouped
from runner.sweeps.recheck.check_kept import Rechecker
from runner.sweeps.recheck.kept_result import FIXED, NOT_JUDGED, STILL, folders, read
from runner.sweeps.recheck.kept_run import kept_run, relative_to
from runner.text import counted

log = logging.getLogger(__name__)


def run(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Group failures and write bugs.md. Raises UsageError for names that lead to none."""
    found = folders(chosen(settings.strategy, BugsSettings).results)
    if settings.plan:
        said = f"{counted(len(found), 'failure')} would be grouped; nothing was checked, as asked"
        return kept_run(settings, folder, command, found, lambda _: Summary(Status.planned, 0, "bugs", said), dict)

    def ask(rechecker: Rechecker) -> Summary:
        failures, apart = _standing(rechecker, found, folder)

        def heals(remedy: ShownRemedy, failure: Failure) -> bool | None:
            outlook = rechecker.outlook(failure.kept, remedy.overrides)
            log.info("%s with %s: %s", failure.kept.folder, remedy.name, outlook.outcome)
            return None if outlook.outcome == NOT_JUDGED else outlook.outcome == FIXED

        bugs = tuple(described(bug, folder) for bug in grouped(failures, heals))
        write_text(folder / BUGS_NAME, bugs_page(bugs, apart))
        left = f"; {len(apart)} apart: they could not be judged, or fail no more" if apart else ""
        stopped = "; the budget was reached before all was asked" if rechecker.checks.spent else ""
        said = f"{counted(len(bugs), 'bug')} in {counted(len(failures), 'failure')}{left}{stopped}: see {BUGS_NAME}"
        status = Status.found if bugs else Status.could_not_judge
        return Summary(status, status.exit_code, settings.strategy.name, said, bugs=bugs, warnings=tuple(apart))

    return kept_run(settings, folder, command, found, ask, dict)


def _standing(rechecker: Rechecker, found: Sequence[Path], folder: Path) -> tuple[list[Failure], list[str]]:
    """Return the failures that are there when they are checked again, and why others are not among them."""
    failures, apart = [], []
    for one in found:
        try:
            failure = failure_of(read(one))
            outlook = rechecker.outlook(failure.kept)
            why = "" if outlook.outcome == STILL else f"checked again it is {outlook.outcome}. {outlook.said}"
        except UsageError as error:
            why = str(error)
        if why:
            log.warning("%s: %s", one, why)
            apart.append(f"{relative_to(one, folder)}: {why}")
        else:
            failures.append(failure)
    return failures, apart


def described(bug: Bug, folder: Path) -> Mapping[str, Any]:
    """Return what is told of a bug, in plain types; paths as they are seen from ``folder``."""
    smallest = bug.smallest
    members = [one.failure for one in bug.members]
    remedies = list(dict.fromkeys(remedy.name for one in members for remedy in one.remedies))
    kind = smallest.signature.get("kind", "failure")
    return {
        "name": f"{'+'.join(smallest.operators)}: {kind}" + (f" ({remedies[0]} heals it)" if remedies else ""),
        "failures": [relative_to(one.kept.folder, folder) for one in members],
        "count": len(members),
        "smallest": relative_to(smallest.kept.model, folder),
        "culprit_operators": list(smallest.operators),
        "passes": remedies,
        "signature": dict(smallest.signature),
        "releases": next((said for one in members if (said := _releases(one.kept.result.get("releases")))), None),
        "workaround": list(smallest.remedies[0].overrides) if smallest.remedies else [],
        "hosts": list(dict.fromkeys(Path(one.host).name for one in members)),
        "evidence": [
            {"failure": relative_to(one.failure.kept.folder, folder), "how": one.how, "said": one.said}
            for one in bug.members
        ],
    }


def _releases(found: object) -> str | None:
    """Return the releases of a failure in a line."""
    if not isinstance(found, dict) or not isinstance(found.get("asked"), list):
        return None
    asked = [one for one in found["asked"] if isinstance(one, dict)]
    broken = ", ".join(str(one.get("version")) for one in asked if one.get("outcome") == "broken")
    good = " and ".join(str(found[key]) for key in ("good_before", "good_after") if found.get(key))
    return f"{found.get('package')} is broken in {broken}" + (f"; good: {good}" if good else "")
