"""What repro.py has to know of a configuration: how the target ran, and how the check judged."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.checkers.command.template import Template, digest
from runner.checkers.compare.accuracy_drop import Threshold
from runner.schema.backend import BackendSettings, OnnxRuntimeBackend, Optimization, Rounding, TensorRtBackend
from runner.schema.checker import (
    CheckerSettings,
    CommandChecker,
    CompareChecker,
    Golden,
    PythonChecker,
)
from runner.schema.root import Settings

EXTENSIONS = "onnxruntime_extensions"
"""The package that brings a library of custom operators, and is known by its name."""
_LEVELS = {
    Optimization.none: "ORT_DISABLE_ALL",
    Optimization.basic: "ORT_ENABLE_BASIC",
    Optimization.extended: "ORT_ENABLE_EXTENDED",
    Optimization.layout: "ORT_ENABLE_LAYOUT",
    Optimization.all: "ORT_ENABLE_ALL",
}
_UNITS = {"": 1, "B": 1, "K": 2**10, "KIB": 2**10, "M": 2**20, "MIB": 2**20, "G": 2**30, "GIB": 2**30}
_BUILD = (
    "flags",
    "clear_flags",
    "config",
    "network_flags",
    "parser_flags",
    "tactic_sources",
    "memory_pools",
    "preview_features",
    "compute_capabilities",
    "plugins",
    "profiles",
    "shape_values",
)
"""Settings of TensorRT that are left out where nothing was set."""


@dataclass(frozen=True)
class Runtime:
    """How one side runs.

    ``settings``: of the backend, those that say anything. ``rounding``: on or strict, where the model that rounds is
    run in place of the model itself. ``python``: the interpreter that it ran under, if it was another one.
    """

    name: str = "onnxruntime"
    settings: Mapping[str, Any] = field(default_factory=dict)
    rounding: str = "off"
    python: str | None = None


@dataclass(frozen=True)
class Facts:
    """What repro.py needs besides the summary.

    ``model`` and ``data`` (one test_data_set folder a sample) are relative to the folder of repro.py. ``rounded``: the
    model of the target, where that rounds. ``reference`` None: the outputs in ``data`` are the good ones. ``settings``:
    of the checker. ``words``, ``mentions``, ``files`` (SHA-256 by path): of a command. ``cwd``: where commands ran.
    ``meant``: some good output is not finite, so that only the output counts that failed.
    """

    settings: CheckerSettings
    target: Runtime = field(default_factory=Runtime)
    reference: Runtime | None = None
    model: str = "reduced.onnx"
    rounded: str = "rounded.onnx"
    data: tuple[str, ...] = ("test_data_set_0",)
    words: tuple[str, ...] = ()
    mentions: frozenset[str] = frozenset()
    files: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    meant: bool = False


def facts_of(settings: Settings, cwd: Path) -> Facts:
    """Return the facts of a configuration; a reference outside the bundle gives way to the recorded outputs.

    ``cwd``: where the user stands. ``model``, ``data`` and ``meant`` keep their defaults.
    """
    checker = settings.checker
    words: tuple[str, ...] = ()
    mentions: frozenset[str] = frozenset()
    files: dict[str, Path] = {}
    if isinstance(checker, CommandChecker):
        template = Template(checker.command, cwd, checker.env)
        words, mentions, files = template.words, template.mentions, template.files()
        ours = {cwd / Path(path).expanduser() for path in (checker.place, checker.iteration_info) if path}
        files = {name: path for name, path in files.items() if path not in ours}
    elif isinstance(checker, PythonChecker) and checker.file:
        files = {checker.file: cwd / Path(checker.file).expanduser()}
    return Facts(
        checker,
        runtime(settings.target, cwd),
        _reference(settings, cwd),
        words=words,
        mentions=mentions,
        files={str(path): digest(path) for path in files.values()},
        cwd=str(cwd),
    )


def _reference(settings: Settings, cwd: Path) -> Runtime | None:
    """Return how the reference runs, where it is the one that says what is right, and can be run beside the target."""
    given, checker = settings.reference, settings.checker
    ahead = isinstance(checker, CompareChecker) and checker.golden is Golden.ahead
    if ahead or given.model or given.python or isinstance(given, TensorRtBackend):
        return None
    found = runtime(given, cwd)
    return None if found.rounding != "off" else found


def runtime(settings: BackendSettings, cwd: Path) -> Runtime:
    """Return how a backend runs, with whole paths."""
    if isinstance(settings, TensorRtBackend):
        return Runtime(settings.name, _tensorrt(settings, cwd), python=settings.python)
    if not isinstance(settings, OnnxRuntimeBackend):
        return Runtime(settings.name, python=settings.python)
    given: dict[str, Any] = {
        "providers": [_provider(provider) for provider in settings.providers],
        "optimization": _LEVELS[settings.optimization],
        "threads": settings.threads,
        "session_options": {name: str(text) for name, text in settings.session_options.items()},
        "config_entries": {name: str(text) for name, text in settings.config_entries.items()},
        "custom_ops": [_library(library, cwd) for library in settings.custom_ops],
        "provider_libraries": {
            name: _library(path, cwd) if "/" in path or path.endswith(".so") else path
            for name, path in settings.provider_libraries.items()
        },
    }
    rounding = settings.rounding.value if settings.rounding in (Rounding.on, Rounding.strict) else "off"
    if rounding != "off":
        given["optimization"] = "ORT_DISABLE_ALL"
    kept = {key: value for key, value in given.items() if value or key == "threads"}
    return Runtime(settings.name, kept, rounding, settings.python)


def _provider(provider: Any) -> Any:
    """A provider as ONNX Runtime takes it: a name, or [name, options]."""
    if isinstance(provider, Mapping):
        name, options = next(iter(provider.items()))
        return [name, dict(options or {})]
    return provider


def _library(library: str, cwd: Path) -> str:
    return library if library == EXTENSIONS else str(cwd / Path(library).expanduser())


def _tensorrt(settings: TensorRtBackend, cwd: Path) -> dict[str, Any]:
    """Return what was set, with sizes in bytes and ranges as three lists."""
    given: dict[str, Any] = {name: value for name in _BUILD if (value := getattr(settings, name))}
    given |= {"plugins": [_library(path, cwd) for path in settings.plugins]} if settings.plugins else {}
    for name in ("profiles", "shape_values"):
        if name in given:
            given[name] = {key: _range(value) for key, value in given[name].items()}
    if "memory_pools" in given:
        given["memory_pools"] = {name: _bytes(size) for name, size in settings.memory_pools.items()}
    if "compute_capabilities" in given:
        given["compute_capabilities"] = [_capability(str(one)) for one in settings.compute_capabilities]
    return {
        **given,
        "strongly_typed": settings.strongly_typed,
        "runs": settings.runs,
        "flavor": settings.flavor.value,
    }


def _range(given: Any) -> list[Any]:
    """Return the least, the best and the largest of what was given: one for all, three, or a mapping."""
    if isinstance(given, Mapping):
        return [list(given[end]) for end in ("min", "opt", "max")]
    return list(given) if given and isinstance(given[0], (list, tuple)) else [list(given)] * 3


def _bytes(size: Any) -> Any:
    match = re.fullmatch(r"(\d+) *([A-Za-z]*)", str(size).strip())
    return int(match[1]) * _UNITS.get(match[2].upper(), 1) if match else size


def _capability(text: str) -> str:
    match = re.fullmatch(r"(?:sm_?)?(\d+)\.?(\d)", text, re.IGNORECASE)
    return f"SM{match[1]}{match[2]}" if match else text.upper()


def threshold_of(checker: PythonChecker) -> dict[str, Any] | None:
    """Return what a number that the function returns is held against; None: it returns none."""
    allowed = Threshold(checker).allowed
    if allowed is None:
        return None
    return {"BASELINE": checker.baseline, "ALLOWED": allowed, "DROP": checker.max_drop is not None}
