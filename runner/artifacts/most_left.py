"""What a run leaves on the disk at most: predicted before its search."""

from __future__ import annotations

from dataclasses import dataclass

from runner.model.files.candidate_store import Store
from runner.schema.run import ArtifactSettings, Keep


@dataclass(frozen=True)
class MostLeft:
    """Bytes: of models that are handed over, of kept candidates, and of weights in the store that these share."""

    handed_over: int
    copies: int = 0
    shared: int = 0

    @classmethod
    def of(cls, store: Store, artifacts: ArtifactSettings, checks: int, values: int = 0) -> MostLeft:
        """Predict it for a model that was read into ``store``, with ``checks`` ahead.

        ``values``: bytes that each of them is given at most, which lie beside kept candidates.

        The answer and the passing candidate beside it are together about as large as the model at most.
        """
        weights = store.weights.stat().st_size if store.weights.exists() else 0
        structure = store.structure.stat().st_size
        budget = artifacts.disk_budget_mb << 20
        if artifacts.keep in (Keep.best, Keep.none):  # these hold what is handed over, and best min_good's values
            return cls(weights + structure, min(budget, values) if artifacts.keep is Keep.best else 0)
        if artifacts.materialize or weights <= store.inline_limit:
            return cls(weights + structure, min(budget, checks * (weights + structure + values)))
        return cls(weights + structure, min(budget, checks * (structure + values)), min(budget, weights))
