"""Samples for checks: the recorded inputs, and others of their kind that no check has seen yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count

from runner.candidate import Sample
from runner.jobs.good_outputs import with_outputs
from runner.jobs.job import Job
from runner.loading.load import Loaded
from runner.loading.parent import whole_samples
from runner.loading.profiles import profiled_samples
from runner.model.values.recorded import TensorFile
from runner.schema.inputs import PythonInputs, RandomInputs
from runner.session.subject import values_digest

_SEED = 0x9E3779B9


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
    return with_outputs(job, loaded, samples, folder)
