"""What a program can ask: a function for each strategy, all with the same arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from runner.api.given import Check, Inputs, Model
from runner.api.result import Result
from runner.api.run import run
from runner.jobs.listener import Checked
from runner.schema.backend import BackendSettings
from runner.schema.checker import CheckerSettings
from runner.schema.cut import CutSettings
from runner.schema.run import (
    ArtifactSettings,
    BudgetSettings,
    JournalSettings,
    ResultSettings,
    SanitizeSettings,
    WorkerSettings,
)
from runner.schema.strategy import StrategySettings

if TYPE_CHECKING:
    from typing_extensions import Unpack

Keys: TypeAlias = Mapping[str, Any]
"""Keys of a section as in a YAML file; of a group also ``name``, the option."""


class Options(TypedDict, total=False):
    """What every function takes besides the model and the check: the keys of `conf/`, with its defaults.

    A group (strategy, checker, target, reference, artifacts, workers) is the name of an option, a dict of its keys
    (``name``: the option) or settings; a section is a dict of its keys or settings. ``inputs``: files, arrays by name,
    a list of such samples, a function, or settings. ``folder``: where the run writes, ``outputs/DATE/TIME`` if not
    given. ``resume``: the folder of a run to go on with. ``progress``: is called with each `Checked`. ``in_process``:
    the check is called in this process, with all that this costs (docs/python.md).
    """

    inputs: Inputs
    strategy: str | Keys | StrategySettings
    checker: str | Keys | CheckerSettings
    target: str | Keys | BackendSettings
    reference: str | Keys | BackendSettings
    cut: Keys | CutSettings
    artifacts: str | Keys | ArtifactSettings
    workers: str | Keys | WorkerSettings
    budget: Keys | BudgetSettings
    journal: Keys | JournalSettings
    sanitize: Keys | SanitizeSettings
    result: Keys | ResultSettings
    audit: bool
    plan: bool
    resume: str | PathLike[str]
    folder: str | PathLike[str]
    progress: Callable[[Checked], Any]
    in_process: bool


def reduce(model: Model, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return the smallest part of ``model`` that still fails (`strategy=reduce`, or one of its searches).

    ``check``: a function ``check(model, inputs, expected)``, as of checker=python, or a command; None: ``checker``
    says what judges, and without it the target must load, run, stay finite and agree with the reference.
    """
    return run("reduce", model, check, options)


def precision(model: Model, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return the fewest nodes of ``model`` that must stay in high precision, and the mixed model."""
    return run("precision", model, check, options)


def triage(model: Model, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return what fails, why, since when, and what helps: one question after another."""
    return run("triage", model, check, options)


def layerwise(model: Model, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return how far each tensor of ``model`` is from the reference's, and which goes wrong first."""
    return run("layerwise", model, check, options)


def passes(model: Model, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return the optimizations of the target that the failure needs."""
    return run("passes", model, check, options)


def versions(model: Model, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return the releases of a package in which the failure is there, and the nearest good ones."""
    return run("versions", model, check, options)


def workaround(model: Model, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return what heals ``model`` without another release, and what it costs."""
    return run("workaround", model, check, options)


def extract(model: Model, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return named nodes of ``model`` as a model of their own (``strategy={"nodes": [..]}``), and its verdict."""
    return run("extract", model, check, options)


def repeat(model: Model = None, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return how often the same check passes (``strategy={"until": 20}``)."""
    return run("repeat", model, check, options)


def inspect(model: Model, **options: Unpack[Options]) -> Result:
    """Return what ``model`` is made of; nothing is checked."""
    return run("inspect", model, None, options)
