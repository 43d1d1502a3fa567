"""The last screen of a run, and what the nodes of its answer look like.

The last screen of a run: what was found, how sure that is, what it looks like, what to open, what to type next.

It is made from result.json's content alone, so that a run that ended long ago shows the same again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, defs

from runner.cli.next_command import next_command, shown_path
from runner.cli.terminal import Row, short, write
from runner.files import inside, is_plain
from runner.judgment import ANSWERED, ENDED_WELL, Status
from runner.model.files.parse_without_weights import parse_without_weights
from runner.report.cause_section import reservation, sentence, told
from runner.report.diagnosis_sections import left_out
from runner.report.result_parts import Cause, Count, Plan, Statistics
from runner.report.summary import Summary
from runner.run_folder import MIXED
from runner.text import counted, listed, one_line, percent, with_inside
from strategies.search import Claim

# What the nodes of an answer look like: operator, dtypes and shapes, from the model that was handed over.

_MOST = 3
_MOST_INPUTS = 4
_LONGEST = 120
_LARGEST = 256 << 20
_NAMES = {"FLOAT": "float32", "DOUBLE": "float64"}


def looks(path: Path, names: Collection[str]) -> list[str]:
    """Return what nodes look like, as ``MatMul float16 [8, 1024] x [1024, 1024]``: the most frequent first.

    They are those with the ``names``, or all where the file knows none of these (a reduced model may have others).
    Nothing where no model can be read there.
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
    nodes = [node for called, node in _named(model.graph.node) if called & wanted] or [*model.graph.node]
    if len(nodes) > 2 * len(names) + _MOST_INPUTS:  # not the answer's alone
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
    operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
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
    declared: Iterable[ValueInfoProto] = (*graph.value_info, *graph.input, *graph.output)
    known = {one.name: _declared(one) for one in declared if one.type.HasField("tensor_type")}
    made = {
        node.output[0]: _of(attribute.t)
        for node in graph.node
        for attribute in node.attribute
        if node.op_type == "Constant" and attribute.name == "value" and node.output
    }
    return known | made | {one.name: _of(one) for one in graph.initializer}


def _declared(value: ValueInfoProto) -> tuple[str, str]:
    kind = value.type.tensor_type
    dims = [str(one.dim_value) if one.HasField("dim_value") else one.dim_param or "?" for one in kind.shape.dim]
    return _dtype(kind.elem_type), f"[{', '.join(dims)}]" if kind.HasField("shape") else "?"


def _of(tensor: TensorProto) -> tuple[str, str]:
    return _dtype(tensor.data_type), str(list(tensor.dims))


def _dtype(number: int) -> str:
    names = {value: name for name, value in TensorProto.DataType.items()}
    name = names.get(number, "") if number else ""
    return _NAMES.get(name, name.lower())


#: names on the first line, names in all, characters of those on the first line
_FIRST_NAMES, _MOST_NAMES, _LONGEST_NAMES = 3, 10, 96
_MOST_WARNINGS = 3
_LONGEST_REASON = 200
#: characters of a message in which reasons are looked for; a damaged file's may be megabytes long
_LONGEST_MESSAGE = 20_000
#: what a user has changed in a replay stands behind the other warnings
_OF_LITTLE_NEWS = "not as recorded: "
_MOST_FILES = 3
#: where there is an answer, verdicts that are not known are told of from this share of all on
_MANY = 0.2
#: strategies whose checks are counted before they begin; a search depends on what it finds
_KNOWN_CHECKS = frozenset({"repeat", "layerwise", "workaround"})
#: what is opened first, the best first
_FILES = ("report.html", "REPORT.md", "bundle.zip", "repro.py")
#: what a message says of going on, which a screen has as a command
_ONWARD = re.compile(r"(interrupted; )|(; )?go on with:? (.* )?'?resume=\S*", re.DOTALL)
#: what a message says of nodes that are not shown to be the cause
_FAIL_ALONE = re.compile(r"\d{1,9} nodes? fails? alone")
_CLAIMS: Mapping[str, str] = {
    Claim.ONE_MINIMAL.value: "1-minimal: none of it can be left out",
    Claim.WINDOW.value: "a window: of what lies between its ends some may not be needed",
    Claim.RANKED.value: "the shortest prefix of a ranking: some of it may not be needed",
    Claim.SMALLEST_SEEN.value: "the smallest seen: nothing is proven of its elements",
    Claim.GROWN.value: "grown until it sufficed: some of it may not be needed",
    Claim.BUDGET.value: "the best so far: the search was stopped",
    Claim.COUNTED.value: "",
}
#: endings of which the nodes are told: the answer, or the best so far
_NAMED = ANSWERED | {Status.interrupted}
_FAILED_TO_RUN = frozenset({Status.usage, Status.internal_error, Status.no_room})


def headline(result: Summary, *, most: int = _FIRST_NAMES, above: bool = False) -> str:
    """Return the status, the first names with their number, and the message: one line, or a few. ``above``: rows."""
    status, message = result.status, result.message
    after, before = result.nodes_after, result.nodes_before
    # a precision run counts the nodes that were left in high precision, which is no finding
    nodes = f"{after} of {before} nodes" if after is not None and status != Status.nothing_to_find else ""
    names = _names(result.culprits)
    answer = listed(names, most + (len(names) == most + 1)) if status in _NAMED else ""  # "1 more" is no shorter
    nested = _names(result.nested)
    answer = with_inside(answer, len(names), listed(nested, most + (len(nested) == most + 1)))
    nodes = f"{answer} ({nodes})" if answer and nodes else answer or nodes
    cause = result.cause
    if answer and (reserved := reservation(cause)):
        nodes = f"{'fails' if len(names) == 1 else 'fail'} alone, but {reserved}: {nodes}"
    if answer and cause and (reservation(cause) or (above and cause.status == "untested")):
        message = _without_cause(message, cause)
    message = without_advice(message) if status == Status.interrupted else message
    what = "; ".join(part for part in (nodes, message) if part)
    return (f"{status}: {what}" if what else str(status)).replace(
        "\n", "\n  "
    )  # no line of it passes for the last word


def without_advice(message: str) -> str:
    """Return the message of an interrupted run without what a command beside it says better."""
    return _ONWARD.sub("", message).strip("; ")


def _without_cause(message: str, cause: Cause) -> str:
    """Return a message without what the first words of its line and the row on the cause say."""
    why = f" ({cause.reason})" if cause.reason else ""
    parts = message.replace(f"cause: {cause.status}{why}", "", 1).split("; ")
    return "; ".join(part for part in parts if part and not _FAIL_ALONE.fullmatch(part))


def say_ended(
    result: Summary, folder: Path, program: Sequence[str], *, number: int | None = None, refused: bool = False
) -> None:
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
        onward = [] if number is not None else [*_next(result, folder, program)]
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
        write(first, [*rows(result, folder, program)], tone, error=error)


def rows(result: Summary, folder: Path, program: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of a screen below its first line."""
    for name, nodes in (("also", _names(result.culprits)), ("inside", _names(result.nested))):
        if result.status in _NAMED and len(nodes) > _FIRST_NAMES + 1:
            yield Row(name, listed(nodes[_FIRST_NAMES:], _MOST_NAMES - _FIRST_NAMES), most=6)
    yield from _rows_of("cause", _cause(result), most=5)
    yield from _rows_of("sure", "; ".join(_sure(result)))
    yield from _rows_of("seen", result.seen)
    yield from _rows_of("looks", _looks(result, folder), most=4)
    yield from _rows_of("helps", _helps(result))
    yield from _rows_of("plan", _plan(result.plan, result.strategy), most=6)
    yield from _rows_of("rate", _rate(result.statistics))
    yield from _rows_of("unknown", _unknown(result))
    yield from _rows_of("checks", _checks(result))
    warnings = sorted(result.warnings, key=lambda one: one.startswith(_OF_LITTLE_NEWS))
    shown = warnings if len(warnings) <= _MOST_WARNINGS else warnings[: _MOST_WARNINGS - 1]
    for one in shown:
        yield Row("warning", one, "warning", most=2)
    if len(warnings) > len(shown):
        more = counted(len(warnings) - len(shown), "more warning")
        yield Row("", f"{more} in REPORT.md", "warning")
    for at, path in enumerate(_files(result, folder)):
        yield Row("" if at else "open", shown_path(path), whole=True)
    yield from _next(result, folder, program)


def _rows_of(name: str, text: str, most: int = 3) -> list[Row]:
    return [Row(name, text, most=most)] if text else []


def _next(result: Summary, folder: Path, program: Sequence[str]) -> Iterator[Row]:
    command, what = next_command(result, folder, program)
    if command:
        yield Row("next", command, "strong", whole=True)
        yield Row("", f"({what})")


def _names(names: Sequence[str]) -> list[str]:
    return [short(name, _LONGEST_NAMES // min(len(names), _FIRST_NAMES)) for name in names]


def _cause(result: Summary) -> str:
    cause = result.cause
    if cause is None:
        return ""
    if reservation(cause) and cause.reason:
        return f"not proven: {cause.reason}"  # what that means is said in the first line
    return sentence(cause).removeprefix("Cause: ") if told(cause) else ""


def _sure(result: Summary) -> Iterator[str]:
    """Yield how minimal the answer is, and what repeats have shown of the check."""
    claim = result.minimality or ""
    if (said := _CLAIMS.get(claim, claim)) and (claim != Claim.BUDGET.value or result.culprits):
        yield said
    shown = result.reliability
    if shown and shown.agreed and shown.noticed_with is not None:
        yield (
            f"{counted(shown.agreed, 'repeat')} of checks agreed (a check that is wrong {(shown.wrong or 0) * 10:g} "
            f"times in 10 would have been noticed with {percent(shown.noticed_with)})"
        )
    if shown and shown.whole_model and shown.whole_model.of:
        whole, control = shown.whole_model, shown.control or Count()
        yield (
            f"the check is flaky: the whole model failed {whole.failed} of {whole.of} times, what must pass "
            f"{control.failed} of {control.of}; answers are wrong with at most {shown.max_wrong or 0:.0%}"
        )


def _looks(result: Summary, folder: Path) -> str:
    model, names = result.model, result.culprits
    if result.status not in ANSWERED or not model or not names or not inside(folder / model, folder):
        return ""
    return "\n".join(looks(folder / model, names))


def _helps(result: Summary) -> str:
    meant = result.workarounds
    tried = [one for one in meant if one.tried]
    passing = [one for one in tried if one.passes]
    own = result.strategy == "workaround"  # then the first line says what was not tried, and that none helps
    left = f"{len(meant) - len(tried)} could not be tried: {left_out(meant)}" if len(tried) < len(meant) else ""
    rows = [listed([one.what for one in passing])] if passing else []
    if tried and not passing and not own:
        rows = [f"none of {counted(len(tried), 'workaround')} that were tried"]
    if where := next(filter(None, (one.where for one in passing)), ""):
        rows.append(f"(seen {where}; target.rounding=on tries them as a GPU rounds, which was not done)")
    return "\n".join([*rows, *([left] if left and not own else [])])


def _plan(plan: Plan | None, strategy: str) -> str:
    if not plan:
        return ""
    return (
        f"search: {_search(counted(plan.search_checks, 'check'), strategy)}\n"
        f"trust: {counted(plan.trust_checks, 'check')} (what is handed over, and repeats)\n"
        f"time: {duration(plan.seconds)} ({plan.seconds_each:.3g} s a check)\n"
        f"disk: {plan.disk_mb:.1f} MB at most, {plan.disk_left_mb:.1f} MB stay"
    )


def _search(checks: str, strategy: str) -> str:
    if strategy in _KNOWN_CHECKS:
        return f"up to {checks}"
    return f"about {checks} if one element is to blame, a multiple of that where several are"


def duration(seconds: float) -> str:
    """Return a time as a person says it: ``42 s``, ``1 min 40 s``, ``12 min``, ``3 h 20 min``."""
    if round(seconds) < 90:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    if round(seconds) < 180:
        return f"{round(seconds) // 60} min {round(seconds) % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _rate(statistics: Statistics | None) -> str:
    if not statistics or statistics.pass_rate is None or not statistics.pass_rate_95:
        return ""
    between = " to ".join(f"{one:.0%}" for one in statistics.pass_rate_95)
    passed, judged = statistics.passed or 0, statistics.judged or 0
    return f"{passed} of {judged} passed: {statistics.pass_rate:.0%} (95 % interval: {between})"


def _unknown(result: Summary) -> str:
    """Return why verdicts are not known: the most frequent reasons, more of them where that was the end.

    A reason that the first line has given is not given again.
    """
    reasons, total = result.unresolved, sum(result.unresolved.values())
    if not total or (result.status in ANSWERED and total < _MANY * sum(result.outcomes.values())):
        return ""
    most = 3 if result.status == Status.could_not_judge else 1
    message = one_line(result.message, _LONGEST_MESSAGE)
    told = [reason for reason in reasons if reason in message]
    new = [reason for reason in reasons if reason not in told]
    shown = [f"{sum(reasons[reason] for reason in told)} x the reason{'s' * (len(told) > 1)} above"] if told else []
    shown += [f"{reasons[reason]} x {short(reason, _LONGEST_REASON)}" for reason in new[:most]]
    if not new:
        return f"{counted(total, 'verdict')}, for the reason{'s' * (len(told) > 1)} above"
    return f"{counted(total, 'verdict')}; most often:\n" + "\n".join(shown)


def _checks(result: Summary) -> str:
    kinds = {name: getattr(result.checks, name) for name in ("search", "refine", "cause", "trust", "reused")}
    if not any(kinds.values()):
        return ""
    spent = duration(result.seconds.total)
    return f"{', '.join(f'{times} {name}' for name, times in kinds.items() if times)}; {spent} in all"


def _files(result: Summary, folder: Path) -> list[Path]:
    there = [folder / name for name in _FILES if (folder / name).is_file()]
    model = result.model
    more = [folder / model] if model and inside(folder / model, folder) and (folder / model).is_file() else []
    most = _MOST_FILES + (model == f"{MIXED}.onnx")  # which is what was asked for
    return [*there, *more][:most] or [_report(result, folder)]


def _report(result: Summary, folder: Path) -> Path:
    names = ("result.json",) if result.exit_code == Status.usage.exit_code else ("REPORT.md", "result.json")
    return next((path for name in names if (path := folder / name).exists()), folder)
