"""What a triage knows: how the file fails, and what the steps say of why, since when, and what helps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runner.jobs.triage.reproduced_failure import Reproduced
from runner.jobs.triage.step_result import names, section
from runner.report.sections.cause_section import NOT_THE_TARGET, own_values
from runner.report.sections.layers_section import NON_FINITE, NOT_FINITE
from runner.text import listed

PART, WHOLE = "the reduced model", "the whole model"


@dataclass(frozen=True)
class Known(Reproduced):
    """All that is known between two steps."""

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
    def hidden_by_marks(self) -> bool:
        """Whether the failure goes away where tensors are marked as outputs: then it is not in nodes one by one."""
        return section(self.result("layerwise"), "layers").get("marking") == "hides"

    @property
    def extracted_fails(self) -> bool:
        """Whether the piece that was cut out fails alone."""
        return bool(section(self.result("extract"), "signature"))

    @property
    def culprits(self) -> tuple[str, ...]:
        """The nodes of the part that fails: the smallest where one was searched, else the one that was cut out."""
        return names(self.result(self.answer), "culprits") if self.answer else ()

    @property
    def answer(self) -> str:
        """The step whose model is the part that fails; "": none."""
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
        return "; ".join(filter(None, (some, self.proof)))

    @property
    def smallest(self) -> bool:
        """Whether the part is the smallest, as far as a search can tell: it came to its end."""
        return self.answer == "reduce" and "minimal" in str(self.result("reduce").get("minimality"))

    @property
    def proof(self) -> str:
        """What was shown of the cause on the whole model."""
        found = self.result("reduce")
        status, whose = section(found, "cause").get("status"), NOT_THE_TARGET.get(str(found.get("whose")), "")
        return "; ".join(filter(None, (f"cause {status} on the whole model" if status else "", whose)))

    @property
    def recorded_too(self) -> bool:
        """Whether the reference makes the NaN or Inf as well, of the same values, where each tensor was recorded.

        To be recorded a tensor is handed out, and what is handed out is rounded to its type. A runtime that computes
        float16 in float32 rounds no other tensor, so its plain run of the file may be finite all the same.
        """
        first = section(section(self.result("layerwise"), "layers"), "first_bad")
        if first or not self.not_finite:
            return self.not_finite and first.get("kind") == NOT_FINITE
        return own_values(section(self.result("reduce"), "cause"))

    @property
    def plain_is_finite(self) -> bool:
        """Whether a plain run of the file by the reference was asked for, and has no NaN or Inf."""
        failed, of = self.judgements("plain")
        return of > 0 and not failed

    @property
    def reference_too(self) -> bool:
        """Whether the NaN or Inf is the model's own, as far as the reference was asked."""
        return self.recorded_too and not self.plain_is_finite

    @property
    def reference_too_plainly(self) -> bool:
        """Whether a plain run of the file by the reference was seen to make it as well, and not the recording alone.

        A target that rounds after every operator does what the recording does: no plain run is asked for.
        """
        kind = section(self.result("plain"), "signature").get("kind")
        return self.reference_too and (self.rounds or kind in NON_FINITE)

    @property
    def rounds(self) -> bool:
        """Whether the target rounds after every operator in what is asked about the failure."""
        return self.situation.rounds or self.only_in == "rounded"

    @property
    def on_reduced(self) -> bool:
        """Whether the rest is asked about the reduced model.

        Not where the reference makes the NaN or Inf in a part, but not in the whole: no optimization is needed there.
        """
        return bool(self.answer) and self.situation.alone and not self.plain_is_finite

    @property
    def releases_on_reduced(self) -> bool:
        """Whether releases are asked about the reduced model.

        The whole may be good in a release in which the reduced one fails: what is fused depends on what is around.
        """
        return self.on_reduced and self.is_slow

    @property
    def place(self) -> str:
        """Which model the rest is asked about."""
        return PART if self.on_reduced else WHOLE

    @property
    def place_of_releases(self) -> str:
        """Which model releases are asked about."""
        return PART if self.releases_on_reduced else WHOLE

    # ---- why, since when, and what helps

    @property
    def passes(self) -> Mapping[str, Any]:
        """What is known of passes: on the whole model, where that was searched."""
        return section(self.result("passes_on_whole"), "passes") or section(self.result("passes"), "passes")

    @property
    def heals(self) -> tuple[tuple[str, ...], ...]:
        """The sets of passes without which it passes; those first that heal the reduced model as well."""
        held = [_heals(self.result(step)) for step in ("passes_on_whole", "passes") if self.result(step).get("passes")]
        return tuple(sorted(held[0], key=lambda one: one not in held[-1])) if held else ()

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
    def off_holds_on(self) -> str:
        """Which model was shown to pass without them, in words; "": not the one that it is about."""
        if not self.on_reduced or self.has_answer("passes_on_whole") or self.healed:
            return WHOLE
        return "" if self.judgements("healed")[1] else PART

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
    def raised(self) -> tuple[str, ...]:
        """The nodes that were shown to need a high precision."""
        return names(self.result("precision"), "culprits") if self.has_answer("precision") else ()

    @property
    def remedies(self) -> tuple[str, ...]:
        """What a workaround can begin with, in words."""
        held = (
            *(f"{listed(one)} off" for one in self.heals),
            *(("the nodes that have to stay high",) if self.raised else ()),
            *self.good_releases,
            *(("the nodes rewritten",) if self.culprits else ()),
        )
        return tuple(dict.fromkeys(held))


def _heals(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    found = section(result, "passes").get("heals")
    held = [one for one in found if isinstance(one, list)] if isinstance(found, list) else []
    return [tuple(name for name in one if isinstance(name, str)) for one in held]
