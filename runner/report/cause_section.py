"""The cause: how far it is shown, and a table of the experiments."""

from __future__ import annotations

from collections.abc import Mapping

from runner.judgment import SHOWN
from runner.report.document import Section, bullets, code, cut, section, table
from runner.report.result_parts import Cause, CauseAnswer, CauseExperiment, ShownCause
from runner.text import listed, one_line

REFERENCE_TOO = "the reference computes a NaN or Inf in"
"""How a reason begins: no good value is known of what the failure may be."""
NO_WIDER = "has no wider type"
"""How it ends where none is known in float64 either."""
_MOST_INSTANCES, _LONGEST_WHY = 20, 300
NOT_THE_TARGET: Mapping[str, str] = {
    "conversion": "the converted model differs from its original on any runtime",
    "quantization": "the quantized model differs from its original on any runtime",
    "reference": "the reference is wrong, not the target",
    "both lose digits": "both sides lose digits",
}
"""What is said of a failure that is not the target's, by whose it is."""
WHOSE: Mapping[str, str] = {
    "model": "the model itself",
    "conversion": "the conversion",
    "quantization": "the quantization",
    "target": "the target",
    "reference": "the reference, not the target",
    "check": "your check",
    "both lose digits": "both sides lose digits",
}
"""Whose bug a failure is, for a first line; of the target the runtime's name is said where it is known."""
NOT_THE_CAUSE = "not shown to be the cause"
"""What a first line says of nodes that fail alone, where the experiments on the whole model do not hold."""


def reservation(cause: ShownCause | None) -> str:
    """Return what has to be said wherever nodes are named as the answer; "" where nothing speaks against them."""
    return NOT_THE_CAUSE if cause and cause.status == "not proven" else ""


def in_a_word(cause: Cause) -> str:
    """Return how far the cause is shown, of what, and why not further: ``proven, also for the nodes inside``."""
    parts = [listed(one.culprits) for one in cause.causes]
    together = f": {' and '.join(parts)}, each by itself" if len(parts) > 1 else ""
    reason = cause.reason  # without what the row on why has of it
    if cause.wider:
        reason = reason.partition(f"{cause.wider.said}; ")[2]
    elif cause.status not in SHOWN and (cause.no_value or beyond_range(cause)):
        reason = "no good value is known"
    said, inside, shown = one_line(reason, _LONGEST_WHY), "", cause.status in SHOWN
    if cause.inside and shown:
        shown_inside = cause.inside.status in SHOWN
        inside = ", also for the nodes inside" if shown_inside else " for the outer node, not for the nodes inside it"
    left = ", but " if shown else ": "  # of what is shown the reason is what is left
    return f"{'proven' if shown else cause.status}{inside}{together}{left if said else ''}{said}"


def own_values(cause: ShownCause) -> bool:
    """Whether the reference makes the NaN or Inf of the answer as well."""
    tested = (one.good_outputs for one in cause.answers)
    return cause.wider is not None or any(one.reason.startswith(REFERENCE_TOO) for one in tested if one)


def beyond_range(cause: ShownCause) -> bool:
    """Whether a wider type may help: no good value is known since the reference makes a NaN or Inf there as well."""
    return not cause.no_value and own_values(cause) and (cause.status == "untested" or cause.wider is not None)


def experiments(cause: Cause) -> list[Section]:
    """Return the section: what the whole model does, and what each answer's two experiments gave."""
    head = ("nodes", "role", "with right outputs", "with right inputs", "with both")
    (_, _, whole, *_), *answers = rows(cause)
    measured = " The numbers in parentheses are the check's measure." * bool(
        cause.whole and cause.whole.measure is not None
    )
    others, wider = _elsewhere(cause), cause.wider if cause.wider and cause.wider.raised else None
    said = [
        f"The whole model ends with {whole}. In the experiments right values replace outputs or inputs of the nodes."
        + (f" No right value of {code(cut(wider.tensor))} is known: it was computed in {wider.wider}." if wider else "")
        + measured,
        table(head, answers, names=1),
        "The same pattern occurs at:" if others else "",
        bullets(code(cut(one)) for one in others),
        *(f"{one}." for one in cause.weights),
        f"{cause.right}." if cause.right else "",
        f"Of the nodes inside: {cause.inside.reason}." if cause.inside and cause.inside.reason else "",
    ]
    return section("The cause", said)


def rows(cause: Cause) -> list[tuple[str, str, str, str, str]]:
    """Return a row for the whole model and one for each answer: nodes, role, the experiments."""
    found = [("the whole model", "", _shown(cause.whole), "", "")]
    for answer in cause.answers:
        role, copies = _role(cause, answer), len(answer.instances)
        if copies > 1:
            role += f"; the pattern occurs {copies} times, all tested together"
        outputs, inputs, around = map(_shown, (answer.good_outputs, answer.good_inputs, answer.good_around))
        if outputs and (wider := cause.wider) and wider.raised:
            outputs = f"{listed(wider.raised, 3)} in {wider.wider}: {outputs}"
        found.append((", ".join(answer.culprits), role, outputs, inputs, around))
    return found


def _elsewhere(cause: Cause) -> list[str]:
    """Return the other places where the pattern of the cause stands."""
    places = ((one, answer.culprits) for answer in cause.causes for one in answer.instances)
    return [", ".join(one) for one, culprits in places if one != culprits][:_MOST_INSTANCES]


def _role(cause: Cause, answer: CauseAnswer) -> str:
    if answer.is_cause:
        return "part of the cause" if cause.status == "joint" else "the cause"
    if any(answer.culprits in one.instances for one in cause.causes):
        return "fails alone too; the same pattern as the cause"
    harmless = answer.good_inputs is not None and answer.good_inputs.outcome == "pass"
    return "fails alone too; not the cause" if harmless or cause.causes else "fails alone"


def _shown(one: CauseExperiment | None) -> str:
    if one is None:
        return ""
    return one.outcome if one.measure is None else f"{one.outcome} ({one.measure:.3g})"
