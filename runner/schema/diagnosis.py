"""Settings of the strategies that say whose failure it is: which pass, which release, which part, and what helps."""

from enum import Enum
from typing import Any

from runner.schema.settings import PathUse, setting, settings
from runner.schema.strategy import StrategySettings
from strategies.search import Task

RELEASES = "~/.cache/winnow/releases"
"""Where releases of packages are kept, for all runs."""


@settings
class PassesSettings(StrategySettings):
    """A search for the optimizations, or other switches, that a failure needs; the model stays whole."""

    implementation = "runner.jobs.variants.passes:run"
    tasks = frozenset({Task.SUBSET})

    name: str = "passes"
    search: str = "reduce"
    subject: str = "passes"
    switches: list[str] = setting([])
    extra_checks: int | None = setting(None, least=0)


@settings
class ExtractSettings(StrategySettings):
    """A part of a model that the user names; nothing is searched."""

    implementation = "runner.jobs.extract:run"
    cuts_model = True

    name: str = "extract"
    search: str = "extract"
    subject: str = "subgraph"
    nodes: list[str] = setting([])
    inputs: list[str] = setting([])
    outputs: list[str] = setting([])


@settings
class InspectSettings(StrategySettings):
    """What a model or an engine is made of, and why the target does not load it; nothing is checked or searched."""

    implementation = "runner.jobs.inspect:run"
    checks = False

    name: str = "inspect"
    search: str = "inspect"
    subject: str = "model"
    run: bool = True


class Patches(str, Enum):
    """Which releases of one minor version are asked."""

    last = "last"
    all = "all"


@settings
class VersionsSettings(StrategySettings):
    """A search through the releases of a package; the model stays whole."""

    implementation = "runner.jobs.variants.versions:run"
    tasks = frozenset({Task.HISTORY})
    needs_model = False

    name: str = "versions"
    search: str = "nearest"
    subject: str = "versions"
    package: str = "onnxruntime"
    versions: Any = None
    bad: Any = None
    patches: Patches = Patches.last
    interpreters: list[str] = setting([], path=PathUse.READ | PathUse.PROGRAM)
    besides: list[str] = setting([])
    exhaustive: bool = False
    cache: str = setting(RELEASES, path=PathUse.FOLDER)
    offline: bool = False
    pip: list[str] = setting([])
    install_timeout: float | None = setting(600.0, least=0.001)


@settings
class TriageSettings(StrategySettings):
    """The flowchart of a failure: one question after another, each a run of its own."""

    implementation = "runner.jobs.triage.run:run"
    cuts_model = True

    name: str = "triage"
    search: str = "triage"
    subject: str = "triage"
    steps: list[str] | None = None
    switches: list[str] = setting([])
    versions: Any = None
    cache: str = setting(RELEASES, path=PathUse.FOLDER)


@settings
class LayerwiseSettings(StrategySettings):
    """All values inside the model against those of the reference; nothing is searched."""

    implementation = "runner.jobs.layerwise.run:run"
    cuts_model = True

    name: str = "layerwise"
    search: str = "layerwise"
    subject: str = "layers"
    memory_mb: int | None = setting(None, least=1)
    own: bool = True


@settings
class WorkaroundSettings(StrategySettings):
    """Candidates that may keep a failure away; each is shown to pass on the whole model, or not to."""

    implementation = "runner.jobs.workaround.run:run"

    name: str = "workaround"
    search: str = "workaround"
    subject: str = "workaround"
    results: list[str] = setting([], path=PathUse.READ)
    disabled_optimizers: list[Any] = setting([])
    raised: list[str] = setting([])
    nodes: list[str] = setting([])
    interpreters: list[str] = setting([], path=PathUse.READ | PathUse.PROGRAM)
    cache: str = setting(RELEASES, path=PathUse.FOLDER)
    tactics: str | None = setting(None, path=PathUse.READ)
    fresh: int = setting(20, least=0)
    latency_runs: int = setting(30, least=0)


@settings
class RecheckSettings(StrategySettings):
    """Kept results, each checked again as its own replay says."""

    implementation = "runner.sweeps.recheck:run"
    needs_model = checks = False
    repeats = True

    name: str = "recheck"
    search: str = "recheck"
    subject: str = "kept"
    results: list[str] = setting([], path=PathUse.FOLDER)


@settings
class BugsSettings(StrategySettings):
    """Kept results, grouped by what is wrong."""

    implementation = "runner.sweeps.bugs:run"
    needs_model = checks = False
    repeats = True

    name: str = "bugs"
    search: str = "bugs"
    subject: str = "failures"
    results: list[str] = setting([], path=PathUse.FOLDER)
