"""The cause, in words: the first lines of REPORT.md, and a table of the experiments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runner.report.markup import bullets, code, cut, section, table, text
from runner.text import counted, listed

SENTENCES: Mapping[str, str] = {
    "proven": (
        "Cause: proven. With good values in place of what these nodes give, the whole model passes; with good values "
        "in place of what they read, it still fails as badly. The failure arises inside them."
    ),
    "by itself": (
        "Cause: proven. With good values for all that does not depend on these nodes, the whole model still fails; "
        "with good values in place of what they give as well, it passes or fails much more mildly. The failure arises "
        "inside them"
    ),
    "joint": (
        "Cause: joint. Several sets of nodes fail alone; with good values in place of what all of them give, the whole "
        "model passes, and each of them makes it fail by itself."
    ),
    "not proven": (
        "Cause: not proven. These nodes fail alone, but that the failure of the whole model arises inside them was not "
        "shown"
    ),
    "untested": (
        "Cause: untested. These nodes fail alone; whether the failure of the whole model arises inside them could not "
        "be tested"
    ),
}
REFERENCE_TOO = "the reference has a NaN or Inf in"
"""How a reason begins: no good value is known of what the failure may be."""
_NO_GOOD_VALUE = (
    "Cause: untested. These nodes fail alone, and the reference makes a NaN or Inf there as well, so no good value is "
    "known to put in its place: what they compute may be beyond the range of their type on any runtime, or have no "
    "value at all (the root of a negative number). A wider type there may help, or smaller values"
)
_MADE_BY_BOTH = (
    "Cause: untested. These nodes fail alone, and the reference makes a NaN or Inf there as well. No wider type heals "
    "that"
)
_MOST_INSTANCES, _MOST_NAMES = 20, 4
_THESE, _PASSES = "With good values in place of what these nodes", "the whole model passes"
_ANOTHER = "the whole model no longer fails in this way (it has another failure, at a later stage)"
NOT_THE_TARGET: Mapping[str, str] = {
    "conversion": "the converted model itself differs, whoever runs it",
    "reference": "the reference is wrong, which is no bug of the target",
    "both lose digits": "both sides lose digits",
}
"""What is said of a failure that is not the target's, by whose it is."""
NOT_THE_CAUSE = "not shown to be the cause"
"""What a first line says of nodes that fail alone, where the experiments on the whole model do not hold."""


def reservation(cause: Mapping[str, Any] | None) -> str:
    """Return what has to be said wherever nodes are named as the answer; "" where nothing speaks against them."""
    return NOT_THE_CAUSE if cause and cause.get("status") == "not proven" else ""


def told(cause: Mapping[str, Any]) -> str:
    """Return what was shown, without why not more. ``cause``: of a result that may come from anywhere."""
    if cause.get("no_value"):
        return _MADE_BY_BOTH
    status, causes, wider = cause.get("status"), _causes(cause), _wider(cause)
    if wider and status == "proven":
        return _in_wider_type(wider)
    if not wider and beyond_range(cause):
        return _NO_GOOD_VALUE
    said = SENTENCES.get(str(status), "")
    if status == "joint":
        sets = [listed(names, _MOST_NAMES) for one in causes if isinstance(names := one.get("culprits"), list | tuple)]
        return f"{said} They are: {'; '.join(sets)}." if sets else said
    if status != "proven" or not causes:
        return said
    if cause.get("reason"):
        return SENTENCES["by itself"]
    places, tested = causes[0].get("instances"), causes[0].get("good_outputs")
    if isinstance(places, list | tuple) and len(places) > 1:
        others = counted(len(places) - 1, "other place")
        said = said.replace(_THESE, f"{_THESE}, and the same nodes in {others} of the model,")
    another = isinstance(tested, Mapping) and tested.get("outcome") == "different"
    return said.replace(_PASSES, _ANOTHER) if another else said


def _wider(cause: Mapping[str, Any]) -> Mapping[str, Any] | None:
    wider = cause.get("wider")
    return wider if isinstance(wider, Mapping) else None


def _in_wider_type(wider: Mapping[str, Any]) -> str:
    """Return what was shown of an overflow."""
    count = len(raised) if isinstance(raised := wider.get("raised"), list | tuple) else 0
    return (
        f"Cause: proven. {wider.get('type')} overflow in {wider.get('tensor')}: {wider.get('said')}. The values are "
        f"the model's own, no bug of the runtime. With {counted(count, 'node')} from there on in {wider.get('wider')} "
        "the whole model passes; with good values in place of what these nodes read, it still fails as badly."
    )


def own_values(cause: Mapping[str, Any]) -> bool:
    """Whether the reference makes the NaN or Inf of the answer as well."""
    answers = cause.get("answers")
    told = isinstance(answers, list | tuple) and any(map(_made_by_the_reference_too, answers))
    return told or _wider(cause) is not None


def _causes(cause: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    answers = cause.get("answers")
    found = answers if isinstance(answers, list | tuple) else []
    return [one for one in found if isinstance(one, Mapping) and one.get("is_cause")]


def beyond_range(cause: Mapping[str, Any]) -> bool:
    """Whether a wider type may help: no good value is known since the reference makes a NaN or Inf there as well."""
    return (
        not cause.get("no_value") and own_values(cause) and (cause.get("status") == "untested" or bool(_wider(cause)))
    )


def _made_by_the_reference_too(answer: Any) -> bool:
    tested = answer.get("good_outputs") if isinstance(answer, Mapping) else None
    return isinstance(tested, Mapping) and str(tested.get("reason")).startswith(REFERENCE_TOO)


def sentence(cause: Mapping[str, Any]) -> str:
    """Return what was shown, and why not more, unless that is said already."""
    said, why = told(cause), reason if isinstance(reason := cause.get("reason"), str) else ""
    why = "" if said == _NO_GOOD_VALUE and why.startswith(REFERENCE_TOO) else why
    return (f"{said}: {why}." if why else said if said.endswith(".") else f"{said}.") + _inside(cause)


def _inside(cause: Mapping[str, Any]) -> str:
    """Return what was shown of the nodes inside those that are the cause."""
    inside = cause.get("inside")
    if not isinstance(inside, Mapping) or cause.get("status") not in ("proven", "joint"):
        return ""
    names = [str(name) for one in _causes(inside) for name in one.get("culprits") or ()]
    if inside.get("status") in ("proven", "joint"):
        return f" The same was shown of {listed(names, _MOST_NAMES)} inside them."
    return f" What is named inside them fails alone, and was not shown to be the cause: {inside.get('reason')}."


def experiments(cause: Mapping[str, Any]) -> str:
    """Return the section: what the whole model does, and what each answer's two experiments gave."""
    head = ("nodes", "", "good values for what they give", "good values for what they read", "good values for both")
    (whole, role, *found), *answers = rows(cause)
    shown = table(head, [(role, whole, *found), *answers], names=1)  # which is no node
    others = _elsewhere(cause)
    places = "\n\nThe same pattern stands at:\n\n" + bullets(code(cut(one)) for one in others) if others else ""
    measured = "" if cause["whole"]["measure"] is None else " How bad it is, by the check, in parentheses."
    right = f"\n\n{text(cause['right'])}." if cause.get("right") else ""
    return section(
        "The cause", f"Experiments on the whole model, judged at its own outputs.{measured}\n\n{shown}{places}{right}"
    )


def rows(cause: Mapping[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """Return a row for the whole model and one for each answer: nodes, role, the experiments."""
    found = [("the whole model", "", _shown(cause["whole"]), "", "")]
    for answer in cause["answers"]:
        role, copies = _role(cause, answer), len(answer["instances"])
        if copies > 1:
            role += f"; its pattern stands {copies} times, all tested together"
        made = [_shown(answer.get(name)) for name in ("good_outputs", "good_inputs", "good_around")]
        found.append((", ".join(answer["culprits"]), role, made[0], made[1], made[2]))
    return found


def _elsewhere(cause: Mapping[str, Any]) -> list[str]:
    """Return the other places where the pattern of the cause stands."""
    return [
        ", ".join(instance)
        for answer in cause["answers"]
        if answer["is_cause"]
        for instance in answer["instances"]
        if list(instance) != list(answer["culprits"])
    ][:_MOST_INSTANCES]


def _role(cause: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    if answer["is_cause"]:
        return "part of the cause" if cause["status"] == "joint" else "the cause"
    if any(answer["culprits"] in one["instances"] for one in cause["answers"] if one["is_cause"]):
        return "fails alone too; an instance of the pattern of the cause"
    harmless = answer["good_inputs"] is not None and answer["good_inputs"]["outcome"] == "pass"
    if harmless or any(one["is_cause"] for one in cause["answers"]):
        return "fails alone too; not the cause"
    return "fails alone"


def _shown(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return ""
    return one["outcome"] if one["measure"] is None else f"{one['outcome']} ({one['measure']:.3g})"
