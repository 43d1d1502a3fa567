"""Installs the stand-in for TensorRT (see `site/stand_in`) as an interpreter that workers can be started with."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

SITE = Path(__file__).parent / "site"
RELEASES = ("10", "11", "rtx")
_MODULES = {"10": "tensorrt", "11": "tensorrt", "rtx": "tensorrt_rtx"}
_VERSIONS = {"10": "10.13.3.9", "11": "11.1.0.106", "rtx": "1.7.1.116"}


@dataclass(frozen=True)
class Installed:
    """``python``: for `target.python`; ``notes``: JSON lines of when which process used which GPU."""

    python: Path
    flavor: str
    notes: Path
    _faults: Path

    def plant(self, *faults: str) -> None:
        """Have these faults from now on, and no others."""
        self._faults.write_text(" ".join(faults))


def install(folder: Path, release: str) -> Installed:
    """Write an interpreter that has TensorRT ``release`` (10, 11, rtx) and cuda-python, both pretended."""
    site, module, version = folder / "site", _MODULES[release], f"{_VERSIONS[release]}+simulated"
    faults, notes, python = folder / "faults", folder / "notes", folder / "python"
    for package, text in {
        module: f"import sys\nfrom stand_in import fill\nfill(sys.modules[__name__], {release!r})\n",
        "cuda": "",
        "cuda/bindings": "",
        "cuda/bindings/runtime": "from stand_in.cuda import *\n",
    }.items():
        (site / package).mkdir(parents=True, exist_ok=True)
        (site / package / "__init__.py").write_text(text)
    told = site / f"{module}-{version}.dist-info"
    told.mkdir()
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module.replace('_', '-')}\nVersion: {version}\n")
    names = {"PYTHONPATH": f"{site}:{SITE}", "STAND_IN_FAULTS": str(faults), "STAND_IN_NOTES": str(notes)}
    lines = [f"export {name}={shlex.quote(value)}" for name, value in names.items()]
    python.write_text("\n".join(["#!/bin/sh", *lines, f'exec {shlex.quote(sys.executable)} "$@"', ""]))
    python.chmod(0o755)
    return Installed(python, module, notes, faults)
