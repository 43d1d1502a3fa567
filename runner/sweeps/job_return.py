"""What Hydra's sweepers get for a job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hydra.core.utils import JobReturn, JobStatus


def returned(overrides: Sequence[str]) -> JobReturn:
    """Return that the job has no value and that nothing is to be raised: how it ended is in its result.json."""
    made = JobReturn(overrides=list(overrides), working_dir=str(Path.cwd()), status=JobStatus.COMPLETED)
    made.return_value = None
    return made
