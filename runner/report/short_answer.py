"""The answer in a few lines: whose bug, where, how it fails, why, how sure that is, and what helps.

The last screen, REPORT.md and the page begin with these lines, so that none says more or less than the others. Each
fact stands in one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from runner.checkers.failure_text import ALLOWED
from runner.exit_codes import ANSWERED, Status
from runner.judgment import SHOWN, Whose
from runner.report.diagnosis_sections import NO_WIDER, QUANTIZATION, WHOSE, beyond_range, in_a_clause, left_out, shown
from runner.report.failure_section import called, runtime
from runner.report.result_parts import Cause, CauseAnswer, CauseExperiment, Count, Precision, Workaround
from runner.report.summary import FLOATS, Summary
from runner.run_folder import MIXED, REDUCED
from runner.text import counted, duration, in_tolerances, listed, one_line, own_words, short, with_inside
from runner.verdict import ERROR, OVERFLOW
from strategies.search import Claim

NAMED = ANSWERED | {Status.interrupted}
"""Endings of which the nodes are told: the answer, or the best so far."""
_OF_A_PART = frozenset({"triage", "reduce", "extract"})
"""Strategies, or how they begin, whose answer is a part of a model that fails."""
FIRST_NAMES, MOST_NAMES = 3, 10
"""Names in the first line, and in all."""
_SHORTEST, _LONGEST_QUOTE, _ROOM = 30, 100, 60
_CLAIMS: Mapping[str, str] = {
    Claim.ONE_MINIMAL.value: "minimal",
    Claim.UNPROVEN.value: "minimal as far as could be judged",
    Claim.WINDOW.value: "not shown to be minimal: some nodes may not be needed",
    Claim.RANKED.value: "not minimal: the first nodes of a ranking; some may not be needed",
    Claim.SMALLEST_SEEN.value: "the smallest set that was tried; some of it may not be needed",
    Claim.TOGETHER.value: "one fault: these nodes read other tensors than in the original",
    Claim.GROWN.value: "not minimal: nodes were added until it passed; some may not be needed",
    Claim.BUDGET.value: "the best so far: the search was stopped early",
    Claim.COUNTED.value: "",
}
OWN_CODE = ("command", "python")
"""The checkers that run code of the user's."""
ABOUT_KEPT = ("recheck", "bugs")
"""The strategies that ask about kept results, and search nothing."""
_OF_ELEMENTS = re.compile(r"^[\d,]+ of [\d,]+ elements of ")
"""How a sentence about a weight may begin, before its name."""
_ERROR, _MOST_OF = "error ", 0.9
"""How a measure in tolerances begins; and of which share on an error has not fallen."""
_NOT_ALONE = "the quantized model exceeds the tolerance; it is not shown that these nodes alone do"
_TOLERANCES = ("auto", "compare")
"""Checkers whose measure counts tolerances."""


@dataclass(frozen=True)
class ShortAnswer:
    """What is known, a sentence each; "" where nothing is.

    ``fixed``: the model with what helps, below the run's folder.
    """

    whose: str
    where: str
    fails: str
    why: str
    sure: str
    checks: str
    helps: str
    fixed: str


def short_answer(summary: Summary, most: int = FIRST_NAMES) -> ShortAnswer:
    """Return the answer. ``most``: names in ``where``."""
    return ShortAnswer(
        whose_bug(summary) if summary.culprits and summary.status in NAMED else "",
        where(summary, most),
        _fails(summary),
        _why(summary),
        "; ".join(filter(None, _sure(summary))),
        _checks(summary),
        _helps(summary),
        fixed(summary),
    )


def whose_bug(summary: Summary) -> str:
    """Return whose bug it is; "" where nobody asked, or that is not known."""
    named = runtime(summary, "target") if summary.whose == Whose.TARGET else ""
    return named or WHOSE.get(summary.whose or "", "")


def blame(summary: Summary) -> str:
    """Return the same for a first line; what quantization costs is nobody's bug."""
    whose = whose_bug(summary)
    return QUANTIZATION if summary.whose == Whose.QUANTIZATION else f"whose bug: {whose}" if whose else ""


def where(summary: Summary, most: int = FIRST_NAMES, room: int = 96) -> str:
    """Return the nodes of the answer, or of the best so far, and of how many they are; names in this much ``room``."""
    named = summary.status in NAMED
    # a precision run counts the nodes that were left in high precision, which is no finding
    counts = summary.nodes_after is not None and summary.status != Status.nothing_to_find
    nodes = sized(summary) if counts and summary.strategy != "extract" else ""  # whose message says it
    names, nested = names_of(summary.culprits, room), names_of(summary.nested, room)
    answer = listed(names, most + (len(names) == most + 1)) if named else ""  # "1 more" is no shorter
    answer = with_inside(answer, listed(nested, most + (len(nested) == most + 1)), len(names))
    return f"{answer} ({nodes})" if answer and nodes else answer or nodes


def other_answers(answers: Sequence[Summary]) -> str:
    """Return the answers after the first, and where they lie: ``exp (answers/2); a, b (answers/3)``."""
    named = (listed(names_of(one.culprits), FIRST_NAMES) for one in answers[1:])
    return "; ".join(f"{names} (answers/{number})" for number, names in enumerate(named, 2))


def sized(summary: Summary) -> str:
    """Return of how many nodes the answer's are; and how many its model has, or keeps high, besides these."""
    named, after = len(summary.culprits), summary.nodes_after or 0
    if is_part(summary) and summary.status in NAMED and summary.model and 0 < named < after:
        return f"{named} of {summary.nodes_before} nodes; {PurePosixPath(summary.model).name} has {after}"
    if summary.precision and summary.strategy.startswith("precision") and 0 < named < after:
        are = "that are" if after - named > 1 else "that is"
        return f"{named} of {summary.nodes_before} {summary.unit}, besides {after - named} {are} not searched"
    return f"{after} of {summary.nodes_before} {summary.unit}"


def names_of(names: Sequence[str], room: int = 96) -> list[str]:
    """Return names of which as many as a line shows fit into this room."""
    return [short(name, max(_SHORTEST, room // min(len(names), FIRST_NAMES))) for name in names]


def _fails(summary: Summary) -> str:
    """Return how the part fails, and of a triage how often the file does."""
    told = summary.triage.reproduced if summary.triage else None
    if told and told.failure and (summary.culprits or summary.precision):
        return f"{failure_in_words(told.failure, told.said or summary.said)}, {told.how_often}{_iteration(summary)}"
    if not is_part(summary) or not summary.signature or not summary.culprits:
        return ""
    said = failure_in_words(f"{summary.failure.stage}: {summary.failure.kind}", summary.said)
    if whole := summary.failure.whole:
        said = f"{failure_in_words(whole)} ({said.partition(' ')[0]} in {REDUCED}.onnx)"
    return said + _iteration(summary)


def _iteration(summary: Summary) -> str:
    return f"; {summary.iteration}" if summary.iteration else ""


def is_part(summary: Summary) -> bool:
    """Whether the answer is a part of a model that fails."""
    return summary.strategy.partition("_")[0] in _OF_A_PART


def failure_in_words(failure: str | None, said: str = "") -> str:
    """Return a failure that is told as its stage and kind; of a refusal the runtime's own sentence, ``said``.

    A check of the user's own is quoted where it says more than its exit code.
    """
    stage, _, kind = (failure or "").partition(": ")
    if stage in ("load", "build") and kind.startswith(ERROR) and said:
        return f'{"loading" if stage == "load" else "building"} fails: "{one_line(own_words(said), 160)}"'
    if stage == "infer" and kind.startswith(ERROR) and said:
        return f'{called(failure or "")}: "{one_line(own_words(said), 160)}"'
    bare = said in kind or re.fullmatch(r"exit \d+", said) or said.endswith("returned False")
    tells = stage == "check" and not bare
    return called(failure or "") + (f': "{one_line(said, _LONGEST_QUOTE)}"' if tells else "")


def _why(summary: Summary) -> str:
    """Return the cause in a clause, with the numbers that show it."""
    cause = summary.cause
    if summary.precision and (numbers := summary.precision.numbers):
        said = ", ".join(f"{value:.3f} {name}" for name, value in numbers.items())
        return f"the check's number: {said.replace('as handed over', f'in {MIXED}.onnx')}"
    # the reduction of a triage says why
    if summary.precision and summary.culprits and summary.status in NAMED and not summary.triage:
        return summary.message.partition("; ")[2]
    if cause is None or summary.status not in NAMED:
        return summary.seen
    if cause.weights:
        first, *more = cause.weights
        answer = _own(summary, cause) if cause.status in SHOWN else None
        also = f"; right outputs of {_asked(summary, answer)} mend the model" if answer and _alike(answer) else ""
        own, *others = (_OF_ELEMENTS.sub("", one).partition(" ")[0] for one in cause.weights)
        rest = f", and {counted(len(more), 'more change')}" if more else ""
        return first + (f"; {others[0]} differs too" if len(more) == 1 and others != [own] else rest) + also
    if wider := cause.wider:
        return f"{wider.type} overflow: {wider.said}"
    if cause.no_value or (summary.whose == Whose.MODEL and cause.right):
        return cause.no_value or cause.right
    if beyond_range(cause):
        return f"{summary.seen or 'NaN or Inf'}; the reference computes it too"
    if cause.status not in SHOWN or not (answer := _own(summary, cause)):
        return summary.seen or _NOT_ALONE * (summary.whose == Whose.QUANTIZATION)
    return _by_experiments(summary, cause, answer)


def _by_experiments(summary: Summary, cause: Cause, answer: CauseAnswer) -> str:
    """Return what the experiments on the answer have shown."""
    outputs, inputs = (_ended(one) for one in (answer.good_outputs, answer.good_inputs or answer.good_around))
    these, first = _asked(summary, answer), summary.seen or _measure(summary, cause.whole)
    its = "its" if len(answer.culprits) == 1 and not _alike(answer) else "their"
    if not first and (stage := summary.failure.stage) in (
        "load",
        "build",
    ):  # no node ran: the model was tried with values instead
        ways = {"passes": f"{stage}s", "still fails": f"still does not {stage}"}
        outputs, inputs = (ways.get(one, one) for one in (outputs, inputs))
        return f"without {these} the model {outputs}; with only {its} inputs corrected it {inputs}"
    around, seen = answer.good_around, f"{first}; " if first else ""
    if falls := first.startswith(_ERROR) and _falls(cause.whole, answer):
        both = "; with both the model passes" * bool(around and around.outcome == "pass")
        return f"{seen}with right outputs of {these} {falls}{both}"
    if around and around.outcome == "pass" and outputs != "passes":  # there is another fault
        return f"{seen}the model {inputs} if the inputs of {these} are corrected, and passes if {its} outputs are too"
    return f"{seen}the model {outputs} if the outputs of {these} are corrected, and {inputs} if only {its} inputs are"


def _falls(whole: CauseExperiment | None, answer: CauseAnswer) -> str:
    """Return what becomes of the error of a model with right outputs, and with right inputs; "" where one passes."""
    known = [one.measure for one in (whole, answer.good_outputs, answer.good_inputs) if one and one.outcome == "fail"]
    if len(known) < 3 or None in known:
        return ""
    before, outputs, inputs = (one or 0.0 for one in known)
    to = f"falls to {outputs:.3g}" if outputs < before else f"is {outputs:.3g}"
    stays = _MOST_OF * before < inputs < before / _MOST_OF
    return f"it {to}, with right inputs {'it stays' if stays else f'it is {inputs:.3g}'}"


def _own(summary: Summary, cause: Cause) -> CauseAnswer | None:
    """Return what was shown of the nodes that are named, or else of what they are inside of, or else of the first."""
    inner = cause.inside.causes if cause.inside and cause.inside.status in SHOWN else []
    found, names = (inner, summary.nested) if inner else (cause.causes, summary.culprits)
    return next((one for one in found if {*one.culprits} == {*names}), next(iter(found), None))


def _asked(summary: Summary, answer: CauseAnswer) -> str:
    """Return which nodes experiments are about: by name, unless they are those that are named as the answer.

    With the other places of its pattern.
    """
    these = "this node" if len(answer.culprits) == 1 else "these nodes"
    if {*answer.culprits} != {*(summary.nested or summary.culprits)}:
        these = listed(names_of(answer.culprits), FIRST_NAMES)
    if not (others := _alike(answer)):
        return these
    last = f"{len(others) - 1} more" if len(others) > 2 else others[-1]
    return f"{', '.join([these, *others[: 1 if len(others) > 1 else 0]])} and {last} (the same pattern)"


def _alike(answer: CauseAnswer) -> list[str]:
    """Return the other places of the answer's pattern, all of which need right outputs."""
    return names_of([" with ".join(one) for one in answer.instances if not {*one} <= {*answer.culprits}])


def _ended(one: CauseExperiment | None) -> str:
    if one is None or one.outcome in ("pass", ""):
        return "passes"
    return "still fails" if one.outcome == "fail" else "fails in another way"


def _measure(summary: Summary, whole: CauseExperiment | None) -> str:
    """Return the error of the whole model; of what has to be equal, which has no tolerance, how much of it differs."""
    if whole is None or not whole.measure:
        return ""
    if summary.checker not in _TOLERANCES:
        number, allows, _ = whole.reason.partition(ALLOWED)  # then it counts how far that is exceeded
        return f"the check's number is {number}{ALLOWED}" if allows else f"the check measures {whole.measure:.3g}"
    equal = " elements differ" in whole.reason
    return one_line(whole.reason, _LONGEST_QUOTE) if equal else f"{_ERROR}{in_tolerances(whole.measure)}"


def _sure(summary: Summary) -> Iterator[str]:
    """Yield what was shown of the cause, how minimal the answer is, and what repeats have shown."""
    cause, claim, tested = summary.cause, summary.minimality or "", summary.reliability
    if cause and summary.culprits:
        yield in_a_clause(cause)
    if (said := _CLAIMS.get(claim, claim)) and (claim != Claim.BUDGET.value or summary.culprits):
        reasons = [*summary.unresolved] if claim == Claim.UNPROVEN.value else []
        said += f" ({reasons[0]})" if len(reasons) == 1 else ""
        unit = summary.context.get("subject.unit") or summary.unit.removesuffix("s")
        each = "each of them" if unit in summary.unit else f"each {unit}"
        one_less = ": with any one node removed it passes" if is_part(summary) else f": {each} is needed"
        if kept := {"ancestors": "inputs", "descendants": "outputs"}.get(summary.context.get("subject.closure", "")):
            one_less = f" among the parts that keep the model's {kept}"
        if summary.precision and summary.failure.stage == OVERFLOW:
            one_less = f": without any one {unit} of them a tensor overflows"
        elif summary.precision and summary.precision.by_margin:
            one_less = f": with any one {unit} fewer, strategy.margin is not kept"
        yield said + one_less * (claim == Claim.ONE_MINIMAL and len(summary.culprits) != 1)
    if tested and tested.whole_model and tested.whole_model.of:
        whole, control = tested.whole_model, tested.control or Count()
        yield (
            f"the check is flaky: the whole model failed {whole.failed} of {whole.of} times, a model that must pass "
            f"{control.failed} of {control.of}; the answer is wrong with a probability of at most "
            f"{tested.max_wrong or 0:.0%}"
        )
    elif tested and tested.agreed:
        yield f"{counted(tested.agreed, 'repeated check')} agreed"


def _checks(summary: Summary) -> str:
    made, reused = summary.checks.made, summary.checks.reused
    known = f" and {reused} known before" if reused else ""
    known = f" ({summary.checks.search} to search){known}" if summary.minimality == Claim.BUDGET.value else known
    return f"{counted(made, 'check')}{known}, {duration(summary.seconds.total)}" if made or reused else ""


def _helps(summary: Summary) -> str:
    """Return what keeps the failure away, and how that was shown."""
    meant = summary.workarounds
    tried = [one for one in meant if one.tried]
    passing = [one for one in tried if one.passes]
    own = summary.strategy == "workaround"  # then the first line says what was not tried, and that none helps
    left = f"{len(meant) - len(tried)} could not be tried: {left_out(meant)}" if len(tried) < len(meant) else ""
    said = []
    if passing:
        more = len(passing) - 1
        said = [
            f"{what_of(passing[0])} ({shown(passing[0], own=summary.checker in OWN_CODE)})"
            + (f", and {more} more" if more else "")
        ]
        said += ["target.rounding=on tries it with the rounding of a GPU"] if passing[0].where else []
    elif summary.triage and summary.precision and summary.precision.selected:
        if not summary.culprits:  # then the first line says it
            return ""
        return keeping_high(summary.precision, meant)
    elif tried and not own:
        said = [f"no workaround helped ({len(tried)} tried)"]
    elif not meant and summary.cause and beyond_range(summary.cause) and not summary.cause.wider:
        wider = "" if summary.cause.reason.endswith(NO_WIDER) else "a wider type at this place, or "
        said = [f"perhaps {wider}smaller values"]
    return "; ".join([*said, *([left] if left and not own else [])])


def keeping_high(told: Precision, workarounds: Sequence[Workaround]) -> str:
    """Return that the layers of a precision search help, and where they do: perhaps not in the given model."""
    stays, against = stays_high(told), "" if keeps_all(told) else refuted(told, workarounds)
    return f"a new conversion of the original, {stays}; but {against}" if against else stays


def stays_high(told: Precision, *, sentence: bool = False) -> str:
    """Return which layers stay in high precision, and the error if they do not; or that none may be low.

    ``sentence``: as one, and not as what helps.
    """
    if not keeps_all(told):
        names = listed(names_of([one.node for one in told.selected], _ROOM))
        if nothing_low(told):
            names, few = "all layers", len(told.without_margin or ())
            error = f" ({few} {'is' if few == 1 else 'are'} enough with strategy.margin=1)"
        elif len(told.selected) == 1:
            error = _without(told) or f" ({told.selected[0].reason})" * bool(told.selected[0].reason)
        else:
            error = _without(told)
        keep = f"{names} must stay" if len(told.selected) == 1 and not nothing_low(told) else f"keep {names}"
        return f"{keep} in {told.high}{error}" if sentence else f"in {told.high}: {names}{error}"
    error = ""
    if told.pairs_fail:
        return f"the Q/DQ pairs fail by themselves: with them all and nothing in {told.low}, {told.pairs_fail}"
    if not told.each_fails:
        kept = f"every layer that was searched is kept in {told.high}"
        return kept if sentence else f"nothing but the model in {told.high}: {kept.removesuffix(f' in {told.high}')}"
    low = f"in {told.low}" if told.low in FLOATS else "quantized"
    (most, _), *fewer = reversed(told.curve or ((0, 0),))
    if fewer and fewer[0][0] == most - 1:
        error = f": with a single layer {low} the error is at least {in_tolerances(fewer[0][1])}"
    return f"no layer may be {low} at this tolerance{error}"


def _without(told: Precision) -> str:
    """Return the error with none of the nodes of an answer in high precision, and whether fewer are enough."""
    before = told.error["searched"].before if "searched" in told.error else None
    if not before:
        return ""
    if len(told.selected) == 1:
        return f" (error {in_tolerances(before)} otherwise)"
    few = told.without_margin
    of = " of them" if few and {one.node for one in told.selected}.issuperset(few) else " nodes"
    fewer = f"; {len(few)}{of} {'is' if len(few) == 1 else 'are'} enough without strategy.margin" if few else ""
    return f" (with none of them the error is {in_tolerances(before)}{fewer})"


def refuting(told: Precision | None, workarounds: Sequence[Workaround]) -> Workaround | None:
    """Return the workaround that raised the nodes of a precision search in the given model, and failed."""
    high = {one.node for one in told.selected} if told else set()
    tried = (one for one in workarounds if one.nodes and one.tried and not one.passes)
    return next((one for one in tried if high.issuperset(one.nodes)), None)


def refuted(told: Precision, workarounds: Sequence[Workaround]) -> str:
    """Return what speaks against the nodes of a precision search; "": nothing, or a workaround raises more nodes."""
    found = refuting(told, workarounds)
    if found is None or any(one.passes and one.nodes for one in workarounds):
        return ""
    samples = found.samples
    inputs = f"number {samples.passed + 1} of {samples.of} fresh inputs" if samples.kind == "fresh" else "its inputs"
    return f"the given model with these nodes in {told.high} fails with {inputs}"


def high_nodes(summary: Summary) -> tuple[str, ...]:
    """Return the nodes that stay in high precision: more of them where the search's own do not hold."""
    told = summary.precision
    if told and refuting(told, summary.workarounds):
        more = next((one.nodes for one in summary.workarounds if one.passes and one.nodes), ())
        return more or told.nodes_to_exclude
    return told.nodes_to_exclude if told else ()


OTHER_LEVEL = "another accuracy level"
"""What raised layers are in where what is raised is how a node computes with its quantized weights."""


def keeps_all(told: Precision) -> bool:
    """Whether nothing is left that could be in low precision, and that at the whole tolerance, not a part of it."""
    return nothing_low(told) and told.without_margin is None


def nothing_low(told: Precision) -> bool:
    """Whether the mixed model is the original. Raised to 8 bits or to another accuracy level, it is quantized."""
    if told.high in ("int8", OTHER_LEVEL):
        return False
    return told.low_share.get("nodes") == 0 and len(told.selected) > 1


def what_of(one: Workaround) -> str:
    """Return what was done; of names that take too much room how many there are."""
    long = one.kind == "precision" and len(one.what) > _SHORTEST
    return f"{one.what.partition(': ')[0]}: {counted(one.places, 'node')}" if long else one.what


def fixed(summary: Summary) -> str:
    """Return the model that passes, below the run's folder; "" where none was made."""
    files = (name for one in summary.workarounds if one.passes for name in one.files)
    return next(files, mixed_model(summary)) if summary.status in NAMED else ""


def mixed_model(summary: Summary) -> str:
    """Return the mixed model, below the run's folder; "" where none was made, or it is the original."""
    model = summary.model if summary.model and PurePosixPath(summary.model).stem == MIXED else ""
    everything = summary.precision is not None and nothing_low(summary.precision)  # then it is the original
    for step in summary.triage.steps if summary.triage and not everything else ():
        model = f"{step.folder}/{MIXED}.onnx" if step.name == "precision" and step.status == Status.found else model
    return model
