"""Samples for checks: the recorded inputs, and others of their kind that no check has seen yet."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from runner.candidate import Sample
from runner.errors import WinnowError
from runner.jobs.job import Job
from runner.jobs.precision.both_precisions import outputs_of
from runner.loading.load import Loaded
from runner.loading.parent import whole_samples
from runner.loading.profiles import profiled_samples
from runner.model.values.recorded import TensorFile
from runner.schema.checker import BuildsChecker
from runner.schema.inputs import PythonInputs, RandomInputs
from runner.session.subject import values_digest

log = logging.getLogger(__name__)

_SEED = 0x9E3779B9


def with_outputs(job: Job, samples: Sequence[Sample], folder: Path) -> tuple[Sample, ...]:
    """Return samples, with what the reference makes of the model as it is where a check looks at that beforehand.

    All others have the reference run beside each candidate.
    """
    checker, model = job.settings.checker, job.settings.reference.model
    made: Sequence[Mapping[str, TensorFile]] = [{} for _ in samples]
    if samples and model and job.checker.wants_feeds and (checker.runs_own_code or isinstance(checker, BuildsChecker)):
        fed = [one.reference or one.feeds for one in samples]
        try:
            made = outputs_of(job.settings, job.pool, job.tools.at(model), fed, folder)
        except WinnowError as error:
            log.info("no values of the model's outputs: %s", error)
    return tuple(replace(one, expected=expected) for one, expected in zip(samples, made, strict=True))


def fresh_inputs(job: Job, loaded: Loaded, wanted: int) -> tuple[Sample, ...]:
    """Return so many samples that are none of the recorded ones; fewer where there are no more, of files none.

    Random ones are drawn with other seeds; a function of the user's is called again as long as it gives new ones.
    """
    inputs = job.settings.inputs
    if not job.checker.wants_feeds or not loaded.graph.inputs or not isinstance(inputs, RandomInputs | PythonInputs):
        return ()
    seen = {values_digest([sample]) for sample in loaded.recorded.values}
    found: list[Mapping[str, TensorFile]] = []
    for attempt in count(1):
        if len(found) >= wanted:
            break
        if isinstance(inputs, RandomInputs):
            inputs = replace(inputs, samples=wanted, seed=inputs.seed + _SEED)
        place = job.folder / "inputs" / f"fresh_{attempt}"
        drawn, _ = profiled_samples(replace(job.settings, inputs=inputs), loaded.graph, job.pool, place)
        new = {values_digest([sample]): sample for sample in drawn}
        new = {digest: sample for digest, sample in new.items() if digest not in seen}
        seen |= {*new}
        found += new.values()
        if not new:
            break
    folder = job.folder / "values" / "fresh"
    samples = whole_samples(job.settings, loaded.graph, job.pool, found[:wanted], folder / "parent")
    return with_outputs(job, samples, folder)
