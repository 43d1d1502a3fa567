"""In which releases the failure is there, and the cache of releases: from wheels that are made here."""

from __future__ import annotations

import os
import shutil
import sys
import time
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from numpy import __version__ as numpy_version
from packaging.version import Version

from runner.exit_codes import UsageError
from runner.jobs.variants.release_cache import ReleaseCache, chosen_versions, import_names, last_patches
from tests.harness import Run, winnow

CHECK = """
import sys
import toylib

sys.exit(1 if toylib.VERSION in {bad!r} else 0)
"""


OWN = ("strategy.package=toylib", "checker=command", "checker.command='{python} x'")


def wheel(folder: Path, version: str, name: str = "toylib", module: str = "toylib", source: str = "") -> None:
    """Write a wheel of one module that knows its version."""
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{module}/__init__.py", f"VERSION = {version!r}\n{source}")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", f"{module}/__init__.py,,\n{info}/METADATA,,\n")


def searched(tmp_path: Path, bad: Sequence[str], *more: str, name: str = "run") -> Run:
    """Search the releases of a package of which some are bad."""
    wheels = tmp_path / "wheels"
    if not wheels.exists():
        wheels.mkdir()
        for minor in range(6):
            wheel(wheels, f"1.{minor}.0")
            wheel(wheels, f"1.{minor}.1")
    check = tmp_path / "check.py"
    check.write_text(CHECK.format(bad=[*bad]))
    return winnow(
        *("strategy=versions", "strategy.package=toylib", f"strategy.cache={tmp_path / 'cache'}"),
        f"strategy.pip=[--no-index,--find-links,{wheels}]",
        *("checker=command", f"checker.command='{{python}} {check}'", *more),
        folder=tmp_path / name,
    )


def installed(tmp_path: Path) -> list[str]:
    return sorted(path.name.split("-")[1] for path in (tmp_path / "cache").glob("toylib-*"))


@pytest.mark.slow
def test_the_nearest_good_releases_on_either_side_and_nothing_is_installed_twice(tmp_path: Path) -> None:
    """The last patch of each minor version is asked first, then those between the ends: 1.3.0 lies beside 1.3.1."""
    asked = ("strategy.versions='>=1.1,<1.4'", "strategy.bad=1.3.1")
    run = searched(tmp_path, ["1.3.1"], *asked)
    found = run.result["releases"]
    assert run.code == 0 and (found["good_before"], found["good_after"]) == ("1.3.0", None), run.output
    assert found["not_asked"] == ["1.1.0", "1.1.1", "1.2.0"] and found["installed"] == 3
    assert "toylib is broken in 1.3.1; good: 1.3.0; not tried: 1.1.0, 1.1.1, 1.2.0" in run.result["message"]
    assert installed(tmp_path) == ["1.2.1", "1.3.0", "1.3.1"]
    again = searched(tmp_path, ["1.3.1"], *asked, "strategy.offline=true", name="again")
    same = again.result["releases"]
    assert again.code == 0 and same["installed"] == 0 and same["not_asked"] == [], again.output
    assert (same["good_before"], same["good_after"]) == ("1.3.0", None)
    assert "pip install toylib==1.3.0" in (run.folder / "REPORT.md").read_text()


@pytest.mark.slow
def test_every_release_and_those_that_cannot_be_installed(tmp_path: Path) -> None:
    versions = "strategy.versions=[1.0.1,1.1.1,1.2.1,1.3.1,'9.9']"
    run = searched(tmp_path, ["1.0.1", "1.2.1"], versions, "strategy.bad=1.2.1", "strategy.exhaustive=true")
    found = run.result["releases"]
    assert run.code == 0 and found["not_asked"] == [], run.output
    told = {one["version"]: one["outcome"] for one in found["asked"]}
    assert told == {"1.0.1": "broken", "1.1.1": "good", "1.2.1": "broken", "1.3.1": "good", "9.9": "not known"}
    assert "toylib is broken in 1.0.1, 1.2.1; good: 1.1.1 and 1.3.1; not known: 9.9" in run.output
    assert installed(tmp_path) == ["1.0.1", "1.1.1", "1.2.1", "1.3.1"]  # and nothing half-made


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with three releases of the package."""
    folder = tmp_path_factory.mktemp("releases")
    found = ReleaseCache(
        folder / "cache", "toylib", sys.executable, options=("--no-index", "--find-links", str(folder))
    )
    for version in ("1.0.1", "1.1.1", "1.2.1"):
        wheel(folder, version)
        assert isinstance(found.install(Version(version)), Path)
    return found.folder


def told(tmp_path: Path, cache: Path, check: str, *more: str, name: str = "run") -> Run:
    """Search the three releases from the newest; ``check`` knows its ``version`` and a file to ``count`` in."""
    path = tmp_path / "check.py"
    head = f"import sys, toylib\nversion, count = toylib.VERSION, {str(tmp_path / 'count')!r}\n"
    path.write_text(head + check)
    return winnow(
        *("strategy=versions", "strategy.package=toylib", f"strategy.cache={cache}", "strategy.offline=true"),
        *("checker=command", f"checker.command='{{python}} {path}'", *more),
        folder=tmp_path / name,
    )


IR = "Load model from net.onnx failed: Unsupported model IR version: 13, max supported IR version: 11"
OPSET = "Opset 25 is under development and support for this is limited. Current official support is till opset 21."
OPERATOR = "Error No Op registered for RotaryEmbedding with domain_version of 23"
CANNOT = "cannot tell"
FUNCTION = "Fatal error: com.microsoft:MoE(-1) is not a registered function/op"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "second"),
    [
        ("sys.exit({'1.2.1': 1, '1.1.1': 3}.get(version, 0))", "fails otherwise"),
        # it cannot tell, and the releases beside it bound the range of the broken ones
        *(
            (
                f"said = {said!r}\nif version == '1.1.1': {how}\nif version == '1.2.1': raise RuntimeError('wrong')",
                CANNOT,
            )
            for said in (IR, OPSET, OPERATOR, FUNCTION)
            for how in ("print(said); sys.exit(1)", "raise RuntimeError(said)")
        ),
        # that the file cannot be read may be the failure itself
        (f"print({OPSET!r})\nsys.exit(version != '1.0.1')", "broken"),
    ],
)
def test_what_a_release_between_a_good_and_a_broken_one_is_called(
    tmp_path: Path, cache: Path, check: str, second: str
) -> None:
    codes = ("checker.fail_codes=[1]", "checker.different_codes=[3]")
    run = told(tmp_path, cache, check, *codes, "strategy.exhaustive=true")
    asked = run.result["releases"]["asked"]
    assert [one["outcome"] for one in asked] == ["good", second, "broken"], run.output
    if second != "broken":
        assert f"toylib is broken in 1.2.1; good: 1.0.1; {second}: 1.1.1" in run.output
    if second == CANNOT:
        assert any(said[-40:] in asked[1]["reason"] for said in (IR, OPSET, OPERATOR, FUNCTION))


@pytest.mark.slow
def test_a_plan_asks_the_first_release_alone_and_one_that_passes_is_no_start(tmp_path: Path, cache: Path) -> None:
    run = told(tmp_path, cache, "open(count, 'a').write(version + ' ')\nsys.exit(version != '1.0.1')", "plan=true")
    assert run.code == 0 and run.result["status"] == "planned", run.output
    assert "the releases to ask from: 1.0.1, 1.1.1" in run.output
    assert {*(tmp_path / "count").read_text().split()} == {"1.2.1"}
    start = told(tmp_path, cache, "sys.exit(0)", name="passes")
    said = "toylib 1.2.1 passes the check. Name a release that fails: strategy.bad="
    assert start.code == 4 and said in start.output, start.output


FLAKY = """
open(count, 'a').write(version + ' ')
times = open(count).read().split().count(version)
"""


@pytest.mark.variants
@pytest.mark.parametrize("flaky", ["1.2.1", "1.1.1", "1.0.1"])
def test_a_contradiction_is_noticed(tmp_path: Path, cache: Path, flaky: str) -> None:
    """Of a start that passes, of the broken release beside the good one, and of the good one."""
    broken = "version != '1.0.1'" if flaky != "1.2.1" else "False"
    run = told(tmp_path, cache, f"{FLAKY}\nsys.exit(({broken}) is not (version == {flaky!r} and times == 3))")
    assert run.result["status"] == "could_not_judge" and "the check is flaky" in run.output, run.output


@pytest.mark.slow
def test_verdicts_of_another_environment_are_not_taken_over(tmp_path: Path, cache: Path) -> None:
    python = next(cache.glob("toylib-1.2.1-*")) / "bin" / "python"
    other = tmp_path / "other"
    shutil.copytree(python.parent.parent, other, symlinks=True)
    given = f"strategy.interpreters=[{other / 'bin' / 'python'}]"
    runs: list[Run] = []
    for name in ("first", "same", "changed"):
        if name == "changed":
            info = next(other.glob("lib/python*/site-packages")) / "beside-2.0.dist-info"
            info.mkdir()
            (info / "METADATA").write_text("Metadata-Version: 2.1\nName: beside\nVersion: 2.0\n")
        reuse = [f"journal.reuse=[{tmp_path / 'first'}]"] if runs else []
        runs.append(told(tmp_path, cache, "sys.exit(1)", given, *reuse, name=name))
    assert [run.result["checks"]["reused"] > 0 for run in runs] == [False, True, False]


@pytest.mark.slow
def test_two_interpreters_of_one_release(tmp_path: Path, cache: Path) -> None:
    python = next(cache.glob("toylib-1.2.1-*")) / "bin" / "python"
    shutil.copytree(python.parent.parent, tmp_path / "other", symlinks=True)
    given = f"strategy.interpreters=[{python},{tmp_path / 'other' / 'bin' / 'python'}]"
    run = told(tmp_path, cache, "sys.exit(1)", given)
    assert run.code == 2 and "strategy.interpreters: toylib 1.2.1 under " in run.output, run.output
    assert "Give one of them" in run.output


def test_which_releases_are_asked() -> None:
    available = [Version(text) for text in ("1.1.0", "1.1.2", "1.1.1", "1.2.0", "1.3.0rc1", "2.0.0")]
    assert [*map(str, sorted(last_patches(chosen_versions(available, ">=1.1,<2"))))] == ["1.1.2", "1.2.0"]
    assert [*map(str, chosen_versions(available, None))] == ["1.1.0", "1.1.1", "1.1.2", "1.2.0", "2.0.0"]
    assert [*map(str, chosen_versions([], ["1.2", "1.1"]))] == ["1.1", "1.2"]
    with pytest.raises(UsageError, match=r"1\.2 was read as a number.*in quotes"):
        chosen_versions([], ["1.1", 1.20])
    for asked in ("banana", ["banana"], ">=3", 1.20):
        with pytest.raises(UsageError, match=r"strategy\.versions="):
            chosen_versions(available, asked)


@pytest.mark.variants
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("checker=command", "checker.command=python check.py"), "does not name {python}"),
        (("checker=interactive",), "runs under its own interpreter"),
        ((*OWN, "sanitize.fold=true"), "sanitize: strategy=versions checks your own file"),
        ((*OWN, "strategy.bad=1.20"), "1.2 was read as a number"),
        ((*OWN, "strategy.offline=true", "strategy.cache=empty"), "empty has no release of toylib for"),
        (("strategy.package=../x", "checker=runs", "model=gone.onnx"), "no such file"),
        (
            ("strategy.besides=[--index-url]", "checker=command", "checker.command='{python} x'"),
            "this is no requirement",
        ),
        (("strategy.package=../x", "checker=command", "checker.command='{python} x'"), "no name of a package"),
    ],
)
def test_refusals(tmp_path: Path, given: tuple[str, ...], said: str) -> None:
    run = winnow("strategy=versions", *given, folder=tmp_path / "run")
    assert run.code == 2 and said in run.output, run.output


NEEDS_OLD = "import numpy\nassert numpy.__version__.startswith('1.')\n"
COMPLAINS = "try:\n    from numpy.core._multiarray_umath import _ARRAY_API\nexcept ImportError:\n    pass\n"


def cache_of(folder: Path, package: str, **more: float) -> ReleaseCache:
    """Return a cache that installs from the wheels in ``folder``."""
    options = ("--no-index", "--find-links", str(folder))
    return ReleaseCache(folder / "cache", package, sys.executable, options=options, timeout=more.get("timeout", 60.0))


@pytest.mark.slow
def test_old_numpy_stays_where_it_helps_alone(tmp_path: Path) -> None:
    """A package is imported by its own name for that, which need not be that of its wheel.

    Some old ones can be imported with a newer NumPy, which complains; they crash when they are used.
    """
    wheel(tmp_path, "1.26.4", "numpy", "numpy", "__version__ = '1.26.4'\n")
    sources = {"old_pkg": NEEDS_OLD, "silent_pkg": COMPLAINS, "lost_pkg": "import not_there\n", "new_pkg": ""}
    for name, source in sources.items():
        wheel(tmp_path, "1.0", name, f"{name}_module", source)
    sites = {}
    for name in sources:
        cache = cache_of(tmp_path, name)
        found = cache.install(Version("1.0"))
        assert isinstance(found, Path), found
        sites[name] = cache.beside(Version("1.0"))
    besides = replace(cache_of(tmp_path, "old_pkg"), besides=["new_pkg"])
    assert isinstance(besides.install(Version("1.0")), Path) and besides.beside(Version("1.0")) == "numpy<2"
    assert sites == {"old_pkg": "numpy<2", "silent_pkg": "numpy<2", "lost_pkg": "", "new_pkg": ""}


def test_another_numpy_of_the_base_makes_other_environments(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, "pkg")
    site, python, numpy = cache._site
    assert Path(site).is_dir() and python and numpy == numpy_version.partition(".")[0]
    other = replace(cache)
    other.__dict__["_site"] = (site, python, "1")
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
    wheel(tmp_path, "1.0", "pkg", "pkg")
    cache = cache_of(tmp_path, "pkg")
    python = cache.install(Version("1.0"))
    assert python
    python.unlink()
    python.symlink_to(tmp_path / "gone")
    old, fresh = cache.folder / ".half-made-old", cache.folder / ".half-made-fresh"
    for folder in (old, fresh):
        (folder / "made").mkdir(parents=True)
    os.utime(old, (time.time() - 100_000,) * 2)
    assert cache.install(Version("1.0")) == python and python.resolve().exists()
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
    assert cache._site  # the base starts in time
    cache.timeout = 0.001
    with pytest.raises(
        UsageError, match=r"cannot list its releases: it took more than strategy\.install_timeout=0\.001"
    ):
        cache.available()
