"""Settings of the `checker` group: how a candidate is judged."""

from __future__ import annotations

from enum import Enum
from typing import Any

from runner.schema.settings import PathUse, setting, settings


class Metric(str, Enum):
    """How the difference of two tensors is measured (a: target, b: reference)."""

    # share of elements with |a - b| > atol + rtol * |b| must be 0
    elementwise = "elementwise"
    # statistic(|a - b|) <= atol + rtol * max(|b|): robust against elements near zero
    scale = "scale"
    # share of elements with |a - b| > atol + rtol * max(|b|) must be <= fraction
    fraction = "fraction"
    # 1 - cos(a, b) <= cosine
    cosine = "cosine"


class Statistic(str, Enum):
    """Which statistic of the absolute error is compared with the tolerance."""

    max = "max"
    mean = "mean"
    median = "median"
    quantile = "quantile"


class Tolerance(str, Enum):
    """Where the tolerance comes from."""

    # rtol and atol as given
    fixed = "fixed"
    # between the noise floor of each tensor (two good runs) and the error of the failing model
    auto = "auto"


class NonFinite(str, Enum):
    """What a NaN (or Inf) in an output means when two runs are compared."""

    # a mismatch, unless the reference has the same one at the same place
    compare = "compare"
    # always a failure
    fail = "fail"
    # such elements are left out
    ignore = "ignore"


class NonFiniteOutput(str, Enum):
    """What a NaN (or Inf) in an output means where nothing is compared."""

    fail = "fail"
    ignore = "ignore"


class Golden(str, Enum):
    """Where the expected outputs of a candidate come from."""

    # recorded once from the reference run of the original model
    ahead = "ahead"
    # the reference runs each candidate on the same feeds
    candidate = "candidate"


class SameFailure(str, Enum):
    """Which failures of candidates count as the one under study."""

    # stage, kind and the normalized message
    strict = "strict"
    # stage and kind (exit 1, error TYPE, death, timeout, nan or inf, mismatch), and of an exception its class and line
    kind = "kind"
    # the stage (load, build, infer, compare, check)
    stage = "stage"
    # every failure
    any = "any"


class Flaky(str, Enum):
    """Whether a check is expected to answer differently when it is repeated."""

    # found out: some verdicts are repeated, and rates are measured where two differ
    auto = "auto"
    # rates are measured beforehand, and every answer is repeated as they require
    always = "always"
    # one check an answer
    never = "never"


class ShowOutput(str, Enum):
    """Whose output a command checker shows; all of it is kept in files anyway."""

    failing = "failing"
    all = "all"
    none = "none"


@settings
class CheckerSettings:
    """What every checker has."""

    name: str = "auto"
    # seconds one check may take; null: no limit
    timeout: float | None = setting(600.0, least=0.001)
    # resident MiB that one check and its children may use; null: most of what there is, and more is no failure
    memory_mb: int | None = setting(None, least=1)
    # what is made of verdicts, not what they say: which failures count as the one under study
    same_failure: SameFailure = setting(SameFailure.kind, in_context=False)
    # whether the same candidate may get different verdicts
    flaky: Flaky = setting(Flaky.auto, in_context=False)
    # how often, at most, the whole run of a flaky check may end with a wrong answer
    max_wrong: float = setting(0.01, least=1e-9, most=0.5, in_context=False)


@settings
class CommandChecker(CheckerSettings):
    """A command of the user's; its exit code and output are the verdict."""

    name: str = "command"
    # an argv list, or a string split as a shell would split it (no shell is started)
    command: Any = setting(None, in_context=False)  # the words that it is split into are
    # exit codes that mean PASS, whatever else is set (excludes fail_codes)
    pass_codes: list[int] = setting([])
    # exit codes that mean FAIL; any other code passes. Empty: every code but 0 fails
    fail_codes: list[int] = setting([])
    # exit codes of a failure that is not the one under study
    different_codes: list[int] = setting([])
    # exit codes that say nothing (invalid candidate, broken check): UNRESOLVED
    invalid_codes: list[int] = setting([])
    # regular expressions; FAIL only if one is found in stdout or stderr
    fail_regex: list[str] = setting([])
    show_output: ShowOutput = setting(ShowOutput.failing, in_context=False)
    # a regular expression whose group is a number that the command prints, larger is worse: how bad a failure is
    measure: str | None = None
    # also put the candidate at this path before each check (never over a file of the user's)
    place: str | None = setting(None, path=PathUse.FOR_CHECK)
    # leave the placed candidate there after the last check
    keep_placed: bool = setting(False, in_context=False)
    # write {"iteration": i, "phase": .., "label": .., "nodes": [..]} to this JSON file before each check
    iteration_info: str | None = setting(None, path=PathUse.FOR_CHECK, in_context=False)
    # extra environment variables
    env: dict[str, str] = setting({})


@settings
class InteractiveChecker(CheckerSettings):
    """Asks a person at the terminal."""

    name: str = "interactive"
    timeout: float | None = setting(None, least=0.001)
    place: str | None = setting(None, path=PathUse.FOR_CHECK)
    keep_placed: bool = False


@settings
class RunsChecker(CheckerSettings):
    """FAIL if the target cannot load or run the candidate."""

    name: str = "runs"


@settings
class BuildsChecker(CheckerSettings):
    """FAIL if the target cannot parse the candidate or build an engine of it, or if an output gets a wrong shape.

    A build that takes longer than ``timeout`` or more than ``memory_mb`` fails too.
    """

    name: str = "builds"
    # whether a built engine's output shapes are compared with the recorded ones
    shapes: bool = True
    # what of each build is kept beside the candidate: any of engine, log (everything said), layers (what was fused)
    keep: list[str] = setting(["layers"])


@settings
class FiniteChecker(CheckerSettings):
    """FAIL if an output of the target has a NaN or an Inf."""

    name: str = "finite"
    nan: NonFiniteOutput = NonFiniteOutput.fail
    inf: NonFiniteOutput = NonFiniteOutput.fail


@settings
class CompareChecker(CheckerSettings):
    """FAIL if the target's outputs differ from the reference's."""

    name: str = "compare"
    # a Metric, or a list of them: a failure by any of them is one
    metric: Any = Metric.scale.value
    statistic: Statistic = Statistic.max
    quantile: float = setting(0.99, least=0, most=1)
    tolerance: Tolerance = Tolerance.fixed
    # a number, or {output: number, "": all others}
    rtol: Any = 1e-2
    atol: Any = 1e-5
    fraction: float = setting(0.01, least=0, most=1)
    cosine: float = setting(1e-3, least=0)
    nan: NonFinite = NonFinite.compare
    inf: NonFinite = NonFinite.compare
    golden: Golden = Golden.candidate
    # outputs to compare, by name; empty: all
    outputs: list[str] = setting([])


@settings
class AutoChecker(CheckerSettings):
    """Loads, runs, finite, then target against reference: the pre-flight fixes which of these is under study."""

    name: str = "auto"
    # a number, or {output: number, "": all others}
    rtol: Any = 1e-2
    atol: Any = 1e-5


@settings
class PythonChecker(CheckerSettings):
    """A function of the user's: `check(model, inputs, expected) -> bool | str | number | dict`."""

    name: str = "python"
    # path of a Python file
    file: str | None = setting(None, path=PathUse.READ)
    function: str = "check"
    # another interpreter to run it with; null: this one
    python: str | None = setting(None, path=PathUse.READ | PathUse.PROGRAM)
    # how far the number that it returns may fall below the baseline (more is better): 0.01, or 1%
    max_drop: Any = None
    # the same for a number that may not rise (less is better)
    max_rise: Any = None
    # a regular expression whose group is a number that the function prints, larger is worse: how bad a failure is (or
    # it returns a dict with 'measure')
    measure: str | None = None
    # the number of a good model; null: that of the model in high precision (strategy=precision)
    baseline: float | None = None
