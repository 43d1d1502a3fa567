"""The sorting policy: what of each iteration is kept, in good/, bad/, different/ and unresolved/.

Sorting is a service to a person who looks at the files later. Nothing that goes wrong with it ends a run: a line in the
log says so and the search goes on.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import Any

import onnx

from runner.candidate import Candidate
from runner.errors import UsageError
from runner.model.store import Store
from runner.schema.run import ArtifactSettings, Keep
from runner.verdict import Verdict
from strategies.outcome import Outcome

_LOG = logging.getLogger(__name__)
INDEX_NAME = "index.jsonl"
_WEIGHTS = "weights.bin"
_POINTER = ".onnx.txt"
_FOLDERS = {
    Outcome.PASS: "good",
    Outcome.FAIL: "bad",
    Outcome.DIFFERENT: "different",
    Outcome.UNRESOLVED: "unresolved",
}


@dataclass(frozen=True)
class _Best:
    """The best candidate of one outcome so far: how many elements it keeps, and where it was put."""

    elements: int
    place: Path


class Artifacts:
    """Sorts candidates and the files that checks leave behind. Safe for threads.

    ``cwd``: where the user stands; ``settings.paths`` and ``settings.folder`` start there (``~`` is expanded, ``{dir}``
    is the iteration's own folder). Names are never reused: nothing is written over. A resumed run goes on in the same
    folder.
    Raises UsageError where the folder cannot be made.
    """

    def __init__(self, settings: ArtifactSettings, run_folder: Path, cwd: Path) -> None:
        self._settings = settings
        self._run_folder = run_folder
        self._cwd = cwd
        self.folder = cwd / Path(settings.folder).expanduser() if settings.folder else run_folder / "artifacts"
        self._lock = threading.Lock()
        self._left = settings.disk_budget_mb * 1024 * 1024
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._left -= _size(self.folder)
        except OSError as error:
            raise UsageError(f"artifacts.folder={self.folder} cannot be made ({error}); name another folder") from error
        self._best = self._known_best()

    def sort(self, candidate: Candidate, verdict: Verdict) -> None:
        """Keep of this iteration what the settings say, and add its row to ``index.jsonl``."""
        with self._lock:
            name = _name(candidate, verdict)
            row: dict[str, Any] = {
                "iteration": candidate.iteration,
                "phase": candidate.phase,
                "label": candidate.label,
                "outcome": verdict.outcome.value,
                "returncode": verdict.returncode,
                "signature": str(verdict.signature) if verdict.signature else None,
                "seconds": round(verdict.seconds, 6),
                "elements": len(candidate.trial),
                "trial": candidate.trial.ranges,
                "log": verdict.log,
            }
            row["model"] = self._keep_model(candidate, verdict.outcome, name)
            row["files"], row["missing"] = self._move_files(candidate, verdict.outcome, name)
            self._append(row)

    # -- candidates ---------------------------------------------------------------------------------------------------

    def _keep_model(self, candidate: Candidate, outcome: Outcome, name: str) -> str | None:
        keep = self._settings.keep
        if candidate.model is None or keep is Keep.none or (keep is Keep.bad and outcome is not Outcome.FAIL):
            return None
        if keep is Keep.best and not self._is_better(outcome, len(candidate.trial)):
            return None
        try:
            place = self._place_model(candidate.model, self._folder(outcome), name)
        except (OSError, ValueError) as error:
            _LOG.error("artifacts: the candidate of iteration %d was not kept: %s", candidate.iteration, error)
            return None
        if place is None:
            return None
        if keep is Keep.best:
            previous = self._best.get(outcome)
            self._best[outcome] = _Best(len(candidate.trial), place)
            if previous:
                self._remove(previous.place)
        return self._relative(place)

    def _is_better(self, outcome: Outcome, elements: int) -> bool:
        """Whether this is the smallest failing or the largest passing candidate so far."""
        best = self._best.get(outcome)
        if outcome is Outcome.FAIL:
            return best is None or elements < best.elements
        return outcome is Outcome.PASS and (best is None or elements > best.elements)

    def _place_model(self, model: Path, folder: Path, name: str) -> Path | None:
        """Copy a model that carries its weights; of a large one write down where it lies, or give it weights."""
        if not (model.parent / _WEIGHTS).exists():
            if not self._afford(model.stat().st_size, model.name):
                return None
            place = _reserve(folder, f"{name}.onnx")
            shutil.copyfile(model, place)
            return place
        if not self._settings.materialize:
            if not self._afford(model.stat().st_size, model.name):
                return None
            # a name of its own beside the weights: the candidate's may be gone when its check is over
            held = _reserve(model.parent, f"kept.{name}.onnx")
            shutil.copyfile(model, held)
            text = (
                f"model: {held}\nweights: {model.parent / _WEIGHTS}\n"
                "This candidate shares its weights with the others of the run, so it lies beside them.\n"
                "artifacts.materialize=true writes each with weights of its own.\n"
            )
            place = _reserve(folder, f"{name}{_POINTER}")
            place.write_text(text, encoding="utf-8", errors="backslashreplace")
            self._left -= len(text)
            return place
        store, structure = Store(model.parent), onnx.load(str(model), load_external_data=False)
        if not self._afford(store.kept_bytes(structure) + model.stat().st_size, model.name):
            return None
        place = _reserve(folder, name, folder_wanted=True)
        store.standalone(structure, place / "model.onnx")
        return place

    def _known_best(self) -> dict[Outcome, _Best]:
        """The best candidates that an interrupted run left here."""
        best: dict[Outcome, _Best] = {}
        if self._settings.keep is not Keep.best:
            return best
        for row in _rows(self.folder / INDEX_NAME):
            try:
                outcome, elements, place = Outcome(row["outcome"]), int(row["elements"]), self.folder / row["model"]
            except (KeyError, TypeError, ValueError):
                continue
            known = best.get(outcome)
            better = known is None or (elements < known.elements) == (outcome is Outcome.FAIL)
            if place.exists() and better:
                best[outcome] = _Best(elements, place)
        return best

    # -- files of the user's check ------------------------------------------------------------------------------------

    def _move_files(self, candidate: Candidate, outcome: Outcome, name: str) -> tuple[list[str], list[str]]:
        moved: list[str] = []
        missing: list[str] = []
        for pattern in self._settings.paths:
            sources = self._find(pattern.replace("{dir}", str(candidate.folder)))
            if not sources:
                _LOG.error("artifacts: %s is not there after iteration %d", pattern, candidate.iteration)
                missing.append(pattern)
            for source in sources:
                try:
                    place = self._move(source, self._folder(outcome), name)
                except (OSError, shutil.Error) as error:
                    _LOG.error("artifacts: %s was not moved: %s", source, error)
                    place = None
                if place:
                    moved.append(self._relative(place))
        return moved, missing

    def _find(self, pattern: str) -> list[Path]:
        path = self._cwd / Path(pattern).expanduser()
        if os.path.lexists(path):
            return [path]
        if not has_magic(str(path)):
            return []
        # Path.glob wants a relative pattern, and the user's may start anywhere
        return [Path(hit) for hit in sorted(glob(str(path), recursive=True))]  # noqa: PTH207

    def _move(self, source: Path, folder: Path, name: str) -> Path | None:
        real = source.resolve(strict=True)
        if any(
            inside == real or real in inside.parents for inside in (self.folder.resolve(), self._run_folder.resolve())
        ):
            _LOG.error("artifacts: %s holds the run itself and is not moved", source)
            return None
        if not self._afford(_size(real), str(source)):
            return None
        place = _reserve(folder, f"{name}__{_safe(source.name, 120)}", folder_wanted=real.is_dir())
        if not source.is_symlink():
            try:
                source.replace(place)
            except OSError:  # another file system
                pass
            else:
                return place
        if real.is_dir():
            shutil.copytree(real, place, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy2(real, place)
        if source.is_dir() and not source.is_symlink():
            shutil.rmtree(source)
        else:
            source.unlink()
        return place

    # -- bookkeeping --------------------------------------------------------------------------------------------------

    def _folder(self, outcome: Outcome) -> Path:
        folder = self.folder / _FOLDERS[outcome]
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _afford(self, size: int, what: str) -> bool:
        if size > self._left:
            _LOG.warning(
                "artifacts: %s (%.1f MiB) is not kept, %.1f MiB are left of artifacts.disk_budget_mb=%d",
                what,
                size / 1048576,
                max(0, self._left) / 1048576,
                self._settings.disk_budget_mb,
            )
            return False
        self._left -= size
        return True

    def _remove(self, place: Path) -> None:
        try:
            if place.name.endswith(_POINTER):
                first = place.read_text(encoding="utf-8").splitlines()[0]
                self._remove(Path(first.removeprefix("model: ")))
            size = _size(place)
            if place.is_dir():
                shutil.rmtree(place)
            else:
                place.unlink()
            self._left += size
        except OSError as error:
            _LOG.error("artifacts: %s was not removed: %s", place, error)

    def _relative(self, place: Path) -> str:
        return place.relative_to(self.folder).as_posix()

    def _append(self, row: dict[str, Any]) -> None:
        path = self.folder / INDEX_NAME
        try:
            line = json.dumps(row).encode() + b"\n"
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                size = os.fstat(descriptor).st_size
                # a killed run may have left half a row; it must not swallow this one
                whole = size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"
                os.write(descriptor, line if whole else b"\n" + line)
            finally:
                os.close(descriptor)
        except OSError as error:
            _LOG.error("artifacts: no row in %s: %s", path, error)


def _name(candidate: Candidate, verdict: Verdict) -> str:
    parts = [
        f"{candidate.iteration:05d}",
        _safe(candidate.phase, 24),
        _safe(candidate.label, 48),
        verdict.outcome.value,
    ]
    if verdict.returncode is not None:
        parts.append(f"rc{verdict.returncode}")
    return "_".join(part for part in parts if part)


def _safe(text: str, longest: int) -> str:
    """Text as a part of a file name: plain characters only, no leading dot, bounded; the end (the suffix) survives."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-").lstrip(".")
    return plain if len(plain) <= longest else plain[: longest - 17] + "-" + plain[-16:]


def _reserve(folder: Path, name: str, *, folder_wanted: bool = False) -> Path:
    """Make an empty file or folder of a name that nobody has, and return its path."""
    stem, dot, suffix = name.rpartition(".")
    for number in range(1, 1_000_000):
        counted = (
            name if number == 1 else (f"{stem}_{number}.{suffix}" if dot and not folder_wanted else f"{name}_{number}")
        )
        place = folder / counted
        try:
            if folder_wanted:
                place.mkdir()
            else:
                place.open("xb").close()
        except FileExistsError:
            continue
        return place
    raise FileExistsError(f"no free name for {name} in {folder}")


def _size(path: Path) -> int:
    if not path.is_dir():
        return path.lstat().st_size
    return sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row
