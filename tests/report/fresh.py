"""A fresh interpreter that holds named packages, what these need, and nothing else: made of links, offline."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import venv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Shown:
    """What repro.py said: its exit status and all it printed."""

    code: int
    text: str


def environment(folder: Path, packages: Iterable[str]) -> Path:
    """Make a virtual environment without anything but these packages; return its interpreter."""
    venv.create(folder, symlinks=True, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    for found in _closure(packages):
        for file in found.files or ():
            top = file.parts[0]
            if top != ".." and not (site / top).exists():
                (site / top).symlink_to(Path(str(found.locate_file(top))).resolve())
    return folder / "bin" / "python"


def _closure(names: Iterable[str]) -> Iterable[importlib.metadata.Distribution]:
    waiting, seen = list(names), set()
    while waiting:
        name = waiting.pop()
        if name.lower() in seen:
            continue
        seen.add(name.lower())
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # one for another Python
        yield found
        wanted = [one for one in found.requires or () if "extra ==" not in one]
        waiting += [match[0] for one in wanted if (match := _NAME.match(one))]


def show(python: Path | str, script: Path, variables: Mapping[str, str] | None = None) -> Shown:
    """Run repro.py there, isolated, from a folder of no meaning."""
    done = subprocess.run(
        [str(python), "-I", str(script)],
        cwd="/",
        env={"PATH": os.environ["PATH"], **(variables or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return Shown(done.returncode, done.stdout)
