"""Runs about tactics: build again and again and compare (`tactic_repeat`), pin what differs (`tactic_isolate`)."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.candidate import Candidate
from runner.checkers.backend_run import BackendRun, Side
from runner.errors import NotApplicable, UsageError
from runner.jobs.good_outputs import load_whole
from runner.jobs.job import Job
from runner.jobs.tactics.build_before_check import Building
from runner.jobs.tactics.compare import recordings_of
from runner.jobs.tactics.recorded_tactics import SUFFIX, Recording
from runner.jobs.tactics.repeat_and_isolate import Bench, pair_of
from runner.jobs.tactics.suspects import comparable
from runner.loading.load import Loaded
from runner.loading.sanitize import own_file_only
from runner.program_name import program_name
from runner.report.summary import Summary
from runner.schema.backend import TensorRtBackend
from runner.schema.installed_choices import SCHEMAS
from runner.schema.root import Settings
from runner.schema.strategy import TacticIsolateSettings, TacticRepeatSettings, TacticSettings, chosen


def run(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Run ``tactic_repeat`` or ``tactic_isolate``, and leave the result folder behind.

    Raises NotApplicable where TensorRT times no tactics, before any work, and UsageError.
    """
    with Job.opened(settings, folder, command) as job:
        library = _library(job)
        strategy, pair = settings.strategy, None
        if isinstance(strategy, TacticIsolateSettings) and (strategy.good or strategy.bad):
            pair = _pair(settings)
        bench = _bench(job, load_whole(job, job.folder), library)
        return bench.repeat() if isinstance(strategy, TacticRepeatSettings) else bench.isolate(pair)


def _library(job: Job) -> str:
    """Return what builds, by name and version, if tactics can be recorded there."""
    settings = job.settings
    name, target = settings.strategy.name, settings.target
    if not isinstance(target, TensorRtBackend):
        raise UsageError(f"strategy={name} target={target.name}: no engine is built there. Set target=tensorrt")
    if not settings.checker.takes_engine:
        able = (name for name, kind in SCHEMAS["checker"].items() if getattr(kind, "takes_engine", False))
        raise UsageError(
            f"strategy={name} checker={settings.checker.name}: it is handed no engine. Choose one of "
            f"{', '.join(able)}: checker=command checker.command='python check.py {{engine}}'"
        )
    if target.timing_cache:
        raise UsageError(
            f"target.timing_cache={target.timing_cache}: with timings from a file all builds choose alike. Leave it "
            f"out: strategy={name} keeps a cache of its own for each build"
        )
    own_file_only(settings, "builds")
    reply = job.pool.call(
        "tactics_support", {"backend": target.to_json()}, python=target.python, timeout=settings.workers.timeout
    )
    if reply.value is None:
        raise UsageError(f"target=tensorrt: {reply.failure.message if reply.failure else reply.death}")
    if reply.value["why_not"]:
        python = f" target.python={shlex.quote(target.python)}" if target.python else ""
        raise NotApplicable(
            f"target=tensorrt: {reply.value['why_not']}. To only build again and again: {program_name()} "
            f"strategy=repeat checker=builds target=tensorrt{python} model={settings.model} strategy.until=20"
        )
    return f"{reply.value['flavor']} {reply.value['version']}"


def _pair(settings: Settings) -> tuple[Recording, Recording]:
    """Return the good and the bad build that differ least, of those that are given."""
    good, bad = recordings_of(settings, "good"), recordings_of(settings, "bad")
    for key, side in (("good", good), ("bad", bad)):
        if not any(recording.has_keys for recording in side):
            raise UsageError(
                f"strategy.{key}={getattr(settings.strategy, key)}: tactic replays of Polygraphy hold no keys of the "
                "timing cache, so they cannot be pinned. Record builds anew: strategy=tactic_repeat"
            )
    comparable(good, bad)
    return pair_of(good, bad)


def _bench(job: Job, loaded: Loaded, library: str) -> Bench:
    settings = job.settings
    limits = chosen(settings.strategy, TacticSettings).timeout, settings.workers.memory_mb
    side = Side("target", settings.target, job.tools, *limits, keep=("engine", "log"))

    def build(candidate: Candidate, request: Mapping[str, Any]) -> BackendRun:
        assert candidate.model, "what is built is a model"
        feeds = [sample.feeds for sample in candidate.samples]
        return side.run(candidate.model, feeds, candidate.folder, tactics=request)

    identity = {**side.identity(), "library": library, "limits": json.dumps(limits)}
    checker = Building(job.checker, build, identity, loaded.sha256, library)
    artifacts = replace(settings.artifacts, paths=[*settings.artifacts.paths, f"{{dir}}/{SUFFIX}"])
    building = replace(job, checker=checker, settings=replace(settings, artifacts=artifacts))
    return Bench(job, building, loaded, side)
