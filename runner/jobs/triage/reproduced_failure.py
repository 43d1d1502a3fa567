"""What the steps of a triage say that have ended, and of these whether and how the file as it is fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from runner.jobs.triage.situation import Situation
from runner.jobs.triage.step_result import Ended, number, section
from runner.judgment import ANSWERED, Status
from runner.text import counted
from runner.verdict import Signature

_ANSWERS = ANSWERED | {Status.nothing_to_find, Status.no_set_suffices, Status.planned}
SEEN = ("stands", "repeat", "rounded", "inputs", "more_inputs")
"""The steps that say whether the file as it is fails: the first two as the user asks, the others otherwise."""
MOST_SECONDS = 10.0
"""A check that takes longer is slow."""
CHECKED = frozenset({*SEEN, "plain", "healed"})
"""The steps that only count what checks say."""


@dataclass(frozen=True)
class Reproduced:
    """``wanted``: steps that may be taken. ``planned``: nothing but the pre-flight. ``spent``: the budget that is."""

    situation: Situation
    wanted: tuple[str, ...]
    planned: bool = False
    spent: str = ""
    ended: tuple[Ended, ...] = ()

    def after(self, step: Ended) -> Self:
        """Return what is known after one more step."""
        return replace(self, ended=(*self.ended, step))

    def of(self, name: str) -> Ended | None:
        """Return a step; None: it has not ended yet."""
        return next((one for one in self.ended if one.name == name), None)

    def has(self, name: str) -> bool:
        """Whether a step ended, or was left out."""
        return self.of(name) is not None

    def result(self, name: str) -> Mapping[str, Any]:
        """Return what a step found; nothing where it was not asked."""
        step = self.of(name)
        return step.result if step else {}

    def has_result(self, name: str) -> bool:
        """Whether a step was asked and said anything."""
        return bool(self.result(name))

    def has_answer(self, name: str) -> bool:
        """Whether a step found something."""
        return any(self.result(name).get("status") == one for one in ANSWERED)

    def said(self, name: str) -> str:
        """Return what a step said, after how it ended."""
        step = self.of(name)
        if step is None or not step.result:
            return "not asked"
        plain = step.status in _ANSWERS or step.message.startswith(step.status)
        return step.message if plain else ": ".join(filter(None, (step.status, step.message)))

    def judgements(self, name: str) -> tuple[int, int]:
        """Return how many checks of a step failed, and of how many of the model that could be judged.

        A control is a check of an Identity alone, which passes.
        """
        outcomes, checks = section(self.result(name), "outcomes"), section(self.result(name), "checks")
        failed, controls = int(number(outcomes, "fail")), int(number(checks, "control"))
        return failed, failed + max(int(number(outcomes, "pass")) - controls, 0)

    def count(self, name: str) -> str:
        """Return that in words."""
        failed, of = self.judgements(name)
        return f"{failed} of {counted(of, 'check')} failed" if of else self.said(name)

    @property
    def stopped(self) -> bool:
        """Whether somebody, or a full disk, ended the last step."""
        return bool(self.ended) and self.ended[-1].status in (Status.interrupted, Status.no_room)

    # ---- does it stand

    @property
    def judged(self) -> bool:
        """Whether the file as it is can be judged."""
        return self.judgements("stands")[1] > 0

    @property
    def seconds_each(self) -> float:
        """How long a check of the file took."""
        return number(section(self.result("stands"), "seconds"), "checking") / max(self.judgements("stands")[1], 1)

    @property
    def is_slow(self) -> bool:
        """Whether the whole model is not checked more often than it has to be."""
        return self.seconds_each > MOST_SECONDS

    @property
    def _own(self) -> tuple[int, int]:
        """Of the file with its own inputs: failed, and of how many."""
        both = [self.judgements(name) for name in SEEN[:2]]
        return sum(one[0] for one in both), sum(one[1] for one in both)

    @property
    def fails(self) -> bool:
        """Whether the file fails, with its own inputs, at least once."""
        return self._own[0] > 0

    @property
    def flaky(self) -> bool:
        """Whether it fails at times, with its own inputs."""
        failed, of = self._own
        return 0 < failed < of

    @property
    def only_in(self) -> str:
        """The first step that asks otherwise and failed, where it passes as the user asks; "": none."""
        found = [name for name in SEEN[2:] if self.judgements(name)[0]]
        return "" if self.fails or not found else found[0]

    @property
    def anything_failed(self) -> bool:
        """Whether anything is there to look into."""
        return self.fails or bool(self.only_in)

    @property
    def how_often(self) -> str:
        """In how many checks it failed, and with which inputs."""
        failed, of = self._own
        if self.only_in and self.only_in != "rounded":
            return f"with another seed only: {self.count(self.only_in)}"
        often = f"in each of {of} checks" if failed == of else f"in {failed} of {of} checks (flaky)"
        if self.only_in:
            often = "only where it is rounded after every operator, as on a GPU (target.rounding=on)"
        others, tried = self.judgements("inputs")
        if not tried:
            return often
        kind = "random inputs" if self.situation.inputs == "files" else "another seed"
        return f"{often}, {'also' if others else 'not'} with {kind}"

    @property
    def _signature(self) -> Mapping[str, Any]:
        held = (section(self.result(name), "signature") for name in (*SEEN, "reduce"))
        return next((one for one in held if one), {})

    @property
    def failure(self) -> str:
        """What fails, in words."""
        return f"{self._signature.get('stage', '?')}: {self._signature.get('kind', 'failure')}"

    @property
    def hangs(self) -> bool:
        """Whether the failure is that a run does not end."""
        return self._signature.get("kind") == "timeout"

    @property
    def not_finite(self) -> bool:
        """Whether the failure is a NaN or Inf."""
        return self._signature.get("kind") in ("nan", "inf")

    @property
    def about_values(self) -> bool:
        """Whether the failure may lie in what tensors hold."""
        told = self._signature
        return bool(told) and Signature(str(told.get("stage", "")), str(told.get("kind", ""))).about_values
