"""The cause, in words: the first lines of REPORT.md, and a table of the experiments."""

from __future__ import annotations

from collections.abc import Mapping

from runner.judgment import SHOWN
from runner.report.document import Section, bullets, code, cut, section, table
from runner.report.result_parts import Cause, CauseAnswer, CauseExperiment, ShownCause
from runner.text import counted, listed

SENTENCES: Mapping[str, str] = {
    "proven": (
        "Cause: proven. With good values at the outputs of these nodes the whole model passes; with good values at "
        "their inputs it still fails as badly. So the failure arises inside them."
    ),
    "by itself": (
        "Cause: proven. With good values for everything that does not depend on these nodes the whole model still "
        "fails; with good values at their outputs too it passes, or fails much less. So the failure arises inside them"
    ),
    "joint": (
        "Cause: joint. Several sets of nodes fail alone. With good values at the outputs of all of them the whole "
        "model passes; each set makes it fail by itself."
    ),
    "not proven": (
        "Cause: not proven. These nodes fail alone, but it was not shown that the failure of the whole model arises "
        "inside them"
    ),
    "untested": (
        "Cause: untested. These nodes fail alone; whether the failure of the whole model arises inside them could not "
        "be tested"
    ),
}
REFERENCE_TOO = "the reference computes a NaN or Inf in"
"""How a reason begins: no good value is known of what the failure may be."""
_NO_GOOD_VALUE = (
    "Cause: untested. These nodes fail alone. The reference computes a NaN or Inf there too, so no good value is known "
    "for the experiments. The result may be beyond the range of its type on any runtime, or may not exist (the root of "
    "a negative number). A wider type at this place may help, or smaller values"
)
_MADE_BY_BOTH = (
    "Cause: untested. These nodes fail alone, and the reference computes a NaN or Inf there too. No wider type helps"
)
_MOST_INSTANCES, _MOST_NAMES = 20, 4
_THESE, _PASSES = "With good values at the outputs of these nodes", "the whole model passes"
_ANOTHER = "the whole model no longer fails in this way (it fails otherwise, at a later stage)"
NOT_THE_TARGET: Mapping[str, str] = {
    "conversion": "the converted model differs from its original on any runtime",
    "reference": "the reference is wrong, not the target",
    "both lose digits": "both sides lose digits",
}
"""What is said of a failure that is not the target's, by whose it is."""
WHOSE: Mapping[str, str] = {
    "model": "the model itself",
    "conversion": "the conversion",
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
    """Return how far the cause is shown, and why not further, in a line."""
    inside = cause.inside is not None and cause.inside.status not in SHOWN
    of = " for the outer node, not for the nodes inside it" if inside and cause.status in SHOWN else ""
    return f"cause: {cause.status}{f' ({cause.reason})' if cause.reason else ''}{of}"


def told(cause: ShownCause) -> str:
    """Return what was shown, without why not more. ``cause``: of a result that may come from anywhere."""
    if cause.no_value:
        return _MADE_BY_BOTH
    wider = cause.wider
    if wider and cause.status == "proven":
        nodes = f"{counted(len(wider.raised), 'node')} from there on in {wider.wider}"
        heals = nodes if len(wider.raised) else "good values at the outputs of these nodes"
        return (
            f"Cause: proven. {wider.type} overflow in {wider.tensor}: {wider.said}. The values are the model's own, "
            f"no bug of the runtime. With {heals} the whole model passes; with good values at their inputs it still "
            "fails."
        )
    if not wider and beyond_range(cause):
        return _NO_GOOD_VALUE
    said = SENTENCES.get(cause.status, "")
    if cause.status == "joint":
        sets = [listed(one.culprits, _MOST_NAMES) for one in cause.causes]
        return f"{said} They are: {'; '.join(sets)}." if sets else said
    if cause.status != "proven" or not cause.causes:
        return said
    if cause.reason:
        return SENTENCES["by itself"]
    first = cause.causes[0]
    if len(first.instances) > 1:
        others = counted(len(first.instances) - 1, "other place")
        said = said.replace(_THESE, f"{_THESE}, and of the same nodes in {others} of the model,")
    another = first.good_outputs is not None and first.good_outputs.outcome == "different"
    return said.replace(_PASSES, _ANOTHER) if another else said


def own_values(cause: ShownCause) -> bool:
    """Whether the reference makes the NaN or Inf of the answer as well."""
    tested = (one.good_outputs for one in cause.answers)
    return cause.wider is not None or any(one.reason.startswith(REFERENCE_TOO) for one in tested if one)


def beyond_range(cause: ShownCause) -> bool:
    """Whether a wider type may help: no good value is known since the reference makes a NaN or Inf there as well."""
    return not cause.no_value and own_values(cause) and (cause.status == "untested" or cause.wider is not None)


def sentence(cause: Cause) -> str:
    """Return what was shown, and why not more, unless that is said already."""
    said, why = told(cause), cause.reason
    why = "" if said == _NO_GOOD_VALUE and why.startswith(REFERENCE_TOO) else why
    return (f"{said}: {why}." if why else said if said.endswith(".") else f"{said}.") + _inside(cause)


def _inside(cause: Cause) -> str:
    """Return what was shown of the nodes inside those that are the cause."""
    inside = cause.inside
    if inside is None or cause.status not in SHOWN:
        return ""
    if inside.status in SHOWN:
        names = [name for one in inside.causes for name in one.culprits]
        return f" The same was shown for {listed(names, _MOST_NAMES)} inside them."
    return f" The nodes inside them fail alone, but were not shown to be the cause: {inside.reason}."


def experiments(cause: Cause) -> list[Section]:
    """Return the section: what the whole model does, and what each answer's two experiments gave."""
    head = ("nodes", "", "with good outputs", "with good inputs", "with both")
    (whole, role, *found), *answers = rows(cause)
    measured = " In parentheses: the check's measure." if cause.whole and cause.whole.measure is not None else ""
    others = _elsewhere(cause)
    said = [
        f"Experiments on the whole model: good values replace outputs, or inputs, of the nodes.{measured}",
        table(head, [(role, whole, *found), *answers], names=1),  # which is no node
        "The same pattern occurs at:" if others else "",
        bullets(code(cut(one)) for one in others),
        *(f"{one}." for one in cause.weights),
        f"{cause.right}." if cause.right else "",
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
