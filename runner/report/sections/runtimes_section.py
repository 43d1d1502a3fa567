"""What a failure was seen on: the runtimes by name and version, the packages that matter, the GPU if one is used."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.files import read_plain
from runner.report.markup import section, table
from runner.report.summary import Summary

_PACKAGES: Mapping[str, tuple[str, ...]] = {
    "onnxruntime": ("onnxruntime",),
    "onnx_reference": ("onnx",),
    "tensorrt": ("tensorrt", "tensorrt_rtx"),
}
"""The packages of a backend, by its name."""
_SIDES = ("target", "reference")
_CALLED: Mapping[str, str] = {
    "onnxruntime": "ONNX Runtime",
    "onnx": "the evaluator of onnx",
    "tensorrt": "TensorRT",
    "tensorrt_rtx": "TensorRT for RTX",
}
_ALWAYS = frozenset({"python", "numpy", "onnx"})
_WORDS: Mapping[str, str] = {"tensorrt": r"\b(tensorrt|trt|trtexec)\b|--trt\b", "sympy": r"\bimport sympy\b"}
"""What names a package in the text of a check, where that is more than its own name."""
_ROUNDS = ("on", "strict")
"""Settings by which a model that rounds is run in place of the model itself."""
_ON_A_GPU = re.compile(r"cuda|\btrt|tensorrt\b|--gpu", re.IGNORECASE)
_DRIVER = Path("/proc/driver/nvidia")


def runtime(summary: Summary, side: str, *, told_apart: bool = False) -> str:
    """Return what runs on a side (``target``, ``reference``), by name and version; "" where no runtime does.

    That it rounds after every operator, which the runtime itself does not, is said of it.
    ``told_apart``: with what is set otherwise on the other side, where both are the same runtime.
    """
    name = _runtime(summary, side)
    if not told_apart or not name or any(_runtime(summary, one) != name for one in _SIDES):
        rounding = _backend(summary, side).get("rounding") if name else None
        return f"{name} (rounding={rounding})" if rounding in _ROUNDS else name
    mine, other = (_backend(summary, one) for one in (side, *(one for one in _SIDES if one != side)))
    apart = [f"{key}={value}" for key, value in mine.items() if value != other.get(key) and _is_short(value)]
    return f"{name} ({', '.join(apart)})" if apart else name


def _is_short(value: object) -> bool:
    """Whether a setting says something in a few letters; what is off or left to the runtime does not."""
    return value not in ("", "off", "auto") and isinstance(value, (int, float, str)) and len(str(value)) < 40


def _runtime(summary: Summary, side: str) -> str:
    told = _backend(summary, side)
    name = str(told.get("name", ""))
    held = {**summary.versions, **(told.get("versions") or {})}
    package = next(iter(_packages_of(told, held)), "")
    if package not in _CALLED:
        return name
    version = str(held.get(package, "")).partition(" ")[0]
    providers = [one if isinstance(one, str) else next(iter(one), "") for one in told.get("providers") or ()]
    on = f" ({', '.join(providers)})" if providers and providers != ["CPUExecutionProvider"] else ""
    return f"{_CALLED[package]}{f' {version}' if version else ''}{on}"


def versions_section(summary: Summary, check: str = "", driver: Path = _DRIVER) -> str:
    """Return the section. ``check``: the text of the user's check, which may name packages. ``driver``: the GPUs'."""
    sides = (_backend(summary, side) for side in _SIDES)
    said = "\n".join((*(f"{one.get('name')} {one.get('providers')}" for one in sides), summary.check, check))
    rows = [*relevant(summary, check).items(), ("platform", _system())]
    rows += _graphics(driver) if _ON_A_GPU.search(said) else []
    return section("Versions", table(("package", "version"), rows))


def relevant(summary: Summary, check: str = "") -> dict[str, str]:
    """Return the versions of what took part: Python, numpy, onnx, both runtimes, and what the check names."""
    sides = [told for side in _SIDES if (told := _backend(summary, side))]
    used = _ALWAYS.union(*(_packages_of(told, summary.versions) for told in sides))
    used |= set() if sides else {"onnxruntime"}
    said = f"{summary.check}\n{check}"

    def matters(package: str) -> bool:
        own = package.removeprefix("reference.")
        named = _WORDS.get(own.removesuffix("_rtx"), rf"\b{re.escape(own)}\b")
        return own in used or bool(re.search(named, said, re.IGNORECASE))

    return {name: version for name, version in sorted(summary.versions.items()) if matters(name)}


def _packages_of(told: Mapping[str, Any], held: Mapping[str, str]) -> tuple[str, ...]:
    """Return the packages of a backend; of TensorRT that of the flavor, or the one that is there."""
    name = str(told.get("name", ""))
    packages = _PACKAGES.get(name, (name,) if name else ())
    if name != "tensorrt":
        return packages
    flavor = str(told.get("flavor", "auto"))
    return (flavor,) if flavor in packages else tuple(one for one in packages if one in held)


def _backend(summary: Summary, side: str) -> Mapping[str, Any]:
    """Return the settings of a side as the context of the verdicts has them; nothing where it took no part."""
    try:
        told = json.loads(summary.context.get(side, "{}"))
    except ValueError:
        return {}
    return told if isinstance(told, Mapping) else {}


def _system() -> str:
    """Return the platform as platform.platform() says it, which starts a process to ask for the processor's name."""
    return "-".join((platform.system(), platform.release(), platform.machine(), "with", "".join(platform.libc_ver())))


def _graphics(driver: Path) -> list[tuple[str, str]]:
    """Return the GPUs and their driver as the system's files tell them; no library is asked, and no GPU used."""
    models = [
        line.partition(":")[2].strip()
        for path in sorted(driver.glob("gpus/*/information"))
        for line in read_plain(path).decode("utf-8", "replace").splitlines()
        if line.startswith("Model:")
    ]
    found = re.search(r"Module\s.*?(\d+\.\d[\d.]*)", read_plain(driver / "version").decode("utf-8", "replace"))
    rows = [("GPU", ", ".join(f"{models.count(one)} x {one}" for one in dict.fromkeys(models)))] if models else []
    return rows + ([("NVIDIA driver", found[1])] if found else [])
