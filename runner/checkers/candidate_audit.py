"""An audit of the candidates themselves: are they sound, and do they compute on the reference what was recorded?

It judges Winnow's cutting, not the model, and no verdict depends on it. What it finds goes to ``audit.jsonl``, one line
a candidate.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections import Counter
from pathlib import Path

from runner.candidate import Candidate
from runner.checkers.backend_run import Side
from runner.checkers.checker import Checker, Tools
from runner.checkers.compare.compare_values import compare
from runner.checkers.wrapping_checker import Around
from runner.model.values.recorded import TensorFile
from runner.schema.checker import CompareChecker
from runner.schema.root import Settings
from runner.verdict import Verdict

AUDIT_NAME = "audit.jsonl"
TOLERANCES = {10: 1e-2, 16: 8e-2}
TOLERANCE = 1e-3
"""Of the largest value of a tensor, by ONNX element type, and of all others.

The reference may add in another order where other nodes surround it, and round to half precision at other places.
"""


PATIENCE = 20.0
"""Seconds that the reference gets for a candidate: one that hangs there has nothing to compare."""


class Audited(Around):
    """Checks as ``checker`` does, and audits each candidate on the way.

    ``drawing``: the model draws random numbers, so only shapes and types are compared. ``original``: the model as it
    was read; candidates may be as invalid as it is.
    """

    def __init__(self, checker: Checker, settings: Settings, tools: Tools, original: Path, *, drawing: bool) -> None:
        self.checker = checker
        self._tools = tools
        self._compares = settings.reference.model is None and not settings.reference.has_expected
        self._drawing = drawing
        self._reference = Side("reference", settings.reference, tools, PATIENCE, None)
        self._lock = threading.Lock()
        self._original_is_valid = self._problem(original) is None
        self.found: Counter[str] = Counter()

    def check(self, candidate: Candidate) -> Verdict:
        """Judge one candidate, after it was audited."""
        if candidate.model is not None:
            self._audit(candidate, candidate.model)
        return self.checker.check(candidate)

    @property
    def summary(self) -> str:
        """How many candidates were audited, and what was found."""
        total = sum(self.found.values())
        counted = ", ".join(f"{count} {what}" for what, count in sorted(self.found.items()))
        return f"audit of {total} candidates: {counted}"

    def _audit(self, candidate: Candidate, model: Path) -> None:
        problem = self._problem(model) if self._original_is_valid else None
        what, detail = ("worse than the original", problem) if problem else self._runs(candidate, model)
        row = {"iteration": candidate.iteration, "trial": candidate.trial.ranges, "found": what, "detail": detail}
        with self._lock:
            self.found[what] += 1
            with (self._tools.run_folder / AUDIT_NAME).open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def _problem(self, model: Path) -> str | None:
        reply = self._tools.pool.call("check_model", {"model": str(model)})
        if reply.value is None:
            return str(reply.death or reply.failure)
        return None if reply.value["ok"] else str(reply.value["message"])

    def _runs(self, candidate: Candidate, model: Path) -> tuple[str, str | None]:
        candidate.folder.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix="audit_", dir=candidate.folder))
        try:
            ran = self._reference.run(model, [sample.feeds for sample in candidate.samples], work)
            if ran.invalid or ran.signature:
                return "not run by the reference", ran.invalid or ran.message
            if not self._compares:
                return "run by the reference", None
            for sample, outputs in zip(candidate.samples, ran.outputs, strict=True):
                for name, expected in sample.expected.items():
                    if name in outputs and (why := self._differs(outputs[name], expected)):
                        return "not as recorded", f"{name}: {why}"
            return "as recorded", None
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _differs(self, mine: TensorFile, theirs: TensorFile) -> str:
        if self._drawing:
            alike = (mine.dtype, mine.shape, mine.structure) == (theirs.dtype, theirs.shape, theirs.structure)
            return "" if alike else "another type or shape"
        found = compare(mine, theirs, CompareChecker(rtol=TOLERANCES.get(theirs.dtype, TOLERANCE), atol=1e-6))
        return (found.detail or f"error {found.error:.3g} of the largest value") if found.fails() else ""
