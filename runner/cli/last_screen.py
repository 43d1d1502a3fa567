"""The last screen of a run, and what the nodes of its answer look like.

The last screen of a run: what was found, how sure that is, what it looks like, what to open, what to type next.

It is made from result.json's content alone, so that a run that ended long ago shows the same again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from textwrap import shorten

from onnx import GraphProto, NodeProto, ValueInfoProto, defs

from runner.cli.next_command import next_command, shown_path
from runner.cli.terminal import Row, write
from runner.exit_codes import ANSWERED, BUDGET_REACHED, ENDED_WELL, Status
from runner.files import inside, is_plain
from runner.judgment import SHOWN, Whose
from runner.model.files.parse_without_weights import parse_without_weights
from runner.report.diagnosis_sections import in_a_clause
from runner.report.document import cut
from runner.report.page.graph_columns import operator_of, type_text, weight_text
from runner.report.result_parts import Plan, Statistics
from runner.report.short_answer import (
    FIRST_NAMES,
    MOST_NAMES,
    NAMED,
    blame,
    is_part,
    names_of,
    other_answers,
    short_answer,
    where,
)
from runner.report.summary import Summary
from runner.text import counted, duration, listed, one_line, share, short
from strategies.search import Outcome

# What the nodes of an answer look like: operator, dtypes and shapes, from the model that was handed over.

_MOST = 3
_MOST_INPUTS = 4
_LONGEST = 120
_LARGEST = 256 << 20


def looks(path: Path, names: Collection[str], *, whole: bool = False) -> list[str]:
    """Return what nodes look like, as ``MatMul float16 [8, 1024] x [1024, 1024]``: the most frequent first.

    They are those with the ``names``, or all where the file knows none of these (a reduced model may have others).
    Nothing where no model can be read there, or (``whole``) where it knows some of the names only: what is raised may
    have another one.
    """
    try:
        if not is_plain(path) or path.stat().st_size > _LARGEST:
            return []
        model = parse_without_weights(path)
    except (OSError, ValueError, RecursionError):
        return []
    if model is None:
        return []
    known = _types(model.graph)
    wanted = {*names}
    called = [(one & wanted, node) for one, node in _named(model.graph.node) if one & wanted]
    nodes = [node for _, node in called] or [*model.graph.node]
    # not the answer's alone, or not all of these
    if len(nodes) > 2 * len(names) + _MOST_INPUTS or (whole and wanted.difference(*(one for one, _ in called))):
        return []
    _infer(model.graph.node, known, {one.domain: one.version for one in model.opset_import})
    found = Counter(_look(node, known) for node in nodes if node.op_type != "Constant").most_common()
    most = len(found) if len(found) == _MOST + 1 else _MOST  # that there is one more takes as much room as that one
    shown = [short(look, _LONGEST) + (f" ({times} times)" if times > 1 else "") for look, times in found[:most]]
    return [*shown, f"and {counted(len(found) - most, 'other kind')}"] if len(found) > most else shown


def _named(nodes: Iterable[NodeProto], above: str = "") -> Iterator[tuple[set[str], NodeProto]]:
    """Yield each node, nested ones included, with what an answer may call it: by its name, or by what it gives."""
    for node in nodes:
        names = {f"{above}{name}" for name in (node.name, *node.output[:1]) if name}
        yield names, node
        path = f"{above}{node.name or next(iter(node.output), '')}"
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _named(graph.node, f"{path}.{attribute.name}/")


def _infer(nodes: Iterable[NodeProto], known: dict[str, tuple[str, str]], versions: Mapping[str, int]) -> None:
    """Add the dtypes of what nodes give, where their operators say that it is that of what they read.

    A reduced model has no types for tensors inside it.
    """
    for node in nodes:
        try:
            schema = defs.get_schema(node.op_type, versions.get(node.domain, 1), node.domain)
        except (defs.SchemaError, ValueError):
            continue
        read = zip(schema.inputs, node.input, strict=False)
        dtypes = {formal.type_str: known[name][0] for formal, name in read if name in known}
        for formal, name in zip(schema.outputs, node.output, strict=False):
            if name not in known and (dtype := dtypes.get(formal.type_str)):
                known[name] = dtype, "?"


def _look(node: NodeProto, known: dict[str, tuple[str, str]]) -> str:
    operator = operator_of(node)
    inputs = [known.get(name, ("", "?")) for name in node.input if name]
    if all(shape in ("", "?") for _, shape in inputs):  # what it gives tells more
        given = [known[name] for name in node.output if name in known]
        inputs = given if any(shape != "?" for _, shape in given) else inputs
    shown = inputs[:_MOST_INPUTS]
    dtypes = list(dict.fromkeys(dtype for dtype, _ in shown if dtype))
    if any(shape == "?" for _, shape in shown):
        return " ".join([operator, " x ".join(dtypes)]).strip()
    more = " x ..." if len(inputs) > len(shown) else ""
    if len(dtypes) > 1:
        return f"{operator} {' x '.join(f'{dtype} {shape}'.strip() for dtype, shape in shown)}{more}"
    return " ".join([operator, *dtypes, " x ".join(shape for _, shape in shown)]).strip() + more


def _types(graph: GraphProto) -> dict[str, tuple[str, str]]:
    """Return dtype and shape of each tensor that says them; "?": no shape."""
    declared: Iterable[ValueInfoProto] = (*graph.value_info, *graph.input, *graph.output)
    known = {one.name: type_text(one.type) for one in declared if one.type.HasField("tensor_type")}
    weights = {one.name: one for one in graph.initializer} | {
        node.output[0]: attribute.t
        for node in graph.node
        for attribute in node.attribute
        if node.op_type == "Constant" and attribute.name == "value" and node.output
    }
    known |= {name: weight_text(one) for name, one in weights.items()}
    parts = {name: text.partition("[") for name, text in known.items()}
    return {name: (dtype, f"[{shape}" if bracket else "?") for name, (dtype, bracket, shape) in parts.items()}


_MOST_ROWS = 7
"""Below the first line; what is left out for that stands in REPORT.md."""
_LEAST_MISSED = ("nodes", "", "warning", "unknown", "and", "inside")
"""Rows that are left out, the first of them first."""
_COLUMNS, _MARGIN = 100, 11
"""Of a row, and of its name."""
_LONGEST_REASON = 200
#: characters of a reason that stands above
_BEGINNING = 40
#: characters of a message in which reasons are looked for; a damaged file's may be megabytes long
_LONGEST_MESSAGE = 20_000
#: a hint, and what a user has changed in a replay, stand behind the other warnings
_OF_LITTLE_NEWS = ("the inputs are random", "not as recorded: ")
#: where there is an answer, verdicts that are not known are told of from this share of all on
_MANY = 0.2
#: strategies whose checks are counted before they begin; a search depends on what it finds
_KNOWN_CHECKS = frozenset({"repeat", "layerwise", "workaround"})
#: what is opened first, the best first
_FILES = ("report.html", "REPORT.md")
_FAILED_TO_RUN = frozenset({Status.usage, Status.internal_error, Status.no_room})


def headline(result: Summary, *, most: int = FIRST_NAMES, above: bool = False) -> str:
    """Return the status, whose bug it is, the first names with their number, and the message: one line, or a few.

    ``above``: rows, which say more of an answer.
    """
    status, named = result.status, bool(result.culprits) and result.status in NAMED
    whose = blame(result) if named else ""
    room = _COLUMNS - len(f"{status}:  (1 of {result.nodes_before} nodes)")
    told_last = status == Status.suspected  # whose bug these nodes alone show
    kind = f"node{'s' * (len(result.culprits) > 1)} " if result.inspection else ""
    before = f"{whose}, in {kind}" if whose and not told_last else ""
    nodes = where(result, most, room - len(before))
    if result.whose == Whose.UNKNOWN and nodes != where(result, most, room):  # the names tell more than this does
        before, nodes = "", where(result, most, room)
    told = (
        above
        and named
        and is_part(result)
        and not result.inspection
        and result.strategy != "extract"  # what is cut out need not fail
        and status in (Status.found, Status.reference_wrong)
        and BUDGET_REACHED not in result.message
    )
    cause = result.cause if named and not above and result.strategy != "triage" else None  # whose message says it
    first, _, more = result.message.partition("; ")
    message = "" if told else first if above and named and more and more == short_answer(result).why else result.message
    last = (whose if told_last else "", in_a_clause(cause) if cause else "")
    causes = [{*one.culprits} for one in result.cause.causes] if result.cause and above else []
    nodes += f", 1 of {len(causes)} causes" if len(causes) > 1 and {*result.culprits} in causes else ""
    what = "; ".join(filter(None, (before + nodes, message, *last)))
    # no line of it passes for the last word, and what the user named was not found
    word = "extracted" if result.strategy == "extract" and status == Status.found else str(status)
    return (f"{word}: {what}" if what else word).replace("\n", "\n  ")


def say_ended(result: Summary, folder: Path, *, number: int | None = None, refused: bool = False) -> None:
    """Say how a run ended; what went wrong goes to stderr.

    ``number``: of a sweep's job, which says it in one line. ``refused``: the result in the folder is an earlier run's.
    """
    error = result.exit_code not in ENDED_WELL
    first = headline(result)
    mark = f"#{number} " if number is not None else ""
    status = result.status
    if refused:
        write(first, (), "bad", error=True)
    elif number is not None or status in _FAILED_TO_RUN:
        report = _report(result, folder)
        line = f"{first}\n{report}" if "\n" in first else f"{first} [{report}]"
        onward = [] if number is not None else [*_next(result, folder)]
        write(
            "\n".join(f"{mark}{part}" for part in line.split("\n") if part.strip()),
            onward,
            "bad" if error else "",
            error=error,
        )
    else:
        first = headline(result, above=True)
        strong = status in {*ANSWERED, Status.planned, Status.nothing_to_find}
        tone = "good" if status == Status.found else "strong" if strong else "bad"
        write(first, [*rows(result, folder)], tone, error=error)


def rows(result: Summary, folder: Path) -> list[Row]:
    """Return the rows of a screen below its first line."""
    found = [*_rows(result, folder)]
    for name in _LEAST_MISSED:
        if result.status in ANSWERED and sum(row.text.count("\n") + 1 for row in found) > _MOST_ROWS:
            found = [row for row in found if row.name != name]
    return found


def _rows(result: Summary, folder: Path) -> Iterator[Row]:
    answer = short_answer(result)
    for name, nodes in (("and", names_of(result.culprits)), ("inside", names_of(result.nested))):
        if result.status in NAMED and len(nodes) > FIRST_NAMES + 1:
            yield Row(name, listed(nodes[FIRST_NAMES:], MOST_NAMES - FIRST_NAMES), most=6)
    yield from _rows_of("others", other_answers(result.answers))
    yield from _rows_of("fails", answer.fails, most=2)
    if result.status == Status.suspected:  # it is not shown to be the cause
        yield from _rows_of("seen", answer.why)
    elif result.precision and answer.why.startswith("error "):
        yield from _rows_of("error", answer.why.removeprefix("error "))
    else:
        yield from _rows_of("why", answer.why)
    yield from _rows_of("sure", "; ".join(filter(None, (answer.sure, answer.checks))) if answer.sure else "")
    yield from _rows_of("checks", "" if answer.sure else answer.checks)
    yield from _rows_of("nodes", _looks(result, folder), most=4)
    yield from _rows_of("helps", answer.helps)
    if answer.fixed and inside(folder / answer.fixed, folder):
        yield Row("fixed", shown_path(folder / answer.fixed), whole=True)
    yield from _rows_of("plan", _plan(result.plan, result.strategy), most=6)
    yield from _rows_of("rate", _rate(result.statistics))
    yield from _rows_of("unknown", _unknown(result))
    # what the first line says as well is not said again
    others = [one for one in result.warnings if one.partition(". ")[0] not in headline(result, above=True)]
    warnings = sorted(others, key=lambda one: one.startswith(_OF_LITTLE_NEWS))
    if warnings:
        more = f" ({len(warnings) - 1} more: REPORT.md)" if len(warnings) > 1 else ""
        said = one_line(warnings[0])
        room = 2 * _COLUMNS - _MARGIN if len(warnings) == 1 else _COLUMNS - _MARGIN - len(more)
        first = said.partition(". ")[0]
        said = first if len(first) <= room < len(said) else cut(said, room)
        yield Row("warning", f"{said}{more}", "warning", most=2)
    yield Row("open", shown_path(_first_file(result, folder)), whole=True)
    yield from _next(result, folder)


def _next(result: Summary, folder: Path) -> Iterator[Row]:
    command, what = next_command(result, folder)
    if command:
        yield Row("next", command, "strong", whole=True)
        yield Row("", f"({what})")


def _rows_of(name: str, text: str, most: int = 3) -> list[Row]:
    return [Row(name, text, most=most)] if text else []


def _looks(result: Summary, folder: Path) -> str:
    model, names = result.model, result.culprits
    if result.status not in ANSWERED or not model or not names or not inside(folder / model, folder):
        return ""
    found = looks(folder / model, names, whole=result.precision is not None)
    simpler = result.message.partition(f"{model} has ")[2]
    if found and any(one in simpler for one in ("smaller shapes", "float32")):  # so it looks otherwise in the model
        found[-1] += f", in {model}"
    return "\n".join(found)


def _plan(plan: Plan | None, strategy: str) -> str:
    if not plan:
        return ""
    lines = (
        f"search: {_search(plan.search_checks, strategy)}",
        f"confirm: {counted(plan.trust_checks, 'check')} (repeats, and the result itself)" * (plan.trust_checks > 0),
        f"time: {duration(plan.seconds)} ({plan.seconds_each:.3g} s a check)" * (plan.seconds_each > 0),
        f"disk: {plan.disk_mb:.1f} MB at most, {plan.disk_left_mb:.1f} MB afterwards",
    )
    return "\n".join(filter(None, lines))


def _search(most: int, strategy: str) -> str:
    checks = counted(most, "check")
    if strategy in _KNOWN_CHECKS:
        return f"up to {checks}" if most else "as many checks as it takes (strategy.until)"
    return f"about {checks} for one culprit, more for several"


def _rate(statistics: Statistics | None) -> str:
    if not statistics or statistics.pass_rate is None or not statistics.pass_rate_95:
        return ""
    between = " to ".join(map(share, statistics.pass_rate_95))
    passed, judged = statistics.passed or 0, statistics.judged or 0
    return f"{passed} of {judged} passed: {share(statistics.pass_rate)} (95 % interval: {between})"


def _unknown(result: Summary) -> str:
    """Return why verdicts are not known: the most frequent reasons, more of them where that was the end.

    A reason that stands above is not given again. What was not known on the way to a proven cause limits nothing.
    """
    reasons, total = result.unresolved, sum(result.unresolved.values())
    # what a harmless model could not be asked limits no answer
    limits = total - result.controls.get(Outcome.UNRESOLVED.value, 0)
    proven = result.cause is not None and result.cause.status in SHOWN
    if not total or proven or (result.status in ANSWERED and limits < max(_MANY * sum(result.outcomes.values()), 1)):
        return ""
    most = 3 if result.status == Status.could_not_judge else 1
    said = one_line(headline(result, above=True), _LONGEST_MESSAGE) + short_answer(result).sure
    told = [reason for reason in reasons if reason in said]
    new = [reason for reason in reasons if reason not in told]
    if not limits and not told:  # they were about models that only test the check
        return ""
    verdicts = f"{counted(total, 'check')} without a verdict"
    if not new and len(told) == 1:
        return f"{verdicts}, for the reason above"
    begun = {reason: f"{shorten(reason, _BEGINNING, placeholder=' ...')} (see above)" for reason in told}
    shown = [f"{reasons[reason]} x {said}" for reason, said in begun.items()]
    shown += [f"{reasons[reason]} x {short(reason, _LONGEST_REASON)}" for reason in new[:most]]
    often = "" if len(new) <= most else ", most often" if reasons[new[0]] > 1 else ", for example"
    return f"{verdicts}{often}:\n" + "\n".join(shown)


def _first_file(result: Summary, folder: Path) -> Path:
    return next((path for name in _FILES if (path := folder / name).is_file()), _report(result, folder))


def _report(result: Summary, folder: Path) -> Path:
    names = ("result.json",) if result.exit_code == Status.usage.exit_code else ("REPORT.md", "result.json")
    return next((path for name in names if (path := folder / name).exists()), folder)
