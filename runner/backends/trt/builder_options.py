"""Builder options by name, as YAML gives them: whatever this TensorRT does not have is an error before any work."""

# runs under Python 3.8 (and so without subscripted builtins)
# ruff: noqa: UP006, UP035, PTH100, PTH111, PTH113
from __future__ import annotations

import contextlib
import ctypes
import math
import os
import re
from typing import Any, Callable, Iterable, Iterator, List, Mapping

from runner.backends.errors import StageError
from runner.backends.trt.load_library import Library
from runner.backends.trt.messages import Messages

_UNITS = {"": 1, "B": 1, "K": 2**10, "KIB": 2**10, "M": 2**20, "MIB": 2**20, "G": 2**30, "GIB": 2**30}
_STRONG = "STRONGLY_TYPED"
# members of BuilderFlag that let TensorRT 10 choose precisions
_WEAK = (
    *("FP16", "BF16", "INT8", "FP8", "INT4", "FP4"),
    *("OBEY_PRECISION_CONSTRAINTS", "PREFER_PRECISION_CONSTRAINTS"),
)


def network_flags(library: Library, settings: Mapping[str, Any]) -> int:
    """Return the bits for ``create_network``. Networks are strongly typed where there is a choice.

    TensorRT 11 and RTX know nothing else; ``strongly_typed: false`` is for the weak typing of TensorRT 10.
    """
    names = [str(name) for name in settings.get("network_flags") or []]
    known = library.members("NetworkDefinitionCreationFlag")
    if settings.get("strongly_typed", True) and _STRONG in known and _STRONG not in names:
        names.append(_STRONG)
    if not settings.get("strongly_typed", True) and "FP16" not in library.members("BuilderFlag"):
        raise StageError(
            "setup",
            "UnknownSetting",
            f"strongly_typed=false is not in {library}: its networks are always strongly typed",
        )
    return _bits(library, "NetworkDefinitionCreationFlag", "network_flags", names)


def _bits(library: Library, enumeration: str, key: str, names: Iterable[Any]) -> int:
    return sum({1 << int(library.member(enumeration, key, str(name))) for name in names})


def parser_flags(library: Library, settings: Mapping[str, Any], parser: Any) -> None:
    """Set the parser's flags."""
    _set_flags(library, settings, "parser_flags", "OnnxParserFlag", parser.set_flag)


def _set_flags(
    library: Library, settings: Mapping[str, Any], key: str, enumeration: str, setter: Callable[[Any], object]
) -> None:
    """Hand each member that the setting ``key`` names to a setter. Raises StageError (setup)."""
    for name in settings.get(key) or []:
        flag = library.member(enumeration, key, str(name))
        with _naming(library, f"{key}={name}"):
            setter(flag)


def plugins(settings: Mapping[str, Any], builder: Any, said: Messages) -> None:
    """Load plugin libraries. Raises StageError (setup) for one that is not there or cannot be loaded."""
    for path in settings.get("plugins") or []:
        place = os.path.abspath(os.path.expanduser(str(path)))
        if not os.path.isfile(place):
            raise StageError(
                "setup", "NoSuchLibrary", f"plugins={path}: there is no such file; give the path of a shared library"
            )
        try:
            registry = builder.get_plugin_registry() if hasattr(builder, "get_plugin_registry") else None
            if registry is not None and hasattr(registry, "load_library"):
                said.errors.clear()
                # what cannot be loaded gives no handle, and the reason goes to the logger
                if registry.load_library(place) is None:
                    raise OSError(said.errors[0].strip() if said.errors else "it is no plugin library")
            else:
                ctypes.CDLL(place)
        except Exception as error:
            raise StageError("setup", "BadLibrary", f"plugins={path}: {' '.join(str(error).split())[:300]}") from error


def configure(library: Library, settings: Mapping[str, Any], config: Any) -> None:
    """Set everything of ``settings`` on an ``IBuilderConfig``. Raises StageError (setup) for what it does not have."""
    if hasattr(config, "profiling_verbosity"):
        # the layers' metadata name the ONNX nodes they were made from
        config.profiling_verbosity = library.members("ProfilingVerbosity")["DETAILED"]
    for name in settings.get("flags") or []:
        _typing(library, settings, str(name))
    _set_flags(library, settings, "flags", "BuilderFlag", config.set_flag)
    _set_flags(library, settings, "clear_flags", "BuilderFlag", config.clear_flag)
    for name, value in (settings.get("config") or {}).items():
        _attribute(library, config, str(name), value)
    for name, size in (settings.get("memory_pools") or {}).items():
        pool = library.member("MemoryPoolType", "memory_pools", str(name))
        limit = bytes_of(f"memory_pools.{name}", size)
        with _naming(library, f"memory_pools.{name}={size}"):
            config.set_memory_pool_limit(pool, limit)
    for name, wanted in (settings.get("preview_features") or {}).items():
        feature = library.member("PreviewFeature", "preview_features", str(name))
        with _naming(library, f"preview_features.{name}={wanted}"):
            config.set_preview_feature(feature, bool(wanted))
    if settings.get("tactic_sources") is not None:
        bits = _bits(library, "TacticSource", "tactic_sources", settings["tactic_sources"])
        with _naming(library, f"tactic_sources={settings['tactic_sources']}"):
            if not config.set_tactic_sources(bits):
                raise ValueError("these together are refused")
    _capabilities(library, settings.get("compute_capabilities") or [], config)


def _typing(library: Library, settings: Mapping[str, Any], name: str) -> None:
    """Refuse a flag of weak typing for a network that is strongly typed: no build with it says anything of the model.

    Raises StageError (setup).
    """
    known, flags = library.members("NetworkDefinitionCreationFlag"), library.members("BuilderFlag")
    weak = _STRONG in known and not network_flags(library, settings) & 1 << int(known[_STRONG])
    if name.upper() not in _WEAK or ("FP16" in flags and weak):
        return
    message = "networks are strongly typed, so that the model says what runs in which precision. What can run in a "
    message += "lower one is found by strategy=precision"
    if "FP16" in flags:
        message = f"flags={name}: {message}; for the weak typing of {library}: strongly_typed=false"
    else:
        message = f"flags={name} is not in {library}: {message}"
    raise StageError("setup", "BadSetting", message)


def _attribute(library: Library, config: Any, name: str, value: Any) -> None:
    """Set an attribute: a number, a yes or no, or the name of a member of its enumeration."""
    known = [key for key in dir(config) if not key.startswith("_") and not callable(getattr(config, key, None))]
    if name not in known:
        raise library.lacks("config", name, known)
    key = f"config.{name}"
    now = getattr(config, name)
    members = getattr(type(now), "__members__", None)
    if members is not None:
        if str(value).upper() not in members:
            raise library.lacks(key, str(value), members)
        value = members[str(value).upper()]
    elif isinstance(now, bool):
        if not isinstance(value, bool):
            raise library.lacks(key, str(value), ("true", "false"))
    elif isinstance(now, int) and (isinstance(value, bool) or not isinstance(value, int)):
        raise library.lacks(key, str(value), ("a whole number",))
    with _naming(library, f"{key}={value}"):
        setattr(config, name, value)
        # TensorRT clamps a value that is out of range silently
        if (kept := getattr(config, name)) != value and not (isinstance(kept, float) and math.isclose(kept, value)):
            raise ValueError(f"out of range; {kept} is as near as it goes")


@contextlib.contextmanager
def _naming(library: Library, setting: str) -> Iterator[None]:
    """Name the setting in whatever the library raises about it. Raises StageError (setup)."""
    try:
        yield
    except StageError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())[:300]
        raise StageError("setup", "BadSetting", f"{setting}: {library}: {said}") from error


def _capabilities(library: Library, wanted: List[Any], config: Any) -> None:
    """Set the compute capabilities that an engine is built for ahead of time: SM86, 8.6 or current."""
    if not wanted:
        return
    if not hasattr(config, "set_compute_capability"):
        raise library.lacks("compute_capabilities", str(wanted[0]), ("none: it builds for the GPU it runs on",))
    chosen = [library.member("ComputeCapability", "compute_capabilities", capability_of(str(one))) for one in wanted]
    with _naming(library, f"compute_capabilities={wanted}"):
        config.num_compute_capabilities = len(chosen)
        for number, capability in enumerate(chosen):
            if not config.set_compute_capability(capability, number):
                raise ValueError(f"{wanted[number]} is refused")


def capability_of(text: str) -> str:
    """Return the name of a member of ComputeCapability: SM86 for 8.6, 86 or sm_86."""
    match = re.fullmatch(r"(?:sm_?)?(\d+)\.?(\d)", text, re.IGNORECASE)
    return f"SM{match.group(1)}{match.group(2)}" if match else text


def bytes_of(key: str, size: Any) -> int:
    """Return bytes: a number, or one with a unit (64M, 1GiB)."""
    match = re.fullmatch(r"(\d+) *([A-Za-z]*)", str(size).strip())
    if match is None or match.group(2).upper() not in _UNITS:
        raise StageError("setup", "BadSetting", f"{key}={size}: give bytes, or a number with a unit: 512M, 1GiB")
    return int(match.group(1)) * _UNITS[match.group(2).upper()]
