"""A triage in a sentence or two: what fails, how often, why, since when, and what helps."""

from __future__ import annotations

from runner.jobs.triage.reproduced_failure import SEEN
from runner.jobs.triage.step_result import mappings, names, section
from runner.jobs.triage.transcript import Known
from runner.judgment import Status
from runner.text import counted, listed, one_line

REACHED = " was reached"
"""What is said of a budget behind its name."""
LEFT_OUT = "strategy.steps leaves it out"
MODELS_OWN = (
    "the reference makes it as well: the model itself does with these inputs (an overflow, a Log of a negative number, "
    "...), which is no bug of the runtime"
)
MODELS_OWN_RECORDED = (
    "the reference makes it as well where each tensor is recorded, which rounds it to its type; whether a plain run of "
    "the file by the reference does is not known"
)
PLAIN_IS_FINITE = "a plain run of the file by the reference is finite, though a tensor that was recorded inside is not"
AT_THE_EDGE = (
    f"{PLAIN_IS_FINITE}: to be recorded each tensor is rounded to its low precision, as on a GPU, and the model stands "
    "at the edge of that"
)
_LONGEST = 100
"""Characters of a workaround's name; the report has all."""


def verdict(known: Known) -> str:
    """Return what was found; the culprits are named beside it."""
    if not known.has("stands"):
        return "nothing was asked"
    if not known.judged:
        return f"the file as it is cannot be judged: {known.said('stands')}"
    if not known.anything_failed:
        tried = sum(known.judgements(name)[1] for name in SEEN)
        more = "real inputs (inputs=files inputs.path=...), more seeds, a tighter checker.rtol"
        if known.situation.hides_rounding and not known.has_result("rounded"):
            more = f"target.rounding=on (the target computes low precision in float32), {more}"
        return f"nothing fails in {counted(tried, 'check')}; what could be tried: {more}"
    said = f"{known.failure}, {known.how_often}"
    if known.planned:
        return f"{said}; stopped after the pre-flight, as asked"
    releases = known.said("versions") if known.releases else ""
    told = (
        *(said, _told_part(known), told_reference(known), told_passes(known), releases),
        *(_told_precision(known), _told_workaround(known), _told_budget(known)),
    )
    return "; ".join(filter(None, told))


def told_reference(known: Known) -> str:
    """Return what the reference does where the failure is a NaN or Inf that it has as well; "": it has none."""
    if not known.recorded_too:
        return ""
    if known.plain_is_finite:
        return AT_THE_EDGE if known.situation.hides_rounding else PLAIN_IS_FINITE
    return MODELS_OWN if known.reference_too_plainly else MODELS_OWN_RECORDED


def _told_part(known: Known) -> str:
    if known.culprits:
        return known.proof if known.answer == "reduce" else "a part that fails alone; a smaller one was not found"
    step = known.of("reduce")
    if step is None or not step.result:
        return "" if step is None or step.why.endswith(REACHED) else f"no part was searched: {step.why or LEFT_OUT}"
    if step.status == Status.interrupted:
        return "no part was found so far"
    return f"no part was found: {known.said('reduce')}"


def _told_budget(known: Known) -> str:
    """Return what a spent budget left unasked; a larger one goes on from here."""
    unasked = [one for one in known.ended if one.why.endswith(REACHED)]
    return f"{unasked[0].why} before {listed([one.name for one in unasked])}" if unasked else ""


def told_passes(known: Known) -> str:
    """Return what is known of passes; of a single one that is needed, not that the model passes without it."""
    needed = names(known.passes, "needed")
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
    if step and step.status == Status.nothing_to_find and isinstance(made := step.result.get("model"), str):
        return f"its original passes in {known.situation.low} where it is converted anew ({step.folder}/{made})"
    if not known.has_answer("precision"):
        return ""
    return f"float32 is needed in {listed(names(known.result('precision'), 'culprits'))}"


def _told_workaround(known: Known) -> str:
    passing = next((one for one in mappings(known.result("workaround"), "workarounds") if one.get("passes")), None)
    if not passing:
        return ""
    samples = section(passing, "samples")
    shown = f"{samples.get('passed')} of {samples.get('of')} {samples.get('kind')} inputs pass"
    shown += f" {one_line(where)}" if (where := passing.get("where")) else ""
    return f"workaround: {one_line(passing.get('what'), _LONGEST)} ({shown})"
