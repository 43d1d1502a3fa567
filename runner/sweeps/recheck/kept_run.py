"""What the runs about kept results share: one account of their checks, and a report however they end."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner import run_folder
from runner.cli.claim_folder import FolderTakenError
from runner.cli.config.replayed import typed_changes
from runner.judgment import Status
from runner.report import summary as accounts
from runner.report.bundle import write_bundle
from runner.report.summary import Seconds, Summary
from runner.schema.root import Settings
from runner.sweeps.recheck.check_kept import KEPT, Checks, Rechecker
from runner.text import counted


def kept_run(
    settings: Settings,
    folder: Path,
    command: Sequence[str],
    found: Sequence[Path],
    ask: Callable[[Rechecker], Summary],
    so_far: Callable[[], Mapping[str, Any]],
) -> Summary:
    """Have ``ask`` put its questions of the kept results ``found``, and write what came of it.

    ``so_far``: what is known where somebody stops it. Raises FolderTakenError where the run would write over one.
    """
    here = folder.resolve()
    for one in found:
        if one.resolve() in (here, *here.parents):
            raise FolderTakenError(
                f"{folder} is the folder of a kept result that is asked about, and this run would write over it. Give "
                "it a folder of its own: hydra.run.dir=FOLDER"
            )
    started, seconds = time.monotonic(), settings.budget.seconds
    checks = Checks(settings.budget.checks, None if seconds is None else started + seconds)
    if settings.resume is None and KEPT in run_folder.own(folder):  # of an earlier run: other releases may be there now
        shutil.rmtree(folder / KEPT, ignore_errors=True)
    changes = typed_changes(settings.recorded)
    rechecker = Rechecker(settings, folder, command, changes, checks)
    try:
        summary = ask(rechecker)
    except KeyboardInterrupt as error:  # a termination says its own exit code
        code = getattr(error, "exit_code", Status.interrupted.exit_code)
        said = f"interrupted; after {counted(checks.paid, 'check')}"
        summary = replace(Summary(Status.interrupted, code, settings.strategy.name, said), **so_far())
    summary = replace(
        summary,
        checks=accounts.Checks(trust=checks.paid, reused=checks.reused, recheck=checks.paid),
        outcomes=checks.outcomes,
        evidence={**summary.evidence, "changes": changes},
        seconds=Seconds(time.monotonic() - started, checks.seconds),
        peak_rss_mb={"job": summary.peak_rss_mb["job"], "workers": checks.peak_rss_mb},
    )
    write_bundle(settings, folder, summary, Path.cwd(), command, None)
    return summary


def relative_to(path: Path, folder: Path) -> str:
    """Return a path as it is seen from a run's folder."""
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()
