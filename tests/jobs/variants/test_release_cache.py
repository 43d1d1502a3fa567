"""The cache of releases: what is installed, what is kept, and what is said where that cannot be."""

from __future__ import annotations

import os
import shutil
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from numpy import __version__ as numpy_version
from packaging.version import Version

from runner.jobs.variants.release_cache import ReleaseCache, import_names
from runner.judgment import UsageError

NEEDS_OLD = "import numpy\nassert numpy.__version__.startswith('1.')\n"
COMPLAINS = "try:\n    from numpy.core._multiarray_umath import _ARRAY_API\nexcept ImportError:\n    pass\n"


def wheel(folder: Path, name: str, version: str, module: str, source: str) -> None:
    """Write a wheel of one module."""
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{module}/__init__.py", source)
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", f"{module}/__init__.py,,\n{info}/METADATA,,\n")


def cache_of(folder: Path, package: str, **more: float) -> ReleaseCache:
    """Return a cache that installs from the wheels in ``folder``."""
    options = ("--no-index", "--find-links", str(folder))
    return ReleaseCache(folder / "cache", package, sys.executable, options=options, timeout=more.get("timeout", 60.0))


@pytest.mark.slow
def test_old_numpy_stays_where_it_helps_alone(tmp_path: Path) -> None:
    """A package is imported by its own name for that, which need not be that of its wheel.

    Some old ones can be imported with a newer NumPy, which complains; they crash when they are used.
    """
    wheel(tmp_path, "numpy", "1.26.4", "numpy", "__version__ = '1.26.4'\n")
    sources = {"old_pkg": NEEDS_OLD, "silent_pkg": COMPLAINS, "lost_pkg": "import not_there\n", "new_pkg": ""}
    for name, source in sources.items():
        wheel(tmp_path, name, "1.0", f"{name}_module", source)
    sites = {}
    for name in sources:
        cache = cache_of(tmp_path, name)
        found = cache.install(Version("1.0"))
        assert found.python, found.why_not
        sites[name] = cache.beside(Version("1.0"))
    besides = replace(cache_of(tmp_path, "old_pkg"), besides=["new_pkg"])
    assert besides.install(Version("1.0")).python and besides.beside(Version("1.0")) == "numpy<2"
    assert sites == {"old_pkg": "numpy<2", "silent_pkg": "numpy<2", "lost_pkg": "", "new_pkg": ""}


def test_another_numpy_of_the_base_makes_other_environments(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, "pkg")
    site, python, numpy = cache._site()
    assert Path(site).is_dir() and python and numpy == numpy_version.partition(".")[0]
    other = replace(cache, _of_base=(site, python, "1"))
    assert other._place(Version("1.0")) != cache._place(Version("1.0"))


def test_names_of_imports(tmp_path: Path) -> None:
    info = tmp_path / "some_thing-1.0.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("thing/__init__.py,,\nthing/inner/__init__.py,,\nalone.py,,\nsome-1/__init__.py,,\n")
    assert import_names(tmp_path) == ("alone", "thing")
    (info / "top_level.txt").write_text("thing\n")
    assert import_names(tmp_path) == ("thing",)


@pytest.mark.slow
def test_what_is_broken_is_made_anew_and_what_was_abandoned_is_removed(tmp_path: Path) -> None:
    wheel(tmp_path, "pkg", "1.0", "pkg", "")
    cache = cache_of(tmp_path, "pkg")
    python = cache.install(Version("1.0")).python
    assert python
    python.unlink()
    python.symlink_to(tmp_path / "gone")
    old, fresh = cache.folder / ".half-made-old", cache.folder / ".half-made-fresh"
    for folder in (old, fresh):
        (folder / "made").mkdir(parents=True)
    os.utime(old, (time.time() - 100_000,) * 2)
    assert cache.install(Version("1.0")).python == python and python.resolve().exists()
    assert not old.exists() and fresh.exists(), "another run may be making it"
    assert {path.name for path in cache.folder.iterdir()} == {python.parent.parent.name, fresh.name}
    shutil.rmtree(fresh)


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    cache = ReleaseCache(Path("/dev/null/x"), "pkg", sys.executable)
    with pytest.raises(
        UsageError, match=r"strategy\.cache=/dev/null/x: releases cannot be kept there: Not a directory"
    ):
        cache.install(Version("1.0"))


def test_an_index_that_does_not_answer(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, "pkg")
    cache._site()  # the base starts in time
    cache.timeout = 0.001
    with pytest.raises(
        UsageError, match=r"cannot list its releases: it took more than strategy\.install_timeout=0\.001"
    ):
        cache.available()
