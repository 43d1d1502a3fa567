"""Subject `versions`: the model as it is, run by one release after another; a trial is one release."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from packaging.version import Version

from runner.candidate import Candidate, Invalid, Sample, Variant
from runner.jobs.versions.release_cache import Installed
from strategies.search_space import Space
from strategies.trial import Trial


@dataclass(frozen=True)
class Release:
    """``python``: an interpreter that has it; None: it is installed when it is asked."""

    package: str
    version: Version
    python: Path | None = None

    def __str__(self) -> str:
        return f"{self.package} {self.version}"


@dataclass(frozen=True)
class Releases:
    """``releases``: oldest first. ``install``: gives one of them an interpreter. ``model``: the user's file."""

    model: Path | None
    releases: tuple[Release, ...]
    install: Callable[[Version], Installed]
    samples: tuple[Sample, ...] = ()
    environment: str = ""

    @cached_property
    def space(self) -> Space:
        """The releases, oldest first."""
        return Space(tuple(range(len(self.releases))))

    def identity(self) -> dict[str, str]:
        """Return which releases a trial counts, and what they run in."""
        releases = json.dumps([(str(one), str(one.python or "")) for one in self.releases])
        return {"kind": "versions", "releases": releases, "environment": self.environment}

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return releases by package and version."""
        return tuple(str(self.releases[number]) for number in trial)

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Return the model, to be run by a release; Invalid where that cannot be installed."""
        (number,) = trial
        release = self.releases[number]
        python, why = release.python, ""
        if python is None:
            installed = self.install(release.version)
            python, why = installed.python, installed.why_not
        if python is None:
            return Invalid(f"{release}: {why}")
        return Candidate(self.model, folder, trial, self.samples, variant=Variant(python=str(python)))
