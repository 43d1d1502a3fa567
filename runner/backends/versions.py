"""The operation ``versions``: what is installed here, from package metadata (nothing heavy is imported)."""

# runs under Python 3.8 (and so without subscripted builtins)
# ruff: noqa: UP006, UP035
from __future__ import annotations

import platform
from importlib import metadata
from typing import Any, Dict

# what is reported -> the distributions that provide it
_PACKAGES = {
    "numpy": ("numpy",),
    "ml_dtypes": ("ml_dtypes",),
    "onnx": ("onnx", "onnx-weekly"),
    "onnxruntime": (
        "onnxruntime",
        "onnxruntime-gpu",
        "onnxruntime-openvino",
        "onnxruntime-directml",
        "onnxruntime-qnn",
        "onnxruntime-rocm",
        "ort-nightly",
        "ort-nightly-gpu",
    ),
    "tensorrt": ("tensorrt", "tensorrt-cu12", "tensorrt-cu13"),
    "tensorrt_rtx": (
        "tensorrt-rtx",
        "tensorrt-rtx-cu12",
        "tensorrt-rtx-cu13",
        "tensorrt-rtx-cu12-bindings",
        "tensorrt-rtx-cu13-bindings",
    ),
    "sympy": ("sympy",),
}


def versions(args: Dict[str, Any]) -> Dict[str, str]:
    """Return {name: version}, "python" first.

    ``args["packages"]``: also packages by the names that Python imports them by.
    """
    found = {"python": platform.python_version()}
    for name, distributions in _PACKAGES.items():
        for distribution in distributions:
            try:
                version = metadata.version(distribution)
            except metadata.PackageNotFoundError:
                continue
            found[name] = version if distribution == distributions[0] else f"{version} ({distribution})"
            break
    if args.get("packages") and hasattr(metadata, "packages_distributions"):  # not before Python 3.10
        providing = metadata.packages_distributions()
        for package in args["packages"]:
            for distribution in providing.get(package.partition(".")[0], ()):
                found[package] = f"{metadata.version(distribution)} ({distribution})"
    return found
