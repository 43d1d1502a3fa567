"""A model that stays whole, with what its outputs should hold for the checks that are handed that."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from runner.candidate import Sample
from runner.checkers.checker import Checker, inner
from runner.checkers.command import CommandCheck
from runner.checkers.python import PythonCheck
from runner.errors import UsageError, WinnowError
from runner.jobs.job import Job
from runner.model.values.recorded import TensorFile
from runner.reference.load import Loaded, load
from runner.reference.models import outputs_of
from runner.schema.checker import BuildsChecker
from runner.text import listed

log = logging.getLogger(__name__)


def load_whole(job: Job, folder: Path) -> Loaded:
    """Read the model of a run that cuts nothing; its samples hold the right outputs where the check is handed them.

    Raises UsageError for files that are wrong, and as `with_outputs` does.
    """
    loaded = load(job.settings, job.pool, folder, record=False)
    samples = with_outputs(job, loaded, loaded.samples, folder / "values" / "outputs")
    doubts = not_finite(job, loaded, [one.expected for one in samples])
    return replace(loaded, samples=samples, warnings=(*doubts, *loaded.warnings))


def load_recorded(job: Job) -> Loaded:
    """Read the model of a run that cuts it, with its recorded values.

    Raises UsageError for files that are wrong, and for a command that names {references} where nothing is recorded.
    """
    settings, checker = job.settings, inner(job.checker)
    if isinstance(checker, CommandCheck) and checker.needs_expected and not settings.cut.records:
        raise UsageError(
            f"{checker.describe()} cut.record=off: {{references}} would hold nothing. Set cut.record=auto, or give a "
            "check that does without {references}"
        )
    loaded = load(settings, job.pool, job.folder, feeds=job.checker.wants_feeds)
    return replace(loaded, warnings=(*not_finite(job, loaded, loaded.recorded.values), *loaded.warnings))


def not_finite(job: Job, loaded: Loaded, values: Sequence[Mapping[str, TensorFile]]) -> tuple[str, ...]:
    """Say where a check compares with what is not right: the reference's own outputs hold NaN or Inf."""
    bad = [name for name in loaded.graph.outputs if any(name in one and not one[name].finite for one in values)]
    asked = compared_with(job.checker) if bad else ""
    if not asked:
        return ()
    said = (
        f"the reference itself gives NaN or Inf at {listed(bad)}, so {asked} holds no right value there and a "
        "check that compares with it may fail whatever the target does; reference.model=PATH takes the right values "
        "from a model that is good (an original in float32, say)"
    )
    log.warning("%s", said)
    return (said,)


def compared_with(checker: Checker) -> str:
    """Return what a check of the user's calls the right values of outputs that it reads; "": it reads none."""
    checker = inner(checker)
    if isinstance(checker, CommandCheck):
        return "{references}" if checker.needs_expected else ""
    return "expected" if isinstance(checker, PythonCheck) and checker.reads_expected else ""


def with_outputs(job: Job, loaded: Loaded, samples: Sequence[Sample], folder: Path) -> tuple[Sample, ...]:
    """Return samples, with what the reference makes of the model as it is where a check is handed that.

    All others have the reference run beside each candidate. Raises UsageError where a command names {references} and
    there are none: without them its verdict would be about a missing file, not about the model.
    """
    checker, settings = inner(job.checker), job.settings
    needed = isinstance(checker, CommandCheck) and checker.needs_expected
    if loaded.expected:  # files hold them
        return tuple(samples)
    if not _is_handed(job) or not samples:
        if needed and loaded.graph.inputs:
            raise UsageError(
                f"{checker.describe()}: there are no values for the model's inputs, so {{references}} would hold "
                "nothing. Give inputs=files inputs.path=..., or a check that does without {references}"
            )
        return tuple(samples)
    path = job.tools.at(settings.reference.model) if settings.reference.model else loaded.path
    made: Sequence[Mapping[str, TensorFile]] = [{} for _ in samples]
    try:
        made = outputs_of(settings, job.pool, path, [one.reference or one.feeds for one in samples], folder)
    except WinnowError as error:
        if needed:
            raise UsageError(f"{checker.describe()}: no values for {{references}}: {error}") from error
        log.info("no values of the model's outputs: %s", error)
    lacking = [name for name in loaded.graph.outputs if any(name not in one for one in made)]
    if needed and lacking:
        raise UsageError(
            f"{checker.describe()}: {{references}} would hold nothing for {', '.join(lacking)}: the reference's model "
            "has no output of that name"
        )
    return tuple(replace(one, expected=expected) for one, expected in zip(samples, made, strict=True))


def _is_handed(job: Job) -> bool:
    """Whether the check is handed the right values of outputs, whatever the kind of run."""
    checker, settings = inner(job.checker), job.settings
    if isinstance(checker, CommandCheck):
        return checker.wants_expected
    builds = isinstance(settings.checker, BuildsChecker) and settings.reference.model is not None
    return job.checker.wants_feeds and (settings.checker.runs_own_code or builds)
