"""The cache of releases: a virtual environment for each, which shares all other packages with a base interpreter.

It lies outside of runs and serves all of them. A release is complete or not there: an environment is made under a name
of its own and renamed at the end. Only wheels are installed, so no code of a package's is run for it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from runner.disk_space import FULL
from runner.exit_codes import UsageError
from runner.workers.worker import environment_for

log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_AVAILABLE = re.compile(r"^Available versions: (.+)$", re.MULTILINE)
_LIST = """
import sys
from importlib import metadata
print(sys.version)
print(sorted({(str(one.metadata["Name"]), one.version) for one in metadata.distributions()}))
"""
#: where the base's packages are, its version, and its NumPy's major one
_SITE = """import sysconfig; from importlib import metadata
print(sysconfig.get_path("purelib"), sysconfig.get_python_version(), sep="\\n")
print(next((one.version.partition(".")[0] for one in metadata.distributions(name="numpy")), ""))"""
#: packages built for NumPy 1 cannot be imported with NumPy 2, or are with this complaint of NumPy's, and crash later
_OLD_NUMPY, _COMPLAINT = "numpy<2", "compiled using NumPy 1.x"
_BESIDE = "numpy-1-beside"
_HALF_MADE, _ABANDONED = ".half-made-", 24 * 3600.0
"""How the names of environments begin that are being made, and after how many seconds nobody makes them any more."""


Installed = Path | str
"""What came of an installation: an interpreter that has the release, or why there is none."""


@dataclass
class ReleaseCache:
    """``folder``: of the cache; ``base``: the interpreter whose packages are shared. ``options``: pip's.

    ``besides``: requirements that are installed with each release. ``timeout``: seconds for one installation.
    ``installs``: how many this run made; ``refused``: releases that could not be had, and why.
    """

    folder: Path
    package: str
    base: str
    besides: Sequence[str] = ()
    options: Sequence[str] = ()
    offline: bool = False
    timeout: float | None = None
    installs: int = 0
    refused: dict[Version, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.package):
            raise UsageError(f"strategy.package={self.package}: this is no name of a package. Give one, as onnxruntime")
        for requirement in self.besides:
            if not _NAME.match(requirement):
                raise UsageError(f"strategy.besides={requirement}: this is no requirement. Give one, as 'numpy<2'")

    def available(self) -> list[Version]:
        """Return the releases that can be had, oldest first: of the index, or of the cache.

        Raises UsageError where the index cannot be asked.
        """
        cached = sorted(version for version in map(self._version_of, self._kept()) if version)
        if self.offline:
            if not cached:
                raise UsageError(
                    f"strategy.offline=true: the cache {self.folder} has no release of {self.package} for {self.base}. "
                    "Leave strategy.offline out once, or name interpreters: strategy.interpreters=[old/bin/python]"
                )
            return cached
        why, found = "", None
        try:
            asked = self._pip("index", "versions", self.package)
            found = _AVAILABLE.search(asked.stdout)
            why = (asked.stderr.strip().splitlines() or ["it says nothing"])[-1]
        except subprocess.TimeoutExpired:
            why = f"it took more than strategy.install_timeout={self.timeout:g} s"
        if not found or asked.returncode:
            if cached:
                log.warning("pip cannot ask the index (%s): the releases in %s are asked", why, self.folder)
                return cached
            raise UsageError(
                f"strategy.package={self.package}: pip cannot list its releases: {why}, and the cache {self.folder} "
                f"has none for {self.base}. Name them, strategy.versions=[1.22.1, 1.23.2], or their interpreters, "
                "strategy.interpreters=[old/bin/python]"
            )
        return sorted(Version(one.strip()) for one in found[1].split(","))

    def install(self, version: Version) -> Installed:
        """Return the interpreter that has a release, which is installed if it is not in the cache."""
        found = self._installed(version)
        if isinstance(found, str):
            self.refused[version] = found
        return found

    def beside(self, version: Version) -> str:
        """Return what an installed release got beside it because it cannot be imported otherwise; "" for nothing."""
        return _OLD_NUMPY if [*self._place(version).glob(f"lib/python*/site-packages/{_BESIDE}")] else ""

    def _installed(self, version: Version) -> Installed:
        place = self._place(version)
        python = place / "bin" / "python"
        try:
            if self._runs(python):
                return python
            if self.offline:
                return f"the cache {self.folder} does not have it, and strategy.offline=true"
            self._sweep()
            with tempfile.TemporaryDirectory(prefix=_HALF_MADE, dir=self.folder, ignore_cleanup_errors=True) as folder:
                made = Path(folder) / "made"
                if why := self._make(made, version):
                    return why
                if place.exists() and not self._runs(python):  # its base has gone
                    place.rename(Path(folder) / "broken")
                try:
                    made.rename(place)
                except OSError:  # another run was faster
                    if not self._runs(python):
                        raise
        except subprocess.TimeoutExpired:
            return f"its installation took more than strategy.install_timeout={self.timeout:g} s"
        except OSError as error:
            if error.errno in FULL:
                raise
            return f"it cannot be installed: {error.strerror}: {error.filename}"
        self.installs += 1
        return python

    def _sweep(self) -> None:
        """Make the folder, and remove what runs left half-made that were killed. Raises UsageError."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for left in self.folder.glob(f"{_HALF_MADE}*"):
                with suppress(FileNotFoundError):
                    if time.time() - left.stat().st_mtime > _ABANDONED:
                        shutil.rmtree(left, ignore_errors=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            if error.errno in FULL:
                raise
            raise UsageError(
                f"strategy.cache={self.folder}: releases cannot be kept there: {error.strerror}. Name a folder "
                "that can be written"
            ) from error

    def _make(self, place: Path, version: Version) -> str:
        """Make an environment with a release; return why that cannot be, "" where it was made."""
        done = self._run([self.base, "-m", "venv", "--without-pip", str(place)])
        if done.returncode:
            return f"{self.base} makes no virtual environment: {_last(done)}"
        site = next(place.glob("lib/python*/site-packages"))
        why = self._wheels(site, f"{self.package}=={version}", "--no-deps")
        names = import_names(site)
        why = why or (self._wheels(site, *self.besides, "--no-deps") if self.besides else "")
        if why:
            return why
        # after its own packages come those beside it, where there are any, and those of the base
        line = f"{_BESIDE}\nimport site; site.addsitedir({self._site[0]!r})\n"
        (site / "shared_packages.pth").write_text(line, encoding="utf-8")
        if self._imports(place, names):
            return ""
        log.info("%s %s cannot be imported as it is: it is tried with %s", self.package, version, _OLD_NUMPY)
        if self._wheels(site / _BESIDE, _OLD_NUMPY, "--no-deps") or not self._imports(place, names):
            shutil.rmtree(site / _BESIDE, ignore_errors=True)  # something else is missing, and the check will say what
        return ""

    def _imports(self, place: Path, names: Sequence[str]) -> bool:
        done = self._run([str(place / "bin" / "python"), "-c", f"import {', '.join(names)}"])
        return not done.returncode and _COMPLAINT not in done.stderr

    def _runs(self, python: Path) -> bool:
        try:
            return python.exists() and not self._run([str(python), "-I", "-S", "-c", ""]).returncode
        except OSError:  # it is no program
            return False

    def _wheels(self, site: Path, *what: str) -> str:
        wheels = ("--only-binary", ":all:", "--no-compile", "--quiet", "--upgrade", "--target", str(site))
        done = self._pip("install", *wheels, *what)
        return f"pip cannot install it: {_last(done)}" if done.returncode else ""

    def _pip(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        quiet = ("--disable-pip-version-check", "--no-input")
        done = self._run([sys.executable, "-m", "pip", "--python", self.base, verb, *quiet, *self.options, *words])
        if done.returncode and "No module named pip" in done.stderr:
            raise UsageError(
                f"strategy=versions installs releases with pip, which {sys.executable} does not have: python -m "
                "ensurepip, or name interpreters that have them, strategy.interpreters=[old/bin/python]"
            )
        return done

    def _run(self, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        return subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=self.timeout, env=environment, check=False
        )

    # ---- names in the cache

    def _kept(self) -> list[Path]:
        return [*self.folder.glob(f"{self.package}-*-{self._kind()}")] if self.folder.is_dir() else []

    def _version_of(self, place: Path) -> Version | None:
        try:
            return Version(place.name.removeprefix(f"{self.package}-").removesuffix(f"-{self._kind()}"))
        except InvalidVersion:
            return None

    def _place(self, version: Version) -> Path:
        return self.folder / f"{self.package}-{version}-{self._kind()}"

    def _kind(self) -> str:
        """Return what tells environments of one release apart: Python's version, the base, and what is installed."""
        site, python, numpy = self._site
        told = json.dumps([site, numpy, sorted(self.besides)])
        return f"py{python}-{hashlib.sha256(told.encode()).hexdigest()[:8]}"

    @cached_property
    def _site(self) -> tuple[str, str, str]:
        """The folder of the base's packages, its version, and which NumPy it has."""
        try:
            done = self._run([self.base, "-c", _SITE])
        except subprocess.TimeoutExpired:
            raise UsageError(f"{self.base} does not start within strategy.install_timeout={self.timeout:g} s") from None
        if done.returncode:
            raise UsageError(f"{self.base} does not run: {_last(done)}")
        site, python, numpy = done.stdout.split("\n")[:3]
        return site, python, numpy


def chosen_versions(available: Sequence[Version], asked: object, setting: str = "strategy.versions") -> list[Version]:
    """Return the releases of a specifier, a list, or None for all, oldest first. Raises UsageError for none."""
    wanted = read_versions(asked, setting)
    if isinstance(wanted, list):
        return wanted
    early = bool(wanted.prereleases)
    found = [one for one in sorted(available) if wanted.contains(one, prereleases=early)]
    if not found:
        raise UsageError(f"strategy.versions={asked}: no release is in it; there are {', '.join(map(str, available))}")
    return found


def read_versions(asked: object, setting: str = "strategy.versions") -> list[Version] | SpecifierSet:
    """Return releases, oldest first, or what describes them. Raises UsageError for what is neither."""
    several = asked if isinstance(asked, Sequence) and not isinstance(asked, str) else None
    number = next((one for one in ([asked] if several is None else several) if isinstance(one, float)), None)
    if number is not None:
        raise UsageError(
            f"{setting}: {number} was read as a number, for which 1.2 and 1.20 are the same. Write it in quotes: "
            "\"strategy.versions=['1.20',1.22.1]\", \"strategy.bad='1.20'\""
        )
    try:
        if several is not None:
            return sorted({Version(str(one)) for one in several})
        return SpecifierSet(str(asked) if asked else "")
    except (InvalidVersion, InvalidSpecifier) as error:
        raise UsageError(
            f"{setting}={asked}: {error}. Give a specifier, '>=1.18,<1.24', or a list, [1.22.1, 1.23.2]"
        ) from error


def last_patches(versions: Sequence[Version]) -> set[Version]:
    """Return the last release of each minor version."""
    return {*{(one.epoch, *one.release[:2]): one for one in sorted(versions)}.values()}


def _last(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in (done.stderr or done.stdout).strip().splitlines() if not line.startswith("WARNING")]
    return lines[-1].removeprefix("ERROR: ") if lines else f"exit {done.returncode}"


def installed_under(python: str) -> str:
    """Return a digest of an interpreter's version and packages. Raises UsageError where it does not run."""
    try:
        done = subprocess.run(
            [python, "-c", _LIST], capture_output=True, env=environment_for(python), timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"{python} cannot say what is installed there: {error}") from error
    return hashlib.sha256(done.stdout).hexdigest()


def import_names(site: Path) -> tuple[str, ...]:
    """Return by what names the packages in a folder are imported, as their metadata say; "sys" where they do not."""
    told = [name for path in site.glob("*.dist-info/top_level.txt") for name in path.read_text("utf-8").split()]
    if not told:
        records = (path.read_text("utf-8", errors="replace") for path in site.glob("*.dist-info/RECORD"))
        files = [line.partition(",")[0] for text in records for line in text.splitlines()]
        told = [name.removesuffix("/__init__.py") for name in files if name.endswith("/__init__.py")]
        told += [name.removesuffix(".py") for name in files if name.endswith(".py")]
    return tuple(sorted({name for name in told if name.isidentifier()})) or ("sys",)
