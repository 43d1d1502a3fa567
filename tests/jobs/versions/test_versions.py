"""In which releases the failure is there: real installations, from wheels that are made here."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from packaging.version import Version

from runner.errors import UsageError
from runner.jobs.versions.release_cache import chosen_versions
from tests.harness import Run, winnow

CHECK = """
import sys
import toylib

sys.exit(1 if toylib.VERSION in {bad!r} else 0)
"""


def wheel(folder: Path, version: str) -> None:
    """Write a wheel of a package that only knows its version."""
    info = f"toylib-{version}.dist-info"
    with zipfile.ZipFile(folder / f"toylib-{version}-py3-none-any.whl", "w") as file:
        file.writestr("toylib/__init__.py", f"VERSION = {version!r}\n")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: toylib\nVersion: {version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")


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


def test_the_nearest_good_releases_on_either_side_and_nothing_is_installed_twice(tmp_path: Path) -> None:
    asked = ("strategy.versions='>=1.1,<1.5'", "strategy.bad=1.3.1")
    run = searched(tmp_path, ["1.3.1"], *asked)
    found = run.result["releases"]
    assert run.code == 0 and (found["good_before"], found["good_after"]) == ("1.2.1", "1.4.1"), run.output
    assert found["not_asked"] == ["1.1.1"] and found["installed"] == 3
    assert "toylib is broken in 1.3.1; good: 1.2.1 and 1.4.1; not asked: 1.1.1" in run.output
    assert installed(tmp_path) == ["1.2.1", "1.3.1", "1.4.1"]
    again = searched(tmp_path, ["1.3.1"], *asked, "strategy.offline=true", name="again")
    same = again.result["releases"]
    assert again.code == 0 and same["installed"] == 0 and same["not_asked"] == [], again.output
    assert (same["good_before"], same["good_after"]) == ("1.2.1", "1.4.1")
    assert "pip install toylib==1.4.1" in (run.folder / "REPORT.md").read_text()


@pytest.mark.slow
def test_every_release_and_those_that_cannot_be_installed(tmp_path: Path) -> None:
    versions = "strategy.versions=[1.0.1,1.1.1,1.2.1,1.3.1,9.9]"
    run = searched(tmp_path, ["1.0.1", "1.2.1"], versions, "strategy.bad=1.2.1", "strategy.exhaustive=true")
    found = run.result["releases"]
    assert run.code == 0 and found["not_asked"] == [], run.output
    told = {one["version"]: one["outcome"] for one in found["asked"]}
    assert told == {"1.0.1": "broken", "1.1.1": "good", "1.2.1": "broken", "1.3.1": "good", "9.9": "not known"}
    assert "toylib is broken in 1.0.1, 1.2.1; good: 1.1.1 and 1.3.1; not known: 9.9" in run.output
    assert installed(tmp_path) == ["1.0.1", "1.1.1", "1.2.1", "1.3.1"]  # and nothing half-made


@pytest.mark.slow
def test_a_start_that_passes_is_no_start(tmp_path: Path) -> None:
    run = searched(tmp_path, [], "strategy.versions=[1.0.1]")
    assert run.code == 4 and "toylib 1.0.1 passes the check. Name a release that fails: strategy.bad=" in run.output


def test_which_releases_are_asked() -> None:
    available = [Version(text) for text in ("1.1.0", "1.1.2", "1.1.1", "1.2.0", "1.3.0rc1", "2.0.0")]
    assert [*map(str, chosen_versions(available, ">=1.1,<2", last=True))] == ["1.1.2", "1.2.0"]
    assert [*map(str, chosen_versions(available, None, last=False))] == ["1.1.0", "1.1.1", "1.1.2", "1.2.0", "2.0.0"]
    assert [*map(str, chosen_versions([], ["1.2", 1.1], last=True))] == ["1.1", "1.2"]
    for asked in ("banana", ["banana"], ">=3"):
        with pytest.raises(UsageError, match=r"strategy\.versions="):
            chosen_versions(available, asked, last=True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("checker=command", "checker.command=python check.py"), "does not name {python}"),
        (("checker=interactive",), "runs under its own interpreter"),
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
