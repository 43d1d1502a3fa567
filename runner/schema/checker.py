"""Settings of the `checker` group: how a candidate is judged."""

from collections.abc import Sequence
from enum import Enum
from typing import Any, ClassVar

from runner.exit_codes import UsageError
from runner.schema.settings import PathUse, setting, settings

AUTO = "auto"
"""`checker.preload`: what a script itself imports first, as far as that is known to bear a fork."""
_RUNTIME = "runner.checkers.runtime:RuntimeCheck"


class Metric(str, Enum):
    """How the difference of two tensors is measured."""

    elementwise = "elementwise"
    scale = "scale"
    fraction = "fraction"
    cosine = "cosine"
    # of all samples together: against the reference's outputs
    top1 = "top1"
    top5 = "top5"
    kl = "kl"
    sqnr = "sqnr"
    detections = "detections"
    # and against labels
    accuracy = "accuracy"
    miou = "miou"
    perplexity = "perplexity"
    map = "map"


class Statistic(str, Enum):
    """Which statistic of the absolute error is compared with the tolerance."""

    max = "max"
    mean = "mean"
    median = "median"
    quantile = "quantile"


class Tolerance(str, Enum):
    """Where the tolerance comes from."""

    fixed = "fixed"
    auto = "auto"


class NonFinite(str, Enum):
    """What a NaN (or Inf) in an output means when two runs are compared."""

    compare = "compare"
    fail = "fail"
    ignore = "ignore"


class NonFiniteOutput(str, Enum):
    """What a NaN (or Inf) in an output means where nothing is compared."""

    fail = "fail"
    ignore = "ignore"


class Golden(str, Enum):
    """Where the expected outputs of a candidate come from."""

    ahead = "ahead"
    candidate = "candidate"


class SameFailure(str, Enum):
    """Which failures of candidates count as the one under study."""

    # stage, kind and the normalized message
    strict = "strict"
    # stage and kind (exit 1, error TYPE or its message, death, timeout, nan or inf, mismatch), and of an exception its
    # class and line
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


class Better(Enum):
    """Which way a check's measure points."""

    lower = "lower"
    higher = "higher"


class ShowOutput(str, Enum):
    """Whose output a command checker shows; all of it is kept in files anyway."""

    failing = "failing"
    all = "all"
    none = "none"


@settings
class CheckerSettings:
    """What every checker has.

    ``implementation``: called with these settings, tools and all settings of the run, it makes the check. What the
    others say is what the rest of a run asks of any checker.
    """

    implementation: ClassVar[str] = ""
    # judges by code of the user's, or by a person, in its own way: the target is not what runs candidates
    runs_own_code: ClassVar[bool] = False
    # a person answers: one question at a time, each of them once
    asks_a_person: ClassVar[bool] = False
    # runs the target on the samples, and looks at what comes out
    runs_samples: ClassVar[bool] = False
    looks_at_values: ClassVar[bool] = False
    # can judge an engine that was built for it
    takes_engine: ClassVar[bool] = True

    name: str = "auto"
    timeout: float | None = setting(600.0, least=0.001)
    memory_mb: int | None = setting(None, least=1)
    # what is made of verdicts, not what they say: which failures count as the one under study
    same_failure: SameFailure = setting(SameFailure.kind, in_context=False)
    flaky: Flaky = setting(Flaky.auto, in_context=False)
    max_wrong: float = setting(0.01, least=1e-9, most=0.5, in_context=False)


@settings
class CommandChecker(CheckerSettings):
    """A command of the user's; its exit code and output are the verdict."""

    implementation = "runner.checkers.command:CommandCheck"
    runs_own_code = True

    name: str = "command"
    command: Any = setting(None, in_context=False)  # the words that it is split into are
    pass_codes: list[int] = setting([])
    fail_codes: list[int] = setting([])
    different_codes: list[int] = setting([])
    invalid_codes: list[int] = setting([])
    fail_regex: list[str] = setting([])
    show_output: ShowOutput = setting(ShowOutput.failing, in_context=False)
    measure: str | None = None
    measure_better: Better = Better.lower
    place: str | None = setting(None, path=PathUse.FOR_CHECK)
    keep_placed: bool = setting(False, in_context=False)
    iteration_info: str | None = setting(None, path=PathUse.FOR_CHECK, in_context=False)
    env: dict[str, str] = setting({})
    preload: Any = setting(AUTO, in_context=False)  # how a process is started, not what it is asked

    def __post_init__(self) -> None:
        for name, value in self.env.items():
            if not name or "=" in name or "\0" in f"{name}{value}":
                raise UsageError(
                    f"checker.env: {name!r}: {value!r} is no variable of an environment: names are there and hold no "
                    "'=', and neither holds a NUL. checker.env={NAME: value}"
                )
        given = self.preload
        if given != AUTO and not (isinstance(given, Sequence) and not isinstance(given, str)):
            raise UsageError(
                f"checker.preload={given}: it is {AUTO}, [] (no check is forked) or a list of modules: "
                "checker.preload=[onnx,numpy]"
            )


@settings
class InteractiveChecker(CheckerSettings):
    """Asks a person at the terminal."""

    implementation = "runner.checkers.interactive:InteractiveCheck"
    runs_own_code = asks_a_person = True

    name: str = "interactive"
    timeout: float | None = setting(None, least=0.001)
    place: str | None = setting(None, path=PathUse.FOR_CHECK)
    keep_placed: bool = False


@settings
class RunsChecker(CheckerSettings):
    """FAIL if the target cannot load or run the candidate."""

    implementation = _RUNTIME
    runs_samples = True

    name: str = "runs"


@settings
class BuildsChecker(CheckerSettings):
    """FAIL if the target cannot parse the candidate or build an engine of it, or if an output gets a wrong shape.

    A build that takes longer than ``timeout`` or more than ``memory_mb`` fails too.
    """

    implementation = _RUNTIME

    name: str = "builds"
    shapes: bool = True
    keep: list[str] = setting(["layers"])


@settings
class FiniteChecker(CheckerSettings):
    """FAIL if an output of the target has a NaN or an Inf."""

    implementation = _RUNTIME
    runs_samples = looks_at_values = True

    name: str = "finite"
    nan: NonFiniteOutput = NonFiniteOutput.fail
    inf: NonFiniteOutput = NonFiniteOutput.fail


@settings
class CompareChecker(CheckerSettings):
    """FAIL if the target's outputs differ from the reference's."""

    implementation = _RUNTIME
    runs_samples = looks_at_values = True

    name: str = "compare"
    metric: Any = Metric.scale.value
    statistic: Statistic = Statistic.max
    quantile: float = setting(0.99, least=0, most=1)
    tolerance: Tolerance = Tolerance.fixed
    failing_error: float | None = setting(None, least=1e-12)
    rtol: Any = 1e-2
    atol: Any = 1e-5
    fraction: float = setting(0.01, least=0, most=1)
    cosine: float = setting(1e-3, least=0)
    nan: NonFinite = NonFinite.compare
    inf: NonFinite = NonFinite.compare
    unequal: float = setting(0.0, least=0, most=1)
    bounds: dict[str, float] = setting({})
    labels: str | None = setting(None, path=PathUse.READ)
    boxes: list[str] = setting([])
    overlap: float = setting(0.5, least=0, most=1)
    golden: Golden = Golden.candidate
    outputs: list[str] = setting([])
    ignore: list[str] = setting([])

    def selects(self, output: str) -> bool:
        """Whether an output of the model is compared."""
        return output not in self.ignore and (not self.outputs or output in self.outputs)


@settings
class AutoChecker(CheckerSettings):
    """Loads, runs, finite, then target against reference: the pre-flight fixes which of these is under study."""

    implementation = _RUNTIME
    runs_samples = looks_at_values = True

    name: str = "auto"
    rtol: Any = 1e-2
    atol: Any = 1e-5


@settings
class PythonChecker(CheckerSettings):
    """A function of the user's: `check(model, inputs, expected) -> bool | str | number | dict`."""

    implementation = "runner.checkers.python:PythonCheck"
    runs_own_code = True
    takes_engine = False

    name: str = "python"
    file: str | None = setting(None, path=PathUse.READ)
    function: str = "check"
    python: str | None = setting(None, path=PathUse.READ | PathUse.PROGRAM)
    max_drop: Any = None
    max_rise: Any = None
    measure: str | None = None
    measure_better: Better = Better.lower
    baseline: float | None = None
