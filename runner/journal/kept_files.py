"""What is kept of each iteration: models, engines, logs and given values, in folders of outcomes and in an index.

Sorting is a service to a person who looks at the files later. Nothing that goes wrong with it ends a run: a line in the
log says so and the search goes on.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import onnx

from runner.exit_codes import UsageError
from runner.files import append_json, inside, json_lines, read_plain
from runner.journal.artifact_folder import ArtifactFolder, UserFiles, reserve, safe, size_of
from runner.model.files.candidate_store import Store
from runner.model.files.parse_without_weights import WEIGHTS
from runner.model.values import tensor_bytes
from runner.run_folder import MIN_GOOD
from runner.schema.root import ArtifactSettings, Keep
from runner.verdict import Candidate, Phase, Signature, Verdict
from strategies.search import Outcome

# The index of a run's artifacts, ``index.jsonl``: one row a check, what it said and where its model and files lie.

INDEX_NAME = "index.jsonl"


def row_of(candidate: Candidate, verdict: Verdict, question: str) -> dict[str, Any]:
    """Return what a row says of a check. ``question``: the journal whose trial it is of."""
    return {
        "iteration": candidate.iteration,
        "phase": candidate.phase,
        "label": candidate.label,
        "outcome": verdict.outcome.value,
        "returncode": verdict.returncode,
        "signature": str(verdict.signature) if verdict.signature else None,
        "failure": failure_of(verdict.signature),
        "reason": verdict.reason,
        "seconds": round(verdict.seconds, 6),
        "elements": candidate.size,
        "trial": candidate.trial.ranges,
        "question": question,
        "log": verdict.log,
    }


def failure_of(signature: Signature | None) -> str:
    """Return what the class of a failure is named: its stage and kind, and the exceptions of a check."""
    return signature.name if signature else ""


# What a build leaves beside its candidate: the engine, everything that was said, and which nodes were fused.

SUFFIXES = {"model.engine": ".engine", "build.log": ".build.log", "layers.json": ".layers.json"}
"""Files of an iteration's folder -> what their names end in beside a kept candidate."""


def keep_engine(folder: Path, place: Path, stem: str, kept: ArtifactFolder) -> None:
    """Move what a build left in an iteration's ``folder`` beside the candidate at ``place``. Raises OSError."""
    for name, suffix in SUFFIXES.items():
        source = folder / name
        if source.is_file() and kept.afford(source.stat().st_size, name):
            shutil.move(source, reserve(place.parent, stem + suffix))


def drop_engine(folder: Path) -> None:
    """Remove what a build left in an iteration's ``folder``: engines are large."""
    for name in SUFFIXES:
        (folder / name).unlink(missing_ok=True)


# The values that a check asked for, kept beside its candidate: whoever checks that again feeds it the same.

_LOG = logging.getLogger(__name__)
# how the names of files go on that lie beside a candidate: npz files of a sample or data sets of all, and of a build
_BESIDE = re.compile(r"(inputs|references)(_[0-9]+)?\.npz|data|engine|build\.log|layers\.json")


def beside(place: Path) -> list[Path]:
    """Return what was kept beside the candidate at ``place``."""
    start = f"{_stem(place)}."
    return [
        path
        for path in place.parent.iterdir()
        if path.name.startswith(start) and _BESIDE.fullmatch(path.name[len(start) :])
    ]


def _stem(place: Path) -> str:
    return place.name.removesuffix(".txt").removesuffix(".onnx")


def _is_plain(source: Path) -> bool:
    """Whether these are files, and nothing else that a check has put there."""
    inner = source.rglob("*") if source.is_dir() else ()
    return all(not path.is_symlink() and (path.is_file() or path.is_dir()) for path in (source, *inner))


# Kept candidates that share the weights of their run: at its end, the disk budget holds for those weights too.

KEPT = "kept."
"""What the names of such candidates begin with, in the store."""
SOURCE = "source.txt"
"""The file in the store that says what was read: kept candidates refer to places in those weights."""
POINTER = ".onnx.txt"
"""What the names of the files end in that say among the artifacts where they lie."""
_SAID = "model: "


def point(place: Path, held: Path, *, relative: bool) -> int:
    """Write at ``place`` that a candidate lies at ``held``, beside its weights; return how many bytes that took.

    ``relative``: both lie in the run's folder, which may be moved. Raises OSError.
    """
    model = Path(os.path.relpath(held.resolve(), place.parent.resolve())) if relative else held
    text = (
        f"{_SAID}{model}\nweights: {model.parent / WEIGHTS}\n"
        "This candidate shares its weights with the others of the run, so it lies beside them.\n"
        "artifacts.materialize=true writes each with weights of its own.\n"
    ).encode("utf-8", "surrogateescape")
    return place.write_bytes(text)


def leave_kept(folder: Path) -> None:
    """Remove what an interrupted run left in its store, but for kept candidates; the weights are going to be there."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.is_symlink() or not path.name.startswith((KEPT, SOURCE)):
            path.unlink(missing_ok=True)


def confirm_source(store: Store, sha256: str) -> None:
    """Remove kept candidates that refer to other weights than those just read from the file with this digest."""
    source = f"{sha256} {hashlib.sha256(store.structure.read_bytes()).hexdigest()}\n"
    place = store.folder / SOURCE
    if read_plain(place) != source.encode():
        for path in store.folder.glob(f"{KEPT}*"):
            path.unlink()
    if store.weights.exists():
        tensor_bytes.write_whole(place, [source.encode()])  # not synced: neither are the weights that it tells of


def model_of(pointer: Path) -> Path | None:
    """Return where the candidate lies of which a file among the artifacts says so; None: it says nothing of it."""
    first = read_plain(pointer).partition(b"\n")[0].decode("utf-8", "surrogateescape")
    return pointer.parent / first.removeprefix(_SAID) if first.startswith(_SAID) else None


def is_there(place: Path) -> bool:
    """Whether something is kept at ``place``; if that only says where a candidate lies, whether that is there."""
    if not place.name.endswith(POINTER) or not place.is_file():
        return place.exists()
    held = model_of(place)
    return held is None or held.exists()


def leave_affordable(store: Store, folder: Path, budget_mb: int) -> None:
    """Remove a store but for the kept candidates, as many as the budget of the artifacts in ``folder`` allows.

    Those that take least come first: failing ones are small. What several refer to counts once.
    """
    candidates = {path: store.regions(path) for path in store.folder.glob(f"{KEPT}*") if path.is_file()}
    left = (budget_mb << 20) - (size_of(folder) if folder.is_dir() else 0)
    paid: set[tuple[Path, int]] = set()
    kept: list[Path] = []
    for path, regions in sorted(candidates.items(), key=lambda one: sum(one[1].values())):
        size = sum(length for region, length in regions.items() if region not in paid)
        if size <= left:
            left -= size
            paid.update(regions)
            kept.append(path)
            continue
        _LOG.warning(
            "artifacts: %s is not kept, its weights take %d MiB and %d are left of artifacts.disk_budget_mb=%d",
            path.name.removeprefix(KEPT),
            size >> 20,
            max(0, left) >> 20,
            budget_mb,
        )
    _drop_pointers(store, folder, kept)
    store.leave_only([*kept, store.folder / SOURCE] if kept else [])


def _drop_pointers(store: Store, folder: Path, kept: Collection[Path]) -> None:
    """Remove what says of candidates that they lie in the store, where they do not."""
    for pointer in folder.glob(f"*/*{POINTER}"):
        with suppress(OSError, ValueError):
            held = model_of(pointer)
            if held and inside(held, store.folder) and held.name not in {path.name for path in kept}:
                pointer.unlink()
                for values in beside(pointer):
                    shutil.rmtree(values) if values.is_dir() else values.unlink()


# phases that look for no smaller model: a lone Identity, and the whole model, with good values in it or with what is
# inside it as outputs, which would have all weights kept
_PROOFS = (Phase.CONTROL, Phase.CAUSE, Phase.FIRST_LOOK)


_Class = tuple[Outcome, str]
"""Of which candidates the best is kept: an outcome, and for another failure its stage and kind."""


class Artifacts:
    """Sorts candidates and the files that checks leave behind. Safe for threads.

    ``cwd``: where the user stands; ``settings.paths`` and ``settings.folder`` start there (``~`` is expanded, ``{dir}``
    is the iteration's own folder). Names are never reused: nothing is written over. A resumed run goes on in the same
    folder.
    Raises UsageError where the folder cannot be made.
    """

    def __init__(self, settings: ArtifactSettings, run_folder: Path, cwd: Path) -> None:
        self._settings = settings
        self.folder = place_of(settings, run_folder, cwd)
        self._lock = threading.Lock()
        try:
            self._kept = ArtifactFolder(self.folder, settings.disk_budget_mb)
        except OSError as error:
            raise UsageError(f"artifacts.folder={self.folder} cannot be made ({error}); name another folder") from error
        listed = self.folder / INDEX_NAME
        used = settings.folder and listed.is_file() and listed.stat().st_size
        if used and not any("iteration" in row and "outcome" in row for row in json_lines(listed)):
            raise UsageError(f"artifacts.folder={self.folder} has an {INDEX_NAME} that is no run's; name another")
        self._run_folder = run_folder
        self._store = run_folder / "store"
        self._user_files = UserFiles(settings.paths, self._kept, run_folder, cwd)
        self._best: dict[_Class, tuple[int, Path]] = {}  # of its class: its size, and where it was put
        self._listed: list[Mapping[str, Any]] | None = None  # rows whose models were put here, once they were asked for
        self._handed_over: dict[Path, list[Path]] = {}  # beside what the values lie that checks of it were given
        if settings.keep is Keep.best:
            self._recall_best()

    def sort(self, candidate: Candidate, verdict: Verdict, question: str = "") -> None:
        """Keep of this iteration what the settings say, and add its row to ``index.jsonl``.

        ``question``: the journal whose trial it is of; the same trial of another one is another model.
        """
        with self._lock:
            name = _name(candidate, verdict)
            row = row_of(candidate, verdict, question)
            row["model"] = self._keep_model(candidate, verdict, name)
            drop_engine(candidate.folder)
            row["files"], row["missing"] = self._user_files.move(candidate, verdict.outcome, name)
            if row["model"]:
                self._keep_values(candidate, self.folder / row["model"])
                if self._listed is not None:
                    self._listed.append(row)
            self._append(row)

    def hand_over(self, candidate: Candidate, verdict: Verdict, question: str = "") -> None:
        """Add the row of a check of a file that is handed over. Nothing that it stands for is kept a second time.

        It is the best of its outcome, and the candidate of its trial. Artifacts in a folder of the user's own are kept
        all the same: what is handed over lies elsewhere.
        """
        assert candidate.model
        with self._lock:
            row, model = row_of(candidate, verdict, question), str(candidate.model)
            if inside(self.folder, self._run_folder):
                model = os.path.relpath(candidate.model, self.folder)
                try:
                    self._replace(candidate, verdict, row)
                except OSError as error:
                    _LOG.error("artifacts: beside %s, what it stands for was kept as well: %s", candidate.model, error)
            drop_engine(candidate.folder)
            self._append(row | {"model": model, "files": [], "missing": []})

    def withdraw(self, model: Path) -> None:
        """Remove what was kept of a file that is no longer handed over."""
        with self._lock:
            places = self._handed_over.pop(model, [])
            self._best = {class_: best for class_, best in self._best.items() if best[1] not in places}
            for place in places:
                self._remove(place)

    # -- candidates ---------------------------------------------------------------------------------------------------

    def others(self) -> dict[str, str]:
        """Where the smallest candidate of each failure that is not under study was put, by stage and kind."""
        with self._lock:
            return {
                failure: self._kept.relative(place)
                for (outcome, failure), (_, place) in self._best.items()
                if outcome is Outcome.DIFFERENT
            }

    def _keep_model(self, candidate: Candidate, verdict: Verdict, name: str) -> str | None:
        keep, outcome = self._settings.keep, verdict.outcome
        class_ = outcome, failure_of(verdict.signature) if outcome is Outcome.DIFFERENT else ""
        if candidate.model is None or not candidate.ours:
            return None
        if keep is Keep.none or (keep is Keep.bad and outcome is not Outcome.FAIL):
            return None
        if keep is Keep.best and (candidate.phase in _PROOFS or not self._is_better(class_, candidate.size)):
            return None
        try:
            place = self._place_model(candidate.model, self._kept.of(outcome), name)
            if place:
                keep_engine(candidate.folder, place, name, self._kept)
        except (OSError, ValueError) as error:
            _LOG.error("artifacts: the candidate of iteration %d was not kept: %s", candidate.iteration, error)
            return None
        if place is None:
            return None
        if (outcome is Outcome.DIFFERENT or keep is Keep.best) and self._is_better(class_, candidate.size):
            self._put_first(class_, candidate.size, place)
        return self._kept.relative(place)

    def _keep_values(self, candidate: Candidate, place: Path) -> None:
        """Move what the check was given beside the kept candidate at ``place``: ``NAME.inputs.npz``."""
        try:
            # a check that was made again may have been given them twice, and `artifacts.paths` may have taken them
            for source in filter(os.path.lexists, dict.fromkeys(candidate.values)):
                if not _is_plain(source):
                    _LOG.warning("artifacts: %s is not what the check was given any more, and is not kept", source)
                elif self._kept.afford(size_of(source), source.name):
                    shutil.move(source, place.with_name(f"{_stem(place)}.{source.name}"))
        except OSError as error:
            _LOG.error("artifacts: what iteration %d was given was not kept: %s", candidate.iteration, error)

    def _replace(self, candidate: Candidate, verdict: Verdict, row: Mapping[str, Any]) -> None:
        """Remove what a file that is handed over stands for, and keep what its build left. Raises OSError."""
        same = {key: row[key] for key in ("outcome", "trial", "question")}
        for _, _, place in list(self._still_kept(same)):
            self._remove(place)
        if self._settings.keep is Keep.none:
            return
        name = _name(candidate, verdict)
        place = self._kept.of(verdict.outcome) / f"{name}.onnx"  # what a build left is named after it
        keep_engine(candidate.folder, place, name, self._kept)
        if self._settings.keep is Keep.best and verdict.outcome in (Outcome.FAIL, Outcome.PASS):
            self._put_first((verdict.outcome, ""), candidate.size, place)
        if (
            self._settings.keep is not Keep.bad and candidate.model and candidate.model.stem == MIN_GOOD
        ):  # the answer has a data set
            self._keep_values(candidate, place)
            self._handed_over.setdefault(candidate.model, []).append(place)

    def _put_first(self, class_: _Class, size: int, place: Path) -> None:
        previous, self._best[class_] = self._best.get(class_), (size, place)
        if previous and self._settings.keep is Keep.best:
            self._remove(previous[1])

    def _is_better(self, class_: _Class, elements: int) -> bool:
        """Whether this is the smallest failing (in its way) or the largest passing candidate so far."""
        best = self._best.get(class_)
        if class_[0] in (Outcome.FAIL, Outcome.DIFFERENT):
            return best is None or elements < best[0]
        return class_[0] is Outcome.PASS and (best is None or elements > best[0])

    def _place_model(self, model: Path, folder: Path, name: str) -> Path | None:
        """Keep a model that carries its weights; of a large one write down where it lies, or give it weights."""
        if not (model.parent / WEIGHTS).exists():
            if not self._kept.afford(model.stat().st_size, model.name):
                return None
            return Path(shutil.copyfile(model, reserve(folder, f"{name}.onnx")))
        if not self._settings.materialize:
            if not self._kept.afford(model.stat().st_size, model.name):
                return None
            # a name of its own beside the weights: the candidate's may be gone when its check is over
            held = Path(shutil.copyfile(model, reserve(model.parent, f"{KEPT}{name}.onnx")))
            place = reserve(folder, f"{name}{POINTER}")
            self._kept.give_back(-point(place, held, relative=inside(self.folder, self._run_folder)))
            return place
        store, structure = Store(model.parent), onnx.load(str(model), load_external_data=False)
        if not self._kept.afford(store.kept_bytes(structure) + model.stat().st_size, model.name):
            return None
        place = reserve(folder, name, folder_wanted=True)
        store.standalone(structure, place / "model.onnx")
        return place

    def _recall_best(self) -> None:
        """Find the best candidates that an interrupted run left here."""
        for row, outcome, place in self._still_kept({}):
            try:
                elements = int(row["elements"])
            except (KeyError, TypeError, ValueError, OverflowError):
                continue
            class_ = (outcome, str(row.get("failure") or "") if outcome is Outcome.DIFFERENT else "")
            if self._is_better(class_, elements):
                self._best[class_] = elements, place

    def _still_kept(self, same: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Outcome, Path]]:
        """Yield the rows that say the ``same`` and whose models lie here, with those.

        The index is read once: it has a row for each check, and this is asked for each repeat of a hand-over.
        """
        if self._listed is None:
            self._listed = [row for row in json_lines(self.folder / INDEX_NAME) if self._place(row)]
        for row in self._listed:
            found = self._place(row) if all(row.get(key) == value for key, value in same.items()) else None
            if found and is_there(found[1]):
                yield row, *found

    def _place(self, row: Mapping[str, Any]) -> tuple[Outcome, Path] | None:
        """Return where the model of a row lies, None for one that is not kept here; the index may be anybody's."""
        try:
            outcome, place = Outcome(row["outcome"]), self.folder / row["model"]
        except (KeyError, TypeError, ValueError):
            return None
        return (outcome, place) if inside(place, self._kept.of(outcome)) else None

    # -- bookkeeping --------------------------------------------------------------------------------------------------

    def _remove(self, place: Path) -> None:
        try:
            if place.name.endswith(POINTER):
                held = model_of(place)
                if held and inside(held, self._store) and held.name.startswith(KEPT):  # the pointer may be anybody's
                    self._remove(held)
            if place.exists():  # what was handed over lies elsewhere
                self._kept.remove(place)
            for path in beside(place):
                self._kept.remove(path)
        except OSError as error:
            _LOG.error("artifacts: %s was not removed: %s", place, error)

    def _append(self, row: Mapping[str, Any]) -> None:
        path = self.folder / INDEX_NAME
        try:
            append_json(path, row)
        except OSError as error:
            _LOG.error("artifacts: no row in %s: %s", path, error)


def place_of(settings: ArtifactSettings, run_folder: Path, cwd: Path) -> Path:
    """Return the folder of a run's artifacts."""
    return cwd / Path(settings.folder).expanduser() if settings.folder else run_folder / "artifacts"


def _name(candidate: Candidate, verdict: Verdict) -> str:
    parts = [
        f"{candidate.iteration:05d}",
        safe(candidate.phase, 24),
        safe(candidate.label, 48),
        verdict.outcome.value,
    ]
    if verdict.returncode is not None:
        parts.append(f"rc{verdict.returncode}")
    return "_".join(part for part in parts if part)
