"""The flowchart: what is asked next and why, from what is known so far. Pure functions of a transcript.

Each box is one question, which a strategy answers as a job of its own. A box is left out without a word where the
question makes no sense (no engine is built), and with its reason where somebody might expect it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from runner.exit_codes import Status
from runner.jobs.triage.transcript import SEEN, Known
from runner.judgment import CONVERTED
from runner.reference.hints import UNJUDGED
from runner.report.diagnosis_sections import QUANTIZATION, inputs_of
from runner.report.result_parts import Decision, Precision
from runner.report.short_answer import keeping_high, keeps_all, refuted, refuting, stays_high, what_of
from runner.text import counted, listed, one_line

# A triage in a sentence or two: what fails, how often, why, since when, and what helps.

REACHED = " was reached"
"""What is said of a budget behind its name."""
LEFT_OUT = "strategy.steps leaves it out"
MODELS_OWN = (
    "the reference computes it too, so it comes from the model and these inputs (an overflow, a Log of a negative "
    "number, ...), not from a bug of the runtime"
)
MODELS_OWN_RECORDED = (
    "the reference computes it too while each tensor is recorded, which rounds it to its type; whether a plain run of "
    "the reference does is not known"
)
PLAIN_IS_FINITE = "a plain run of the reference is finite, but a tensor recorded inside the model is not"
AT_THE_EDGE = (
    f"{PLAIN_IS_FINITE}: recording rounds each tensor to its low precision, as a GPU does, and the model is at the "
    "edge of that range"
)
_DAMAGED = ("NaN", "Inf", "odd weight")
"""Concerns about weights that are mistakes, also where no check fails."""
_LONGEST = 100
"""Characters of a workaround's name; the report has all."""


def verdict(known: Known) -> str:
    """Return what was found; the culprits are named beside it."""
    if known.refused or known.why_not_loaded:
        return known.refused or known.why_not_loaded
    if not known.has("stands"):
        return "nothing was asked"
    if not known.judged:
        reasons = [*known.result("stands").unresolved]
        return f"the model file cannot be judged: {reasons[0] if len(reasons) == 1 else known.said('stands')}"
    if not known.anything_failed:
        return _told_passing(known)
    said = f"{known.failure_in_words}, {known.how_often}"
    if known.planned:
        return f"{said}; stopped before the search, as asked"
    releases = known.said("versions") if known.releases else ""
    precision, part = _told_precision(known), _told_part(known)
    if known.has_answer("precision") and not known.culprits:  # then that is the answer
        said, precision = precision, ""
        said = f"{QUANTIZATION}; {said}" if known.rounds_everywhere else said
    told = (
        *(said, part, told_reference(known), told_passes(known), releases),
        *(precision, _told_workaround(known), _told_budget(known)),
    )
    return "; ".join(filter(None, told))


def _told_passing(known: Known) -> str:
    """Return what to try next where nothing fails, and what is wrong in the file all the same."""
    here, tried = known.situation, sum(known.judgements(name)[1] for name in SEEN)
    more, looked = telling_inputs(known), known.result(INSPECT).inspection
    found = [one for one in looked.concerns if one.kind in _DAMAGED] if looked else []
    holds = listed([f"{one.kind} in {one.where} ({one.what.partition('; ')[0]})" for one in found])
    but = f", but the file has {holds}" if holds else ""
    kind = "larger sizes" if more.startswith("inputs.shapes=") else "values of which the outputs show more"
    tips = [f"{kind} ({more})"] if more else []
    if here.own_code:
        tips += ["real inputs (--inputs x.npz)"] if here.asks_for_data else []
        tips += ["run it by hand on this file, where it has to fail"]
        return f"your check passes the model in {counted(tried, 'run')}{but}; to try next: {'; '.join(tips)}"
    if unjudged := [one.partition(UNJUDGED)[0] for one in known.result("stands").warnings if UNJUDGED in one]:
        some = f"its outputs that have a partner in the original pass {counted(tried, 'check')}"
        return f"{some}; {unjudged[0]} not judged: name the partner (reference.map)"
    if here.hides_rounding and not known.has_result("rounded"):
        tips += ["target.rounding=on (the target computes low precision in float32)"]
    if here.quantized_alone:
        tips += ["the model before quantization (--original float.onnx) shows what quantization costs"]
    tips += ["other inputs"] if here.inputs == "files" else ["real inputs (--inputs x.npz)", "more seeds"]
    return f"nothing fails in {counted(tried, 'check')}{but}; to try next: {'; '.join(tips)}; a tighter checker.rtol"


def telling_inputs(known: Known) -> str:
    """Return the setting with inputs that show more: no output is empty, or larger than assumed ones that ran."""
    stands, larger = known.result("stands"), known.situation.larger
    change = next(iter(stands.lacks), "")
    if change.startswith("inputs."):
        return change
    return larger if any(larger in one for one in stands.warnings) else ""  # sizes that were settled are said otherwise


def told_reference(known: Known) -> str:
    """Return what the reference does where the failure is a NaN or Inf that it has as well; "": it has none."""
    if not known.recorded_too:
        return ""
    if known.plain_is_finite:
        return AT_THE_EDGE if known.situation.hides_rounding else PLAIN_IS_FINITE
    return MODELS_OWN if known.reference_too_plainly else MODELS_OWN_RECORDED


def _told_part(known: Known) -> str:
    if known.rounds_everywhere:
        return "no single part is shown to be the cause"
    if known.culprits:
        return known.proof if known.answer == "reduce" else "this part fails alone; no smaller one was found"
    step = known.of("reduce")
    if not step.result:
        unsaid = not known.has("reduce") or step.why.endswith(REACHED)
        return "" if unsaid else f"no part was searched: {step.why or LEFT_OUT}"
    if step.status == Status.interrupted:
        return "no part was found so far"
    why = known.said("reduce").partition("\n")[0]  # the check's command below it is the user's own
    return f"no part was found: {why}"


def _told_budget(known: Known) -> str:
    """Return what a spent budget left unasked; a larger one goes on from here."""
    unasked = [one for one in known.ended if one.why.endswith(REACHED)]
    return f"{unasked[0].why} before {listed([one.name for one in unasked])}" if unasked else ""


def told_passes(known: Known) -> str:
    """Return what is known of passes; of a single one that is needed, not that the model passes without it."""
    needed = known.passes.needed if known.passes else ()
    if not needed:
        return ""
    where = "" if known.healed or known.has_answer("passes_on_whole") else f" ({known.place})"
    heals = ""
    if len(known.heals) == len(needed) > 1:
        heals = f", and passes without any one of them{where}"
    elif known.off and known.off != needed:
        heals = f", and passes without {listed(known.off)}{where}"
    return f"it needs {listed(needed)}{heals}"


def _told_precision(known: Known) -> str:
    step = known.of("precision")
    if step.status == Status.nothing_to_find and (made := step.known.model):
        return f"Winnow converted the original to {known.situation.low}, and that model passes ({step.folder}/{made})"
    found, tried = _mixed(known), known.result("workaround").workarounds
    if found is None:
        return ""
    against = refuted(found, tried)
    if refuting(found, tried) and not against:  # the workaround raises more nodes, and passes
        return ""
    return ", but ".join(filter(None, (stays_high(found, sentence=True), against)))


def _mixed(known: Known) -> Precision | None:
    """Return what has to stay in high precision; None: that was not found."""
    return known.result("precision").precision if known.has_answer("precision") else None


def _told_workaround(known: Known) -> str:
    passing = next((one for one in known.result("workaround").workarounds if one.passes), None)
    what = passing and one_line(what_of(passing), _LONGEST)
    return f"workaround: {what} ({inputs_of(passing, 'inputs pass')})" if passing else ""


RECORDED = "the good values were recorded for the whole model, and this step cannot use them"

CHANGED = "the conversion changed the model, and no setting of a runtime can correct that"
INSPECT = "inspect"
"""The step that looks at the file itself, before any that checks it."""
WHY_INSPECT = "a model that cannot be loaded needs no search"
WHY_AT_ALL = "does the model file fail? All later steps depend on it"
OF_THE_MODEL = (
    "the reference computes the NaN or Inf from the same values too, so it comes from the model, not the runtime"
)


@dataclass(frozen=True)
class Step:
    """The next question. ``strategy``: answers it; "": it is not asked. ``why``: it is asked, or not ("": no word)."""

    name: str
    strategy: str
    why: str


@dataclass(frozen=True)
class Box:
    """A question of the flowchart.

    ``decide``: whether it is asked, and why or why not. ``answer``: what its step's result says, in a line, where that
    is not what any step says (`Known.told`).
    """

    name: str
    strategy: str
    question: str
    decide: Callable[[Known], tuple[bool, str]]
    answer: Callable[[Known], str] | None = None


def next_step(known: Known) -> Step | None:
    """Return the step after those that ended, or were left out; None: the triage is at its end."""
    if known.stopped or known.refused or known.why_not_loaded:
        return None
    if known.has("stands") and (known.planned or not known.judged):
        return None
    box = next((one for one in BOXES if not known.has(one.name)), None)
    if box is None:
        return None
    # what has not failed is not looked into
    if box.name not in known.wanted or not (known.anything_failed or box.name in (INSPECT, *SEEN)):
        return Step(box.name, "", "")
    asked, why = box.decide(known)
    if asked and known.spent:
        return Step(box.name, "", f"{known.spent}{REACHED}")
    if asked and box.strategy not in known.situation.strategies:
        return Step(box.name, "", f"strategy={box.strategy} is not installed here")
    return Step(box.name, box.strategy if asked else "", why)


def _repeat(known: Known) -> tuple[bool, str]:
    if known.flaky:
        return False, ""
    if known.is_slow:
        return False, f"a check takes {known.seconds_each:.0f} s"
    if not known.fails:
        return True, "it passed; does it always?"
    return True, "a failure that comes and goes is searched in another way"


def _rounded(known: Known) -> tuple[bool, str]:
    if known.anything_failed or not known.situation.hides_rounding:
        return False, ""
    return True, "does it fail rounded as on a GPU? The target computes low precision in float32"


def _inputs(known: Known) -> tuple[bool, str]:
    here = known.situation
    if here.given or here.own_code or not here.looks_at_values or here.inputs not in ("random", "files"):
        return False, ""
    if known.anything_failed and not known.about_values:
        return False, ""  # it crashes whatever it is fed, or the shapes would have to differ
    if here.inputs == "files":
        return (True, "does it fail with other values too?") if known.anything_failed else (False, "")
    return True, "the inputs are random; does it fail with others too?"


def _more_inputs(known: Known) -> tuple[bool, str]:
    asked = known.has_result("inputs") and known.situation.inputs == "random" and not known.anything_failed
    return asked, "two seeds passed; a third is tried" if asked else ""


def _tactics(known: Known) -> tuple[bool, str]:
    asked = known.flaky and known.situation.builds_engines
    return asked, "not every build fails: one may choose a tactic that the other does not" if asked else ""


def _layerwise(known: Known) -> tuple[bool, str]:
    here = known.situation
    if here.own_code:
        return False, "your own check does not see values inside the model"
    if not known.about_values:
        return False, f"the failure is not about values ({known.failure}), so layers cannot be compared"
    return True, "values are wrong; which tensor is the first?"


def _extract(known: Known) -> tuple[bool, str]:
    if not known.first_bad:
        return False, ""
    layers = known.result("layerwise").layers
    if layers and layers.marking == "hides":
        return False, "marking tensors as outputs hides the failure: it lies in fused nodes, not in single ones"
    return True, f"the first bad tensor comes from {listed(known.first_bad)}; does that fail alone?"


def _reduce(known: Known) -> tuple[bool, str]:
    if known.extracted_fails:
        return True, "this part fails alone; is it the smallest, and the cause on the whole model?"
    if known.has_result("extract"):
        return True, "this part was not shown to fail alone, so one that does is searched"
    return True, "the smallest part that fails is searched"


def _plain(known: Known) -> tuple[bool, str]:
    if not known.recorded_too or known.rounds:
        return False, ""
    return True, "the reference computes the NaN or Inf too while tensors are recorded; does it in a plain run?"


def _precision(known: Known) -> tuple[bool, str]:
    here, low = known.situation, known.situation.low
    if not (low and known.about_values):
        lacks = known.about_values and (here.rounds or here.hides_rounding) and here.alone
        return False, "the model's original in float32 was not given (--original)" * lacks
    return True, f"the model is {low} and its original is float32; which nodes have to stay in float32?"


def _not_the_runtimes(known: Known) -> str:
    """Return why neither an optimization nor a release is asked about; "" where the runtime may be at fault."""
    if known.result("reduce").status == Status.reference_wrong:
        return "the reference is wrong, not the target"
    if known.result("reduce").whose in CONVERTED:
        return CHANGED
    if known.unseen:
        return RECORDED
    return OF_THE_MODEL if known.reference_too else ""


def _passes(known: Known) -> tuple[bool, str]:
    here = known.situation
    if here.own_code and not here.names_switches:
        return False, "your own check has no {switches}, by which optimizations could be turned off"
    if why := _not_the_runtimes(known):
        return False, why
    if not here.own_code and not here.optimizes:
        return False, "the target has no optimizations to turn off"
    return True, f"which optimization does the failure need? Tried on {known.place}"


def _healed(known: Known) -> tuple[bool, str]:
    if not (known.off and known.on_reduced and not known.situation.own_code):
        return False, ""
    return True, f"the reduced model passes without {listed(known.off)}; does the whole model?"


def _passes_on_whole(known: Known) -> tuple[bool, str]:
    if known.has_result("healed") and not known.healed:
        return True, "what helps the reduced model does not help the whole model, so the question is repeated there"
    if known.on_reduced and known.result("passes").status == Status.nothing_to_find:
        if known.judgements("passes")[0]:
            return False, "the reduced model fails with all of them off, so none of them is needed"
        return True, "the reduced model passes as a file of its own; the whole model may need one of them"
    return False, ""


def _versions(known: Known) -> tuple[bool, str]:
    here = known.situation
    if here.own_code and not here.names_python:
        return False, "your own check has no {python}, by which other releases could be tried"
    if why := _not_the_runtimes(known):
        return False, why
    if not here.releases:
        return False, ("no other release is in the cache; strategy.versions='>=1.18' installs and tries some")
    return True, f"in which releases does it fail? ({here.releases}) Tried on {known.place_of_releases}"


def _workaround(known: Known) -> tuple[bool, str]:
    if known.result("reduce").status == Status.reference_wrong:
        return False, "the reference is wrong, not the target"
    high = _mixed(known)
    stays = f"step precision tells what helps: {stays_high(high)}" if high else ""
    if known.result("reduce").whose in CONVERTED and not known.raised:
        return False, stays or CHANGED
    if not known.remedies:
        return False, stays or "no earlier step found a place for a workaround"
    return True, f"what helps the whole model, and at what cost? To try: {listed(known.remedies)}"


BOXES: tuple[Box, ...] = (
    Box(INSPECT, "inspect", "Does the file say why?", lambda _: (True, WHY_INSPECT)),
    Box("stands", "repeat", "Does the model file fail?", lambda _: (True, WHY_AT_ALL)),
    Box("repeat", "repeat", "Does it fail every time?", _repeat),
    Box("rounded", "repeat", "Does it fail rounded as on a GPU?", _rounded),
    Box("inputs", "repeat", "Does it fail with other inputs?", _inputs),
    Box("more_inputs", "repeat", "And with a third set of inputs?", _more_inputs),
    Box("tactics", "tactic_isolate", "Which tactic is it?", _tactics),
    Box("layerwise", "layerwise", "Which tensor is wrong first?", _layerwise),
    Box("extract", "extract", "Do these nodes fail alone?", _extract),
    Box("reduce", "reduce", "What is the smallest part that fails?", _reduce, lambda known: known.reduced),
    Box("plain", "repeat", "Does a plain run of the reference fail too?", _plain),
    Box("precision", "precision", "Which nodes have to stay in high precision?", _precision),
    Box(
        *("passes", "passes", "Which optimization does the failure need?", _passes),
        lambda known: told_passes(known) or known.said("passes"),
    ),
    Box("healed", "repeat", "Does that help the whole model?", _healed),
    Box("passes_on_whole", "passes", "Which optimization does the whole model need?", _passes_on_whole),
    Box("versions", "versions", "Which releases fail?", _versions),
    Box(
        *("workaround", "workaround", "Does a workaround help?", _workaround),
        lambda known: known.said("workaround") if known.has_answer("workaround") else _told_help(known),
    ),
)
NAMES = tuple(box.name for box in BOXES)


@dataclass(frozen=True)
class Part:
    """Steps of the flowchart that answer one question of a user. ``told``: what they came to, in a line."""

    question: str
    steps: tuple[str, ...]
    told: Callable[[Known], str]


def part_of(name: str) -> Part:
    """Return the part that a step belongs to."""
    return next(one for one in PARTS if name in one.steps)


def _told_failure(known: Known) -> str:
    return f"{known.failure_in_words}, {known.how_often}" if known.anything_failed else verdict(known)


def _told_where(known: Known) -> str:
    if known.has_result("reduce"):
        return known.reduced
    return known.result(known.answer).message if known.answer else known.message


def _told_why(known: Known) -> str:
    said = (told_passes(known), known.said("versions") if known.releases else "")
    return "; ".join(filter(None, said)) or known.message


def _told_help(known: Known) -> str:
    found = _mixed(known)
    if known.has_answer("workaround") or found is None or keeps_all(found):
        return _told_workaround(known) or known.message
    others = known.result("workaround").workarounds
    nothing = f"of {counted(len(others), 'workaround')} that were tried none helps" if others else ""
    return "; ".join(filter(None, (keeping_high(found, others), nothing)))


PARTS = (
    Part("does it fail?", (INSPECT, *SEEN), _told_failure),
    Part("where?", ("tactics", "layerwise", "extract", "reduce", "plain"), _told_where),
    Part("what stays?", ("precision",), lambda known: _told_precision(known) or known.message),
    Part("why?", ("passes", "healed", "passes_on_whole", "versions"), _told_why),
    Part("what helps?", ("workaround",), _told_help),
)


def decisions(known: Known) -> list[Decision]:
    """Return each question that was put or left out with a reason, and what decided it."""
    told = []
    for box in BOXES:
        step = known.of(box.name)
        if not step.why:
            continue
        answer = box.answer(known) if box.answer else known.told(box.name)
        told.append(Decision(box.question, step.why, answer if step.folder else "not asked", step.folder))
    return told


def branch(known: Known) -> str:
    """Return in a word where the flowchart ended."""
    if known.why_not_loaded:
        return "not loaded"
    if not known.has("stands") or not known.judged or known.refused:
        return "not judged"
    if known.planned:
        return "planned"
    if not known.anything_failed:
        return "passes"
    if known.has_answer("tactics"):
        return "tactics"
    if known.extracted_fails:
        return "extract"
    return "reduce" if known.culprits else "not reduced"
