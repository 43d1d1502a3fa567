"""What a workaround costs: how long the target takes with it and without it, run in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from runner.candidate import Variant
from runner.jobs.job import Job
from runner.loading.load import Loaded
from runner.model.values.tensor_file import paths
from runner.workers.leases.required_lease import lease_of

_ROUNDS = 3
"""How often two interpreters, of which each has a process of its own, take turns."""
_AS_IT_IS = Variant()


@dataclass(frozen=True)
class Costs:
    """Measures on the first recorded sample. ``runs``: timed runs of each model."""

    job: Job
    loaded: Loaded
    runs: int

    def of(self, model: Path, variant: Variant, *, alone: bool) -> Mapping[str, Any] | None:
        """Return the median milliseconds before and after, their ratio and the runs of each; None: not measured.

        ``alone``: the model as it is cannot be run; then, and where it proves so, only what comes after is measured.
        """
        values = self.loaded.recorded.values
        if not self.runs or (self.loaded.graph.inputs and not values):
            return None
        before, after = (self.loaded.path, _AS_IT_IS), (model, variant)
        pair = None
        if not alone:
            if self._python(variant) == self._python(_AS_IT_IS):
                pair = self._timed([before, after], self.runs)
            else:
                each = -(-self.runs // _ROUNDS)
                turns = [(self._timed([before], each), self._timed([after], each)) for _ in range(_ROUNDS)]
                if all(one and other for one, other in turns):
                    pair = [median(one[0] for one in side if one) for side in zip(*turns, strict=True)]
        if pair is None:
            only = self._timed([after], self.runs)
            if only is None:
                return None
            return {"before_ms": None, "after_ms": round(only[0], 3), "ratio": None, "runs": self.runs}
        first, second = pair
        ratio = round(second / first, 3) if first else None
        return {"before_ms": round(first, 3), "after_ms": round(second, 3), "ratio": ratio, "runs": self.runs}

    def _python(self, variant: Variant) -> str | None:
        return variant.python or self.job.settings.target.python

    def _timed(self, models: Sequence[tuple[Path, Variant]], runs: int) -> list[float] | None:
        """Return the median milliseconds of models that one interpreter runs; None where one of them does not run."""
        job, python = self.job, self._python(models[0][1])
        target, limits = job.settings.target, job.settings.workers
        backends = [{**target.to_json(), **variant.settings} for _, variant in models]
        caches = {"load": own, "save": None} if (own := backends[-1].get("timing_cache")) else None
        args = {
            "models": [
                {"backend": backend, "model": str(path)} for backend, (path, _) in zip(backends, models, strict=True)
            ],
            "samples": [paths(sample) for sample in self.loaded.recorded.values[:1]] or [{}],
            "runs": runs,
            "caching": caches,
        }
        lease = lease_of(backends[0], job.pool, python)
        reply = job.pool.call(
            "latency", args, python=python, timeout=limits.timeout, memory_mb=limits.memory_mb, lease=lease
        )
        return [float(one) for one in reply.value["ms"]] if reply.value else None
