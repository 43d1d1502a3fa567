"""What happens, on which runtimes, in which model: the sections that a maintainer reads.

What happens, as a maintainer reads it: title, sentence, expected and actual values, what was printed.
"""

from __future__ import annotations

import json
import math
import platform
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto

from runner.exit_codes import Status
from runner.files import read_plain
from runner.judgment import CONVERTED, NON_FINITE, Whose
from runner.model.graph.graph_index import initializers_of
from runner.model.graph.hold_values import FENCES, HOLDS
from runner.model.values.dtypes import BY_NUMPY
from runner.model.values.tensor_bytes import range_of
from runner.report.diagnosis_sections import reservation
from runner.report.document import Block, Code, Section, bullets, code, cut, section, some, table
from runner.report.page.data import PageTensor, PageValues
from runner.report.page.graph_columns import attributes_of, declared, inner_graphs, operator_of, weight_text
from runner.report.result_parts import KnownFailure
from runner.report.summary import Summary
from runner.text import counted, listed, one_line, plain, with_inside
from runner.verdict import OVERFLOW, crash

# The reduced model in a report: as text like that of ONNX, with the types that a page has; weights without values.

MOST_LINES = 200
"""Of a model's text."""
_LONGEST_NAME, _LONGEST_LINE = 100, 400
_MOST_WEIGHTS = 12
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOLD: Mapping[str, tuple[str, str]] = {
    HOLDS: ("holds a good value", "hold good values in place of what is left out"),
    FENCES: ("keeps a fusion from crossing", "keep fusions from crossing"),
}
"""What nodes are for that were put into a model: of one, and of several."""
_CARRY = ("carries the answer's result to the outputs", "carry the answer's result to the outputs")


def model_section(summary: Summary, proto: ModelProto | None, types: Mapping[str, str] | None = None) -> list[Section]:
    """Return the section; none where nothing was reduced. ``types``: of tensors, which the model may not declare."""
    if summary.nodes_after is None:
        return []
    verb = "is" if summary.nodes_after == 1 else "are"
    size = f"{summary.nodes_after} of {summary.nodes_before} nodes {verb} left."
    if summary.nested:
        size = f"Only nodes inside {some(summary.culprits)} are left, of a model of {summary.nodes_before} nodes."
    if proto is not None and (held := _in_place(summary, proto)):
        size = f"The answer is {summary.nodes_after} of {summary.nodes_before} nodes. {held[1]}"
    left: Block | None = bullets(map(code, summary.culprits))
    if proto is not None:
        left = Code("\n".join(model_text(proto, types)))
    nested = ["Nested nodes kept:", bullets(map(code, summary.nested))] if summary.nested else []
    return section("The reduced model", [size, left, *nested])


def _in_place(summary: Summary, proto: ModelProto) -> tuple[str, str] | None:
    """Return the answer in a whole model that holds good values itself; None where it is a part that was cut out.

    First its operators and names, for a title; then what the other nodes do, in a sentence.
    """
    counts = Counter(node.doc_string for node in proto.graph.node if node.doc_string in _TOLD)
    if not counts:
        return None
    names = {*summary.culprits}
    answer = [node for node in proto.graph.node if not names.isdisjoint((node.name, *node.output[:1]))]
    rest = len(proto.graph.node) - len(answer) - counts.total()
    kinds = [(count, _TOLD[kind]) for kind, count in counts.items()] + ([(rest, _CARRY)] if rest else [])
    told = ", and ".join(f"{count} {words[count > 1]}" for count, words in kinds)
    others = f"The model below is the whole one; of its other nodes {told}."
    named = with_inside(some(summary.culprits), some(summary.nested), len(summary.culprits))
    of = some(list(dict.fromkeys(map(operator_of, answer))))
    return f"{of} ({named})" if of else named, others


def model_text(proto: ModelProto, known: Mapping[str, str] | None = None) -> list[str]:
    """Return the lines of a model as text; of too many the first, and dots. ``known``: types, as above."""
    opsets = ", ".join(f"{json.dumps(entry.domain)} : {entry.version}" for entry in proto.opset_import)
    told = [*islice(_graph_lines("", "model", proto.graph, known or {}), MOST_LINES + 1)]
    lines = [cut(" ".join(line.splitlines()), _LONGEST_LINE) for line in told[:MOST_LINES]]  # a name may hold line ends
    more = ["..."] if len(told) > MOST_LINES else []
    return [f"<ir_version: {proto.ir_version}, opset_import: [{opsets}]>", *lines, *more]


def _graph_lines(before: str, called: str, graph: GraphProto, known: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a graph; ``before``: what stands before each; ``known``: types around it."""
    weights = {name: weight_text(one) for name, one in initializers_of(graph).items()}
    types = {**declared(graph), **known}
    inputs, outputs = (
        ", ".join(f"{types.get(one.name, '')} {_name(one.name)}".strip() for one in values)
        for values in (graph.input, graph.output)
    )
    yield f"{before}{called} ({inputs}) => ({outputs})"
    if weights:
        held = ", ".join(f"{kind} {_name(name)}" for name, kind in [*weights.items()][:_MOST_WEIGHTS])
        more = len(weights) - _MOST_WEIGHTS
        yield f"{before}   <{held}{f', and {more} more' if more > 0 else ''}>  # weights"
    yield f"{before}{{"
    for node in graph.node:
        yield from _node_lines(f"{before}   ", node, types)
    yield f"{before}}}"


def _node_lines(before: str, node: NodeProto, types: Mapping[str, str]) -> Iterator[str]:
    name = f"[{_name(node.name)}] " if node.name else ""
    named = zip(node.attribute, attributes_of(node), strict=True)
    given = ", ".join("=".join(told) for one, told in named if not inner_graphs(one))
    told = f"<{given}> " if given else ""
    made = ", ".join(map(_name, node.output))
    kinds = ", ".join(filter(None, (types.get(one, "") for one in node.output)))
    line = f"{before}{name}{made} = {operator_of(node)} {told}({', '.join(map(_name, node.input))})"
    yield f"{line}  # {kinds}" if kinds else line
    for one in node.attribute:
        for graph in inner_graphs(one):
            yield from _graph_lines(f"{before}   ", f"{one.name}:", graph, types)


def _name(name: str) -> str:
    """Return a name as ONNX text has it; line breaks and what no screen shows as escapes."""
    short = cut(name, _LONGEST_NAME)
    return short if _IDENTIFIER.fullmatch(short) or not short else json.dumps(short, ensure_ascii=False)


# What a failure was seen on: the runtimes by name and version, the packages that matter, the GPU if one is used.

_PACKAGES: Mapping[str, tuple[str, ...]] = {
    "onnxruntime": ("onnxruntime",),
    "onnx_reference": ("onnx",),
    "tensorrt": ("tensorrt", "tensorrt_rtx"),
}
"""The packages of a backend, by its name."""
_SIDES = ("target", "reference")
_CALLED: Mapping[str, str] = {
    "onnxruntime": "ONNX Runtime",
    "onnx": "the evaluator of onnx",
    "tensorrt": "TensorRT",
    "tensorrt_rtx": "TensorRT for RTX",
}
_ALWAYS = frozenset({"python", "numpy", "onnx"})
_RUNTIME_WORDS: Mapping[str, str] = {"tensorrt": r"\b(tensorrt|trt|trtexec)\b|--trt\b", "sympy": r"\bimport sympy\b"}
"""What names a package in the text of a check, where that is more than its own name."""
_ROUNDS = ("on", "strict")
"""Settings by which a model that rounds is run in place of the model itself."""
_ON_A_GPU = re.compile(r"cuda|\btrt|tensorrt\b|--gpu", re.IGNORECASE)
_DRIVER = Path("/proc/driver/nvidia")


def runtime(summary: Summary, side: str, *, told_apart: bool = False) -> str:
    """Return what runs on a side (``target``, ``reference``), by name and version; "" where no runtime does.

    That it rounds after every operator, which the runtime itself does not, is said of it.
    ``told_apart``: with what is set otherwise on the other side, where both are the same runtime.
    """
    name = _runtime(summary, side)
    if not told_apart or not name or any(_runtime(summary, one) != name for one in _SIDES):
        rounding = _backend(summary, side).get("rounding") if name else None
        return f"{name} (rounding={rounding})" if rounding in _ROUNDS else name
    mine, other = (_backend(summary, one) for one in (side, *(one for one in _SIDES if one != side)))
    apart = [f"{key}={value}" for key, value in mine.items() if value != other.get(key) and _is_short(value)]
    return f"{name} ({', '.join(apart)})" if apart else name


def _is_short(value: object) -> bool:
    """Whether a setting says something in a few letters; what is off or left to the runtime does not."""
    return value not in ("", "off", "auto") and isinstance(value, (int, float, str)) and len(str(value)) < 40


def _runtime(summary: Summary, side: str) -> str:
    told = _backend(summary, side)
    name = str(told.get("name", ""))
    held = {**summary.versions, **(told.get("versions") or {})}
    package = next(iter(_packages_of(told, held)), "")
    if package not in _CALLED:
        return name
    version = str(held.get(package, "")).partition(" ")[0]
    providers = [one if isinstance(one, str) else next(iter(one), "") for one in told.get("providers") or ()]
    on = f" ({', '.join(providers)})" if providers and providers != ["CPUExecutionProvider"] else ""
    return f"{_CALLED[package]}{f' {version}' if version else ''}{on}"


def versions_section(summary: Summary, check: str = "", driver: Path = _DRIVER) -> list[Section]:
    """Return the section. ``check``: the text of the user's check, which may name packages. ``driver``: the GPUs'."""
    sides = (_backend(summary, side) for side in _SIDES)
    said = "\n".join((*(f"{one.get('name')} {one.get('providers')}" for one in sides), summary.check, check))
    rows = [*relevant(summary, check).items(), ("platform", _system())]
    rows += _graphics(driver) if _ON_A_GPU.search(said) else []
    return section("Versions", [table(("package", "version"), rows)])


def relevant(summary: Summary, check: str = "") -> dict[str, str]:
    """Return the versions of what took part: Python, numpy, onnx, both runtimes, and what the check names."""
    sides = [told for side in _SIDES if (told := _backend(summary, side))]
    used = _ALWAYS.union(*(_packages_of(told, summary.versions) for told in sides))
    used |= set() if sides else {"onnxruntime"}
    said = f"{summary.check}\n{check}"

    def matters(package: str) -> bool:
        own = package.removeprefix("reference.")
        named = _RUNTIME_WORDS.get(own.removesuffix("_rtx"), rf"\b{re.escape(own)}\b")
        return own in used or bool(re.search(named, said, re.IGNORECASE))

    return {name: version for name, version in sorted(summary.versions.items()) if matters(name)}


def _packages_of(told: Mapping[str, Any], held: Mapping[str, str]) -> tuple[str, ...]:
    """Return the packages of a backend; of TensorRT that of the flavor, or the one that is there."""
    name = str(told.get("name", ""))
    packages = _PACKAGES.get(name, (name,) if name else ())
    if name != "tensorrt":
        return packages
    flavor = str(told.get("flavor", "auto"))
    return (flavor,) if flavor in packages else tuple(one for one in packages if one in held)


def _backend(summary: Summary, side: str) -> Mapping[str, Any]:
    """Return the settings of a side as the context of the verdicts has them; nothing where it took no part."""
    try:
        told = json.loads(summary.context.get(side, "{}"))
    except ValueError:
        return {}
    return told if isinstance(told, Mapping) else {}


def _system() -> str:
    """Return the platform as platform.platform() says it, which starts a process to ask for the processor's name."""
    return "-".join((platform.system(), platform.release(), platform.machine(), "with", "".join(platform.libc_ver())))


def _graphics(driver: Path) -> list[tuple[str, str]]:
    """Return the GPUs and their driver as the system's files tell them; no library is asked, and no GPU used."""
    models = [
        line.partition(":")[2].strip()
        for path in sorted(driver.glob("gpus/*/information"))
        for line in read_plain(path).decode("utf-8", "replace").splitlines()
        if line.startswith("Model:")
    ]
    found = re.search(r"Module\s.*?(\d+\.\d[\d.]*)", read_plain(driver / "version").decode("utf-8", "replace"))
    rows = [("GPU", ", ".join(f"{models.count(one)} x {one}" for one in dict.fromkeys(models)))] if models else []
    return rows + ([("NVIDIA driver", found[1])] if found else [])


_MOST_ELEMENTS, _MOST_TENSORS, _MOST_SAID = 8, 3, 3000
_LONGEST_SAID = 80
"""Characters of a title that are what a check printed."""
_WHEN: Mapping[str, str] = {"load": "when it is loaded", "build": "when it is built", "infer": "when it runs"}
_STAGES: Mapping[str, str] = {"infer": "run"}
_WORDS: Mapping[str, tuple[str, str]] = {
    "nan": ("NaN in the output", "gives NaN"),
    "inf": ("Inf in the output", "gives Inf"),
    "mismatch": ("wrong values", "gives wrong values"),
    "shape": ("wrong shape of an output", "gives an output of a wrong shape"),
    "timeout": ("does not end in time", "does not end within the check's time limit"),
    "memory": ("takes too much memory", "takes more memory than the check's limit"),
    "answer": ("a person judges it bad", "fails by a person's judgment"),
    "listed exit": ("a check fails", "makes the check end with an exit code for failure"),
    "regex": ("a check fails", "makes the check print a text for failure"),
    "returned fail": ("a check fails", "makes the check return a failure"),
    "raised": ("a check fails", "makes the check raise an exception"),
}
"""A failure by its kind: for a title, and for a sentence about a model."""


def title(summary: Summary, model: ModelProto | None) -> str:
    """Return the title of a report on a part of a model that fails: what happens, on what, with which operators."""
    what = summary.failure.raised or _words(summary.failure)[0] + quoted(summary)
    named = with_inside(some(summary.culprits), some(summary.nested), len(summary.culprits))
    if summary.whose in CONVERTED or model is None or not model.graph.node:
        return headed(summary, what, named)
    if held := _in_place(summary, model):
        return headed(summary, what, held[0])
    about = some(operators(model, summary.culprits)) + (f" ({named})" if summary.nested else "")
    return headed(summary, what, about)


def headed(summary: Summary, what: str, about: str, *, only_rounded: bool = False) -> str:
    """Return a title: ``what`` happens with which runtime, or whose failure it is instead, and ``about`` which nodes.

    ``only_rounded``: the runtime by itself passes.
    """
    reserved = f" ({said})" if (said := reservation(summary.cause)) else ""
    where = runtime(summary, "target")
    heads: Mapping[str, str] = {
        Whose.CONVERSION: "the conversion changed",
        Whose.QUANTIZATION: "the quantization changed",
        Whose.REFERENCE: "the reference is wrong, not the target:",
        Whose.BOTH: "both sides lose digits:",
    }
    head = heads.get(summary.whose or "") if about else None
    if head is None and summary.whose == Whose.QUANTIZATION:
        head = f"{what}: the quantization costs more than the tolerance"
    elif head is None:
        how = f" with {where}" if where else ""
        how = " where every operator rounds as on a GPU" if only_rounded else how
        own = ", the model's own bug" if summary.whose == Whose.MODEL and not only_rounded else ""
        head = f"{what}{how}{own}{':' if about else ''}"
    return f"{head} {about}{reserved}".strip()


def quoted(summary: Summary) -> str:
    """Return what a check of the user's said, for a title, after what happens; "" where it said nothing of its own."""
    failure = summary.failure
    if failure.stage != "check" or not failure.detail or failure.raised:
        return ""
    said = one_line(summary.said, _LONGEST_SAID)
    quote = f'"{said}"'
    return f": {code(quote)}" if said else ""


def operators(model: ModelProto, names: Collection[str] = ()) -> list[str]:
    """Return the operators of a model, each once; where it has nodes with these ``names``, theirs alone."""
    nodes = [node for node in model.graph.node if node.name in names] or model.graph.node
    return list(dict.fromkeys(operator_of(node) for node in nodes))


def called(failure: str) -> str:
    """Return the title of a failure that is told as its stage and kind, ``infer: nan``."""
    stage, _, kind = failure.partition(": ")
    return _words(KnownFailure(stage, kind))[0]


def what_happens(summary: Summary, model: ModelProto | None, tensors: Sequence[PageTensor] = ()) -> str:
    """Return a sentence: what the reduced model does where, and what it does elsewhere. ``tensors``: values in it."""
    failure, told = summary.failure, summary.evidence
    size = len(model.graph.node) if model else summary.nodes_after or len(summary.culprits)
    of = listed([code(one) for one in operators(model)], 6) if model else ""
    subject = of if of and size == 1 else f"A model of {counted(size, 'node')}{f' ({of})' if of else ''}"
    if model and (held := _in_place(summary, model)):
        subject = f"{held[0]}, in the whole model with good values in place of what comes before,"
    where, reference = (runtime(summary, side, told_apart=True) for side in ("target", "reference"))
    named = f" in {code(str(told['output']))}" if told.get("output") else ""
    said = f"{subject} {_words(failure)[1]}{named}{f' with {where}' if where else ''}"
    compared = failure.stage == "compare" and reference
    too = failure.kind in NON_FINITE and (told.get("reference") == "non-finite" or _both(tensors, told))
    original = "the original in " * ("reference.model" in summary.context)
    said += f", compared with {original}{reference}" if compared else ""
    if too:
        other = "the reference" if compared or not reference else reference
        said += f"; {other} gives NaN or Inf in this part too, so the part shows no bug of the runtime"
    elif not compared and where and reference and (other := _elsewhere(failure, told)):
        said += f"; {reference} {other}"
    return f"{said}."


def failure_section(
    summary: Summary, tensors: Sequence[PageTensor] = (), said: str = "", *, whole: bool = False
) -> list[Section]:
    """Return the section: expected and actual values, what was measured, and the check.

    ``tensors``: values of the reduced model. ``said``: what the check printed about it. ``whole``: the failure is that
    of the whole model, which nothing else says.
    """
    if not summary.signature:
        return []
    measured = _measured(summary.evidence)
    reason = str(summary.evidence.get("reason") or summary.said or summary.signature.detail)
    judged = f"Judged by {code(summary.checker)}:" if summary.checker else "The check:"
    printed = _end(said, f"{summary.signature.stage}: {summary.signature.kind}")
    about = [one for one in tensors if one["differences"]][:_MOST_TENSORS]
    odd = [one for one in tensors if one["wrong"] and (one["wrong"]["nan"] or one["wrong"]["inf"])][:_MOST_TENSORS]
    where = runtime(summary, "target") if whole else ""
    fails = f"{_whole(summary)} {_words(summary.signature)[1]}{f' with {where}' if where else ''}."
    parts: list[Block | None] = [
        fails if whole else "",
        *(part for one in about for part in _differences(one)),
        *(_not_finite(one, _simpler(summary)) for one in ([] if about else odd)),
        measured,
        None if about or odd or measured or reason in said else Code(reason),
    ]
    parts += ["It printed:", Code(printed, "text")] if printed and not about else []
    parts += [judged, Code(summary.check)] if summary.check else []
    return section("Expected and actual values" if about or odd or measured else "What was seen", parts)


def _whole(summary: Summary) -> str:
    """Return what it is that fails where a whole model does: a precision search judges what it makes of the file."""
    context = summary.context
    if context.get("subject.kind") != "precision":
        return "The model"
    failed = context.get("subject.high" if summary.status == Status.no_set_suffices else "subject.low", "")
    if summary.precision and summary.status != Status.no_set_suffices:
        failed = summary.precision.low
    return f"The model with everything in {'quantized form' if failed == 'quantized' else failed}"


def _words(failure: KnownFailure) -> tuple[str, str]:
    """Return a failure for a title, and for a sentence about the model."""
    stage, kind = failure.stage, failure.kind or "failure"
    if stage == OVERFLOW:
        return "Inf inside", "has an Inf inside, though its outputs pass"
    if kind in _WORDS:
        return _WORDS[kind]
    if kind.startswith("error"):
        named = kind.rstrip(" #")  # which stands for a number at the end
        return f"{_STAGES.get(stage, stage)} {named}", f"fails {_WHEN.get(stage, f'at the stage {stage}')} ({named})"
    if died := crash(kind):
        return died, died.replace("crash", "crashes the process")
    if kind.startswith("exit"):
        return f"a check fails ({kind})", f"makes the check fail ({kind})"
    return kind, f"fails ({stage}: {kind})" if stage else f"fails ({kind})"


def _elsewhere(failure: KnownFailure, told: Mapping[str, Any]) -> str:
    """Return what the reference does with the model; "" where that is not known."""
    did = told.get("reference")
    if did == "failed":
        return "cannot run it either"
    if failure.kind in NON_FINITE:
        return "gives finite values" if did == "ran" else ""
    return "runs it" if did == "ran" else ""


def _both(tensors: Sequence[PageTensor], told: Mapping[str, Any]) -> bool:
    """Whether the good values hold as many NaN and Inf as the wrong ones that are told of."""
    about = [one for one in tensors if one["name"] == told.get("output", one["name"])]
    pairs = [(_odd(one["good"]), _odd(one["wrong"])) for one in about if one["good"] and one["wrong"]]
    return any(wrong for _, wrong in pairs) and all(good >= wrong for good, wrong in pairs)


def _odd(values: PageValues | None) -> int:
    return values["nan"] + values["inf"] if values else 0


def _measured(told: Mapping[str, Any]) -> str:
    """Return what a comparison measured on what is handed over, in a sentence."""
    error, limit = told.get("error"), told.get("limit")
    if not isinstance(error, int | float) or not isinstance(limit, int | float):
        return ""
    words = {"max_abs": "largest difference", "max_rel": "largest relative difference"}
    more = [f"{word} {told[key]:.4g}" for key, word in words.items() if isinstance(told.get(key), int | float)]
    share = told.get("fraction")
    if isinstance(share, int | float) and share:
        more.append(f"{'all' if share >= 1 else f'{share * 100:.3g}% of all'} elements beyond the tolerance")
    unit = "share of elements that differ" if told.get("exact") else "error"
    head = f"{told['output']}: " if told.get("output") else ""
    return f"{head}{'; '.join([f'{unit} {error:.4g}, allowed {limit:.4g}', *more])}."


def _differences(tensor: PageTensor) -> list[Block | None]:
    good, wrong = tensor["good"], tensor["wrong"]
    kind = f", {code(_type(wrong))}" if wrong else ""
    size = math.prod((good or wrong or {"shape": []})["shape"])
    count = "" if tensor["differing"] is None else f"{tensor['differing']} of {size} elements differ"
    rows = [
        (f"[{', '.join(map(str, one['index']))}]", _number(one["good"]), _number(one["wrong"]))
        for one in tensor["differences"][:_MOST_ELEMENTS]
    ]
    head = f"{code(tensor['name'])}{kind}{f': {count}' if count else ''}, the worst of them:"
    return [head, table(("index", "expected", "actual"), rows, names=3)]


def _simpler(summary: Summary) -> str:
    """Return that the reduced model was made simpler, where it was: its values are others than the whole model's."""
    return ", which was made simpler" if "; reduced.onnx has " in summary.message else ""


def _not_finite(tensor: PageTensor, simpler: str) -> str:
    """Return how much of a tensor is NaN or Inf, on either side."""
    good, wrong = tensor["good"], tensor["wrong"]
    if wrong is None:
        return ""
    mine, theirs = (_counts(side) if side else "" for side in (wrong, good))
    ends = range_of(BY_NUMPY[wrong["dtype"]].number) if wrong["inf"] and wrong["dtype"] in BY_NUMPY else None
    said = f"{code(tensor['name'])}, {code(_type(wrong))}, in the reduced model{simpler}: {mine} among "
    said += counted(math.prod(wrong["shape"]), "element")
    said += f" ({wrong['dtype']} holds numbers up to {ends[1]:.6g})" if ends else ""
    if theirs == mine:
        return f"{said}; the reference has as many."
    return f"{said}; expected: {theirs}." if theirs else f"{said}."


def _counts(values: PageValues) -> str:
    """Return how many elements are NaN and Inf, in words."""
    kinds = ((values["nan"], "NaN"), (values["inf"], "Inf"))
    return " and ".join(f"{count} {kind}" for count, kind in kinds if count) or "no NaN and no Inf"


def _type(values: PageValues) -> str:
    return f"{values['dtype']}[{', '.join(map(str, values['shape']))}]"


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.9g}"


def _end(said: str, name: str) -> str:
    """Return the end of an output, where the error stands, from the start of a line; not the failure's ``name``."""
    first, _, rest = said.partition("\n")
    said = plain(rest if first.startswith(name) else said).strip("\n")
    if len(said) <= _MOST_SAID:
        return said
    tail = said[-_MOST_SAID:]
    return f"...\n{tail.partition(chr(10))[2] or tail}"
