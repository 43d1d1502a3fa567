"""Comparing recorded tactics: neither a model nor TensorRT is needed."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path

from runner.errors import UsageError
from runner.jobs.tactics.recorded_tactics import SUFFIX, Recording, collect
from runner.jobs.tactics.suspects import Suspect, suspects
from runner.judgment import Status
from runner.report.bundle import write_bundle
from runner.report.summary import Seconds, Summary
from runner.schema.root import Settings
from runner.text import counted

log = logging.getLogger(__name__)


def compare(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Compare two sets of recordings; neither a model nor TensorRT is needed. Raises UsageError."""
    started = time.monotonic()
    good, bad = (_not_pinned(recordings_of(settings, key), settings, key) for key in ("good", "bad"))
    found = suspects(good, bad)
    builds = f"{counted(len(good), 'good build')} and {counted(len(bad), 'bad build')} compared"
    status = Status.found if found else Status.nothing_to_find
    summary = Summary(
        status=status,
        exit_code=status.exit_code,
        strategy=settings.strategy.name,
        message=f"{builds}: {described(found)}",
        suspects=tuple(suspect.to_json() for suspect in found),
        statistics={"good_builds": len(good), "bad_builds": len(bad)},
        seconds=Seconds(time.monotonic() - started),
    )
    write_bundle(settings, folder, summary, Path.cwd(), command, None)
    return summary


def recordings_of(settings: Settings, key: str) -> list[Recording]:
    """Return the recordings that ``strategy.good`` or ``strategy.bad`` names."""
    path = getattr(settings.strategy, key)
    if not path:
        raise UsageError(
            f"strategy.{key}=: which recordings? Give a file or a folder of {key} ones: "
            "strategy.good=RUN/artifacts/good strategy.bad=RUN/artifacts/bad"
        )
    try:
        found, skipped = collect(Path(path))
    except OSError as error:
        raise UsageError(f"strategy.{key}={path}: {error.strerror or error}") from None
    for file, why in skipped.items():
        log.warning("%s: skipped: %s", file, why)
    if not found:
        first = next((f" ({file.name}: {why})" for file, why in skipped.items()), "")
        raise UsageError(
            f"strategy.{key}={path}: no recorded tactics there{first}. What can be read: {SUFFIX} of a run of "
            "strategy=tactic_repeat, tactic replays of Polygraphy (.json), verbose logs of builds with an editable "
            "timing cache (.log, .txt)"
        )
    return found


def _not_pinned(recordings: Sequence[Recording], settings: Settings, key: str) -> list[Recording]:
    """Leave out builds whose tactics were prescribed: what TensorRT did not choose tells nothing here."""
    for one in recordings:
        if one.pinned:
            log.warning("%s: left out: its tactics were pinned", one.source)
    found = [one for one in recordings if not one.pinned]
    if not found:
        raise UsageError(
            f"strategy.{key}={getattr(settings.strategy, key)}: the tactics of all builds there were pinned, "
            "not chosen. Give builds that chose theirs: RUN/artifacts of strategy=tactic_repeat"
        )
    return found


def described(found: Sequence[Suspect]) -> str:
    """Log the first suspects, and say how many there are."""
    for one in found[:20]:
        log.info("%s: %s in %d of %d bad builds, in no good one", one.choice.layer, one.choice.shown, one.bad, one.of)
    if not found:
        return "no tactic was seen in bad builds only; more builds may tell"
    layers = len({one.choice.layer for one in found})
    return f"{counted(len(found), 'tactic')} of {counted(layers, 'layer')} seen in bad builds only"
