"""repro.py: one file that shows the failure of the reduced model beside it, with onnx and numpy alone.

The script is a fixed template; what was found goes into it as one literal of plain values, so no name of a node, a
tensor or a file can become code.
"""

from __future__ import annotations

import math
import pprint
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from runner.checkers.rules import rules_of
from runner.report.atomic import write_text
from runner.report.summary import Summary
from runner.schema.backend import BackendSettings, OnnxRuntimeBackend
from runner.schema.checker import (
    AutoChecker,
    BuildsChecker,
    CommandChecker,
    CompareChecker,
    FiniteChecker,
    Golden,
    InteractiveChecker,
    PythonChecker,
)
from runner.schema.root import Settings

REPRO_NAME = "repro.py"
EXTENSIONS = "onnxruntime_extensions"
_TEMPLATE = Path(__file__).with_name("repro_template.txt")
_BUILD_TEMPLATE = Path(__file__).with_name("repro_build_template.txt")
_RUNTIME_CHECKERS = ("auto", "runs", "finite", "compare")
# failures after which a process is not there to tell of them
_ENDS_THE_PROCESS = ("death", "timeout", "memory", "exit")


@dataclass(frozen=True)
class Runtime:
    """How one side runs: a backend's settings. ``model``: another model beside repro.py, None: the reduced one."""

    name: str = "onnxruntime"
    providers: tuple[Any, ...] = ("CPUExecutionProvider",)
    optimization: str = "all"
    session_options: Mapping[str, str] = field(default_factory=dict)
    config_entries: Mapping[str, str] = field(default_factory=dict)
    custom_ops: tuple[str, ...] = ()
    threads: int = 1
    model: str | None = None


@dataclass(frozen=True)
class Facts:
    """What repro.py needs besides the summary.

    ``model`` and ``data`` (one test_data_set folder a sample) are relative to the folder of repro.py. ``reference``
    None: the outputs in ``data`` are the good ones. ``limit``: the measured limit of ``tolerance=auto``, in the unit of
    the metric; None: rtol and atol say it, by output, "" for all others. ``cwd``: where commands ran.
    ``backend``: settings of a target that only builds. ``nan`` / ``inf``: ``ignore``, ``fail`` or
    ``compare``.
    """

    checker: str
    target: Runtime = field(default_factory=Runtime)
    reference: Runtime | None = None
    model: str = "reduced.onnx"
    data: tuple[str, ...] = ("test_data_set_0",)
    metrics: tuple[str, ...] = ("scale",)
    statistic: str = "max"
    quantile: float = 0.99
    rtol: Mapping[str, float] = field(default_factory=lambda: {"": 1e-2})
    atol: Mapping[str, float] = field(default_factory=lambda: {"": 1e-5})
    fraction: float = 0.01
    cosine: float = 1e-3
    nan: str = "compare"
    inf: str = "compare"
    outputs: tuple[str, ...] = ()
    limit: float | None = None
    command: tuple[str, ...] = ()
    pass_codes: tuple[int, ...] = ()
    fail_codes: tuple[int, ...] = ()
    different_codes: tuple[int, ...] = ()
    invalid_codes: tuple[int, ...] = ()
    fail_regex: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    place: str | None = None
    cwd: str | None = None
    timeout: float | None = None
    memory_mb: int | None = None
    file: str | None = None
    function: str = "check"
    backend: Mapping[str, Any] = field(default_factory=dict)


def facts_of(settings: Settings, cwd: Path) -> Facts:
    """Return the facts of a configuration; a reference outside the bundle gives way to the recorded outputs.

    ``cwd``: where the user stands. ``model``, ``data`` and ``limit`` keep their defaults.
    """
    checker = settings.checker
    given: dict[str, Any] = {}
    reference: Runtime | None = _runtime(settings.reference, cwd)
    if settings.reference.model or settings.reference.python:
        reference = None
    if isinstance(checker, CommandChecker):
        names = ("pass_codes", "fail_codes", "different_codes", "invalid_codes", "fail_regex")
        given = {name: tuple(getattr(checker, name)) for name in names}
        words = shlex.split(checker.command) if isinstance(checker.command, str) else map(str, checker.command or ())
        given.update(command=tuple(words), env=dict(checker.env), place=checker.place)
    elif isinstance(checker, InteractiveChecker):
        given = {"place": checker.place}
    elif isinstance(checker, FiniteChecker):
        given = {"nan": "fail" if checker.nan else "ignore", "inf": "fail" if checker.inf else "ignore"}
    elif isinstance(checker, CompareChecker):
        numbers = ("statistic", "quantile", "fraction", "cosine", "nan", "inf")
        rules = rules_of(checker)
        given = {name: getattr(checker, name) for name in numbers} | {"outputs": tuple(checker.outputs)}
        given |= {"metrics": tuple(one.value for one in rules.metrics), "rtol": rules.rtol, "atol": rules.atol}
        reference = None if checker.golden is Golden.ahead else reference
    elif isinstance(checker, BuildsChecker):
        plugins = [str(cwd / Path(path).expanduser()) for path in getattr(settings.target, "plugins", ())]
        given = {"backend": {**settings.target.to_json(), "plugins": plugins}}
    elif isinstance(checker, AutoChecker):
        rules = rules_of(checker)
        given = {"rtol": rules.rtol, "atol": rules.atol}
    elif isinstance(checker, PythonChecker):
        given = {
            "file": str(cwd / Path(checker.file).expanduser()) if checker.file else None,
            "function": checker.function,
        }
    return Facts(
        checker=checker.name,
        target=_runtime(settings.target, cwd),
        reference=reference,
        cwd=str(cwd),
        timeout=checker.timeout,
        memory_mb=checker.memory_mb,
        **given,
    )


def write_repro(folder: Path, summary: Summary, facts: Facts) -> Path:
    """Write ``repro.py`` into ``folder``, beside ``facts.model`` and ``facts.data``; return its path.

    Run by any Python >= 3.8, it exits with 1 if the failure shows, 0 if not, 2 if that machine cannot tell.
    """
    signature = dict(summary.signature or {})
    kind = signature.get("kind", "")
    checker = _checker_of(facts.checker, signature.get("stage", ""), kind)
    sides = [facts.target, *([facts.reference] if facts.reference and checker == "compare" else [])]
    needs = sorted({side.name for side in sides} & {"onnxruntime"}) if checker in _RUNTIME_CHECKERS else []
    shown = [signature.get("stage", ""), kind, signature.get("detail", "")]
    literal = _literal(
        {
            **asdict(facts),
            "checker": checker,
            "signature": ": ".join(part for part in shown if part),
            "stage": signature.get("stage", ""),
            "kind": kind,
            "in_a_child": kind.startswith(_ENDS_THE_PROCESS),
            "needs": needs,
            "nodes": list(summary.culprits),
            "versions": dict(summary.versions),
        }
    )
    text = (_BUILD_TEMPLATE if checker == "builds" else _TEMPLATE).read_text(encoding="utf-8")
    words = {"@NEEDS@": "".join(f", and {name}" for name in needs), "@FACTS@": literal}
    for word in ("@NEEDS@", "@FACTS@"):
        before, mark, after = text.partition(word)
        text = before + (words[word] if mark else "") + after
    path = folder / REPRO_NAME
    write_text(path, text)
    return path


def _checker_of(name: str, stage: str, kind: str) -> str:
    """What shows a failure of this kind: every runtime checker can also meet a model that does not run."""
    if name not in _RUNTIME_CHECKERS:
        return name
    if kind.startswith(("error", *_ENDS_THE_PROCESS)):
        return "runs"
    if name == "auto":
        # a comparison meets NaN and Inf as well
        return "finite" if kind in ("nan", "inf") and stage != "compare" else "compare"
    return name


def _runtime(settings: BackendSettings, cwd: Path) -> Runtime:
    if not isinstance(settings, OnnxRuntimeBackend):
        return Runtime(settings.name, providers=())
    return Runtime(
        settings.name,
        tuple(map(_provider, settings.providers)),
        settings.optimization.value,
        dict(settings.session_options),
        dict(settings.config_entries),
        tuple(_library(library, cwd) for library in settings.custom_ops),
        settings.threads,
    )


def _provider(provider: Any) -> Any:
    """A provider as ONNX Runtime takes it: a name, or (name, options)."""
    if isinstance(provider, Mapping):
        name, options = next(iter(provider.items()))
        return name, dict(options or {})
    return provider


def _library(library: str, cwd: Path) -> str:
    """A library's whole path; the one package that brings such a library is known by name."""
    return library if library == EXTENSIONS else str(cwd / Path(library).expanduser())


def _literal(value: Any) -> str:
    """Return Python source of plain values. ``repr`` escapes whatever could end a string or hide in it."""
    return pprint.pformat(_plain(value), width=116, sort_dicts=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, Mapping):
        return {str(_plain(name)): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # the source of an infinity is no literal; float() reads the text
    return value if value is None or type(value) in (bool, int, float, str) else str(value)
