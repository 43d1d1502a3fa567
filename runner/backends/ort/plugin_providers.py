"""Execution providers of ONNX Runtime that come as plugin libraries (TensorRT for RTX is one), from 1.22 on.

A plugin's provider is chosen by its devices. Without one that it can use (a GPU) it does not start: starting one has
not been seen here, unverified.
"""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PLC0415, PTH100, PTH111, PTH113
from __future__ import annotations

import importlib
import os
from typing import Any, Dict, List, Mapping, Set

from runner.backends.errors import StageError

_registered: Set[str] = set()  # ONNX Runtime's own registry is one a process


def devices(libraries: Mapping[str, str]) -> Dict[str, List[Any]]:
    """Register {provider: library} and return each provider's devices.

    A library is a path, or a Python package that tells it (``get_library_path``). Raises StageError (setup) for a
    library that cannot be loaded, for a provider without a device, and where ONNX Runtime takes no plugins.
    """
    import onnxruntime

    if libraries and not hasattr(onnxruntime, "register_execution_provider_library"):
        message = f"provider_libraries: ONNX Runtime {onnxruntime.__version__} takes no plugins; 1.22 and newer do"
        raise StageError("setup", "UnknownSetting", message)
    found: Dict[str, List[Any]] = {}
    for provider, library in libraries.items():
        path = _path(provider, library)
        if path not in _registered:
            try:
                onnxruntime.register_execution_provider_library(provider, path)
            except Exception as error:
                message = f"provider_libraries.{provider}={library} cannot be loaded: {error}"
                raise StageError("setup", "BadLibrary", message) from error
            _registered.add(path)
        found[provider] = [device for device in onnxruntime.get_ep_devices() if device.ep_name == provider]
        if not found[provider]:
            known = sorted({device.ep_name for device in onnxruntime.get_ep_devices()})
            message = (
                f"providers={provider} finds no device here that it can use; providers with devices: {', '.join(known)}"
            )
            raise StageError("setup", "ProviderDidNotStart", message)
    return found


def _path(provider: str, library: str) -> str:
    if "/" in library or library.endswith((".so", ".dylib")):
        path = os.path.abspath(os.path.expanduser(library))
    else:
        try:
            path = str(importlib.import_module(library).get_library_path())
        except (ImportError, AttributeError) as error:
            message = f"provider_libraries.{provider}={library}: no such package, or it tells of no library ({error})"
            raise StageError("setup", "NoSuchLibrary", message) from error
    if not os.path.isfile(path):
        message = f"provider_libraries.{provider}={library}: there is no such file; give the path of a shared library"
        raise StageError("setup", "NoSuchLibrary", message)
    return path
