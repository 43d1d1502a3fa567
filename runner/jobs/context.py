"""The context of a run: everything that a verdict depends on besides the trial, in named parts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.checkers.backend_run import digests_of
from runner.checkers.checker import Checker
from runner.loading.load import Loaded
from runner.report.replay import drift, mapping_in
from runner.schema.backend import BackendSettings
from runner.schema.root import Settings
from runner.schema.settings import PathUse, context_of, path_values
from runner.session.subject import Subject, values_digest
from runner.workers.pool import Pool


def context(
    settings: Settings, checker: Checker, pool: Pool, loaded: Loaded | None, subject: Subject
) -> dict[str, str]:
    """Return the named parts; journals of equal contexts may share verdicts."""
    parts = {
        "strategy": settings.strategy.subject,
        **{f"subject.{key}": value for key, value in subject.identity().items()},
        "cut": json.dumps({**context_of(settings.cut), "record": "ahead" if settings.cut.records else "off"}),
        **{f"check.{key}": value for key, value in checker.identity().items()},
    }
    if loaded:
        parts["model"] = loaded.sha256
        names = loaded.graph.inputs
        parts["inputs"] = values_digest(
            {name: sample[name] for name in names if name in sample} for sample in loaded.recorded.values
        )
        if loaded.expected:
            parts["expected"] = values_digest(loaded.expected)
        if loaded.inherited:
            parts["reference.model"] = loaded.inherited.digest
    if loaded or not settings.checker.runs_own_code:
        parts["reference"] = _backend(settings.reference, pool)
    if not settings.checker.runs_own_code:
        parts["target"] = _backend(settings.target, pool)
    return parts


def versions(settings: Settings, pool: Pool) -> dict[str, str]:
    """Return the versions of what takes part, the target's under their own names."""
    found = dict(pool.versions(settings.target.python))
    if settings.reference.python != settings.target.python:
        found |= {f"reference.{key}": value for key, value in pool.versions(settings.reference.python).items()}
    return found


def drifted(settings: Settings, now: Mapping[str, str]) -> tuple[str, ...]:
    """Name what has changed since the run that a replay file came from; all that is new about the subject is one line.

    What stands for a subject of another kind can only differ: both replay files hold it. A replay names its strategy:
    whoever runs it has chosen another one.
    """
    before = settings.recorded.get("context", {})
    if isinstance(before, Mapping) and "recording" in before:
        return drift(*_in_both(before, now))
    changes = drift(before, dict(now)) if before else ()
    if not (isinstance(before, Mapping) and before) or before.get("strategy") == now.get("strategy"):
        return changes
    chosen = f"strategy={settings.strategy.name} is your own choice; recorded was one on another subject"
    others = (change for change in changes if not change.startswith(("subject.", "strategy changed")))
    return (f"{chosen} ({before.get('strategy')}, now {now.get('strategy')})", *others)


def _in_both(earlier: Mapping[str, Any], now: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a context of an earlier version (with a part `recording`) and one of today both say."""
    shapes, _, record = str(earlier["recording"]).partition(", ")
    before: dict[str, Any] = {**earlier, "cut": {"record": record, "shapes": shapes}}
    shared: tuple[dict[str, Any], dict[str, Any]] = {}, {}
    for name in (name for name in before if name in now):
        was, is_now = mapping_in(before[name]), mapping_in(now[name])
        if was is not None and is_now is not None:
            # earlier versions wrote nan and inf of checker=finite as true and false
            was = {key: ("ignore", "fail")[value] if key in ("nan", "inf") and isinstance(value, bool) else value
                   for key, value in was.items()}  # fmt: skip
            keys = [key for key in was if key in is_now]
            shared[0][name], shared[1][name] = {key: was[key] for key in keys}, {key: is_now[key] for key in keys}
        elif was is None and is_now is None:
            shared[0][name], shared[1][name] = before[name], now[name]
    return shared


def _backend(backend: BackendSettings, pool: Pool) -> str:
    # a library that is no path is a package that tells its place
    libraries = [path for _, use, path in path_values(backend) if PathUse.LIBRARY in use]
    packages = [library for library in libraries if not Path(library).is_absolute()]
    versions = pool.versions(backend.python, packages)
    return json.dumps({**context_of(backend), "files": digests_of(backend, Path), "versions": versions}, sort_keys=True)
