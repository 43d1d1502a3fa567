"""Kept candidates that share the weights of their run: at its end, the disk budget holds for those weights too."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from runner.artifacts.folder import size_of
from runner.artifacts.given_values import beside
from runner.files import inside, read_plain
from runner.model.files.candidate_store import Store
from runner.model.files.weights_file import WEIGHTS, write_whole

KEPT = "kept."
"""What the names of such candidates begin with, in the store."""
SOURCE = "source.txt"
"""The file in the store that says what was read: kept candidates refer to places in those weights."""
POINTER = ".onnx.txt"
"""What the names of the files end in that say among the artifacts where they lie."""
_SAID = "model: "
_LOG = logging.getLogger(__name__)


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
        write_whole(place, [source.encode()])  # not synced: neither are the weights that it tells of


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
