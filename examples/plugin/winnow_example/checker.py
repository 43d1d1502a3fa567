"""Checker ``has_operator``."""

from __future__ import annotations

import onnx

from runner.checkers.checker import Tools
from runner.schema.root import Settings
from runner.verdict import Candidate, Signature, Verdict
from strategies.search import Outcome
from winnow_example.settings import HasOperator


class HasOperatorCheck:
    """Looks at a candidate's graph; nothing runs."""

    name = "has_operator"
    wants_feeds = False

    def __init__(self, checker: HasOperator, tools: Tools, run: Settings) -> None:
        self._operator = checker.operator

    def check(self, candidate: Candidate) -> Verdict:
        """FAIL if the operator is there."""
        if candidate.model is None:
            return Verdict(Outcome.UNRESOLVED, reason="there is no model")
        graph = onnx.load(str(candidate.model), load_external_data=False).graph
        if any(node.op_type == self._operator for node in graph.node):
            return Verdict(Outcome.FAIL, Signature("check", "operator"), f"it holds a {self._operator}")
        return Verdict(Outcome.PASS)

    def settle(self, verdict: Verdict) -> None:
        """Learn nothing from the verdict on the whole model."""

    def reset(self) -> bool:
        """Forget nothing; verdicts do not depend on which failure is studied."""
        return False

    def identity(self) -> dict[str, str]:
        """Return what verdicts depend on."""
        return {"checker": self.name, "operator": self._operator}

    def describe(self) -> str:
        """Say what is checked."""
        return f"checker=has_operator checker.operator={self._operator}"
