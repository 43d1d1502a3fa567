"""What a triage knows: the situation it began in, and what the steps say that have ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from runner.jobs.triage.situation import Situation
from runner.jobs.triage.step_result import Ended, names, number, section
from runner.status import Status
from runner.text import counted, listed
from runner.verdict import Signature

_ANSWERS = frozenset({Status.found, Status.nothing_to_find, Status.no_set_suffices, Status.planned})
_SEEN = ("stands", "repeat", "inputs", "more_inputs")
"""The steps that say whether the file as it is fails."""
CHECKED = frozenset({*_SEEN, "healed"})
"""The steps that only count what checks say."""


@dataclass(frozen=True)
class Known:
    """``wanted``: steps that may be taken. ``planned``: nothing but the pre-flight. ``spent``: the budget is."""

    situation: Situation
    wanted: tuple[str, ...]
    planned: bool = False
    spent: bool = False
    ended: tuple[Ended, ...] = ()

    def after(self, step: Ended) -> Known:
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
        return self.result(name).get("status") == Status.found

    def said(self, name: str) -> str:
        """Return what a step said, after how it ended."""
        step = self.of(name)
        if step is None or not step.result:
            return "not asked"
        return step.message if step.status in _ANSWERS else f"{step.status}: {step.message}"

    def judgements(self, name: str) -> tuple[int, int]:
        """Return how many checks of a step failed, and of how many that could be judged."""
        outcomes = section(self.result(name), "outcomes")
        failed = int(number(outcomes, "fail"))
        return failed, failed + int(number(outcomes, "pass"))

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
    def _own(self) -> tuple[int, int]:
        """Of the file with its own inputs: failed, and of how many."""
        both = [self.judgements(name) for name in _SEEN[:2]]
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
    def other_inputs(self) -> str:
        """The first step with other inputs that failed where the user's own passed; "": none."""
        found = [name for name in _SEEN[2:] if self.judgements(name)[0]]
        return "" if self.fails or not found else found[0]

    @property
    def anything_failed(self) -> bool:
        """Whether anything is there to look into."""
        return self.fails or bool(self.other_inputs)

    @property
    def how_often(self) -> str:
        """In how many checks it failed, and with which inputs."""
        failed, of = self._own
        if self.other_inputs:
            return f"with another seed only: {self.count(self.other_inputs)}"
        often = "in each check" if failed == of else f"in {failed} of {of} checks: flaky"
        others, tried = self.judgements("inputs")
        if not tried:
            return often
        kind = "random inputs" if self.situation.inputs == "files" else "another seed"
        return f"{often}, {'also' if others else 'not'} with {kind}"

    @property
    def _signature(self) -> Mapping[str, Any]:
        held = (section(self.result(name), "signature") for name in (*_SEEN, "reduce"))
        return next((one for one in held if one), {})

    @property
    def failure(self) -> str:
        """What fails, in words."""
        return f"{self._signature.get('stage', '?')}: {self._signature.get('kind', 'failure')}"

    @property
    def about_values(self) -> bool:
        """Whether the failure may lie in what tensors hold."""
        told = self._signature
        return bool(told) and Signature(str(told.get("stage", "")), str(told.get("kind", ""))).about_values

    @property
    def unseen(self) -> bool:
        """Whether the failure shows only beside what was recorded, which a strategy about the file as it is has not."""
        return self.situation.alone and not self.situation.on_its_own and self.about_values

    # ---- what fails

    @property
    def first_bad(self) -> tuple[str, ...]:
        """The nodes that make the first bad tensor of good ones."""
        found = self.result("layerwise")
        return (names(found, "culprits") or names(section(found, "layers"), "suspects")[:1]) if found else ()

    @property
    def extracted_fails(self) -> bool:
        """Whether the piece that was cut out fails alone."""
        return bool(section(self.result("extract"), "signature"))

    @property
    def culprits(self) -> tuple[str, ...]:
        """The nodes of the smallest part that fails."""
        return names(self.result(self.answer), "culprits") if self.answer else ()

    @property
    def answer(self) -> str:
        """The step whose model is the smallest that fails; "": none."""
        if self.has_answer("reduce") and names(self.result("reduce"), "culprits"):
            return "reduce"
        return "extract" if self.extracted_fails else ""

    @property
    def reduced(self) -> str:
        """What the reduction says."""
        found = self.result("reduce")
        size = section(found, "nodes")
        if not self.has_answer("reduce"):
            return self.said("reduce")
        some = f"{listed(names(found, 'culprits'))} ({size.get('after')} of {size.get('before')} nodes)"
        return f"{some}{self.proof}"

    @property
    def proof(self) -> str:
        """What was shown of the cause on the whole model."""
        status = section(self.result("reduce"), "cause").get("status")
        return f", cause {status} on the whole model" if status else ""

    @property
    def on_reduced(self) -> bool:
        """Whether the rest is asked about the reduced model."""
        return bool(self.answer) and self.situation.alone

    @property
    def place(self) -> str:
        """Which model the rest is asked about."""
        return "the reduced model" if self.on_reduced else "the whole model"

    # ---- why, since when, and what helps

    @property
    def passes(self) -> Mapping[str, Any]:
        """What is known of passes: on the whole model, where that was searched."""
        return section(self.result("passes_on_whole"), "passes") or section(self.result("passes"), "passes")

    @property
    def heals(self) -> tuple[tuple[str, ...], ...]:
        """The sets of passes without which it passes."""
        found = self.passes.get("heals")
        held = [one for one in found if isinstance(one, list)] if isinstance(found, list) else []
        return tuple(tuple(name for name in one if isinstance(name, str)) for one in held)

    @property
    def off(self) -> tuple[str, ...]:
        """The first of these."""
        return self.heals[0] if self.heals else ()

    @property
    def healed(self) -> bool:
        """Whether the whole model passes without them."""
        failed, of = self.judgements("healed")
        return of > 0 and not failed

    @property
    def told_passes(self) -> str:
        """What is known of passes, in words."""
        needed = names(self.passes, "needed")
        if not needed:
            return ""
        where = "" if self.healed or self.has_answer("passes_on_whole") else f", of {self.place}"
        heals = f"; without {listed(self.off)} it passes{where}" if self.off else ""
        return f"it needs {listed(needed)}{heals}"

    @property
    def releases(self) -> Mapping[str, Any]:
        """What is known of releases."""
        return section(self.result("versions"), "releases")

    @property
    def good_releases(self) -> tuple[str, ...]:
        """Those nearest to the bad one that do not have it; the later one first."""
        held = (self.releases.get(name) for name in ("good_after", "good_before"))
        return tuple(one for one in held if isinstance(one, str))

    @property
    def told_releases(self) -> str:
        """What is known of releases, in words."""
        return self.said("versions") if self.releases else ""

    @property
    def told_precision(self) -> str:
        """What is known of precision, in words."""
        if self.result("precision").get("status") == Status.nothing_to_find:
            return self.said("precision")
        if not self.has_answer("precision"):
            return ""
        return f"in float32 have to stay {listed(names(self.result('precision'), 'culprits'))}"

    @property
    def remedies(self) -> tuple[str, ...]:
        """What a workaround can begin with, in words."""
        held = (
            *(f"{listed(one)} off" for one in self.heals),
            *(("the nodes that have to stay high",) if self.told_precision else ()),
            *self.good_releases,
            *(("the nodes rewritten",) if self.culprits else ()),
        )
        return tuple(dict.fromkeys(held))

    @property
    def told_workaround(self) -> str:
        """The first workaround that passes, in words."""
        found = self.result("workaround").get("workarounds")
        held = [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
        passing = next((one for one in held if one.get("passes")), None)
        return f"a workaround that passes: {passing.get('what')}" if passing else ""
