"""Kept candidates that share the weights of their run: at its end, the disk budget holds for those weights too."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from runner.artifacts.folder import size_of
from runner.model.files.candidate_store import Store

KEPT = "kept."
"""What the names of such candidates begin with, in the store."""
POINTER = ".onnx.txt"
"""What the names of the files end in that say among the artifacts where they lie."""
_LOG = logging.getLogger(__name__)


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
        for pointer in folder.glob(f"*/*{POINTER}"):
            with suppress(OSError, ValueError):
                if pointer.read_text(encoding="utf-8").startswith(f"model: {path}\n"):
                    pointer.unlink()
    store.leave_only(kept)
