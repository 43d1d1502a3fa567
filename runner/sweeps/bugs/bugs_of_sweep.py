"""The last step of a sweep of triages: its failures as bugs, in a run of its own, and bugs.md in the sweep's folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.cli.config.quoting import quote
from runner.files import write_text
from runner.report.result import read_result
from runner.report.sections.bugs_section import BUGS_NAME, bugs_page
from runner.status import Status

FOLDER = "bugs"
_WELL = (Status.nothing_to_find, Status.planned)
_WINNOW = Path(__file__).parents[2]


def write_bugs(sweep: Path, jobs: Sequence[Path], *, silent: bool) -> Path | None:
    """Group what the jobs in these folders found, and return the path of bugs.md; None where no triage found anything.

    Raises OSError where it cannot be written. Native code stays out of this process, so another one does it.
    """
    results = {job: read_result(job) or {} for job in jobs}
    found = [job for job, one in results.items() if one.get("strategy") == "triage" and one.get("status") not in _WELL]
    if not any(results[job].get("signature") for job in found):
        return None
    folder = sweep / FOLDER
    named = ",".join(quote(str(job)) for job in found)
    words = ["strategy=bugs", f"strategy.results=[{named}]", f"hydra.run.dir={quote(str(folder))}"]
    words += [f"resume={quote(str(folder))}"] if folder.is_dir() else []
    quiet = ["verbosity=silent" if silent else "verbosity=warning"]
    subprocess.run([sys.executable, str(_WINNOW), *words, *quiet], check=False, stdin=subprocess.DEVNULL)
    result = read_result(folder)
    if not result or not isinstance(result.get("bugs"), list) or result.get("strategy") != "bugs":
        return None
    write_text(sweep / BUGS_NAME, bugs_page([_seen_from_above(one) for one in result["bugs"]], result["warnings"]))
    return sweep / BUGS_NAME


def _seen_from_above(bug: Mapping[str, Any]) -> dict[str, Any]:
    """Return a bug with paths as they are seen from the sweep's folder."""

    def up(path: str) -> str:
        return os.path.normpath(f"{FOLDER}/{path}")

    evidence = [{**one, "failure": up(one["failure"])} for one in bug["evidence"]]
    return {**bug, "failures": [*map(up, bug["failures"])], "smallest": up(bug["smallest"]), "evidence": evidence}
