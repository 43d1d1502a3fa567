"""Runs `strategy=recheck`: kept results against what runs them now. Committed, they are a regression suite."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from runner.errors import UsageError
from runner.judgment import Status
from runner.report.summary import Summary
from runner.schema.diagnosis import RecheckSettings
from runner.schema.root import Settings
from runner.schema.strategy import chosen
from runner.sweeps.recheck.check_kept import Outlook, Rechecker
from runner.sweeps.recheck.kept_result import NOT_JUDGED, expected, folders, read
from runner.sweeps.recheck.kept_run import kept_run, relative_to
from runner.text import counted, one_line

log = logging.getLogger(__name__)


def run(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Check each kept result again. Raises UsageError for names that lead to none, and for an unknown expectation."""
    found = folders(chosen(settings.strategy, RecheckSettings).results)
    expectations = {one: expected(one) for one in found}
    rows: list[dict[str, str]] = []

    def ask(rechecker: Rechecker) -> Summary:
        for kept in found:
            outlook = _outlook(rechecker, kept)
            rows.append(
                {
                    "folder": relative_to(kept, folder),
                    "expect": expectations[kept],
                    "outcome": outlook.outcome,
                    "said": outlook.said,
                }
            )
            well = outlook.outcome == expectations[kept]
            expected_otherwise = "" if well else f", expected {expectations[kept]}"
            level = logging.INFO if well else logging.WARNING
            log.log(level, "%s: %s%s %s", kept, outlook.outcome, expected_otherwise, one_line(outlook.said))
        return _summary(settings, rows, len(found))

    if settings.plan:
        said = f"{counted(len(found), 'kept result')} would be checked again; nothing was, as asked"
        return kept_run(settings, folder, command, found, lambda _: Summary(Status.planned, 0, "recheck", said), dict)
    return kept_run(settings, folder, command, found, ask, lambda: {"rechecked": tuple(rows)})


def _outlook(rechecker: Rechecker, folder: Path) -> Outlook:
    try:
        return rechecker.outlook(read(folder))
    except UsageError as error:
        return Outlook(NOT_JUDGED, str(error))


def _summary(settings: Settings, rows: Sequence[dict[str, str]], total: int) -> Summary:
    """Return how it ends. What is not as expected counts more than what could not be judged: it is known."""
    others = [row for row in rows if row["outcome"] not in (row["expect"], NOT_JUDGED)]
    unjudged = [row for row in rows if row["outcome"] == NOT_JUDGED]
    status = Status.not_as_expected if others else Status.could_not_judge if unjudged else Status.found
    words = Counter(row["outcome"] for row in rows)
    said = ", ".join(f"{number} {word}" for word, number in words.items())
    head = f"{counted(total, 'kept result')}: {said}"
    parts = [f"{len(others)} not as expected" if others else "all as expected" if not unjudged else ""]
    return Summary(status, status.exit_code, settings.strategy.name, "; ".join(filter(None, [head, *parts])),
                   rechecked=tuple(rows))  # fmt: skip
