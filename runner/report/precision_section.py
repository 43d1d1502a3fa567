"""What REPORT.md says of a mixed-precision model: what is raised and why, and how the model is used."""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runner.exit_codes import Status
from runner.report.document import Block, Code, Picture, Section, code, cut, section, some, strong, table
from runner.report.result_parts import Precision
from runner.report.short_answer import OWN_CODE, high_nodes
from runner.report.summary import Summary
from runner.text import counted, listed

_SHARES = {"nodes": "nodes", "flops": "arithmetic", "weights": "weights"}
_MOST_OPS = 6
_MOST_BOUGHT = 3
_MOST_NAMES = 12
_FLAGS = {"float16": "--fp16", "bfloat16": "--bf16"}
# what separates layers in the options of trtexec, or stands for several
_SPECIAL = frozenset(",:*")
_SESSION = """import onnxruntime

session = onnxruntime.InferenceSession({model}, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])"""

_CONVERTER = """import onnx
from onnxruntime.transformers.float16 import convert_float_to_float16
from onnxruntime.transformers.onnx_model import OnnxModel

stays_float32 = {names!r}
made = OnnxModel(convert_float_to_float16(onnx.load({model!r}), keep_io_types=True, node_block_list=stays_float32))
made.remove_cascaded_cast_nodes()  # else values between two of these nodes are rounded to float16
made.save_model_to_file("float16.onnx")"""


_TWO_TURNS = """import onnx
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

int8 = {names!r}
model = onnx.load("original.onnx")  # your float model
others = [node.name for node in model.graph.node if node.name not in int8]
for bits, excluded in ((8, others), (4, int8)):
    tool = MatMulNBitsQuantizer(model, bits=bits, block_size=32, is_symmetric=True, nodes_to_exclude=excluded)
    tool.process()
    model = tool.model.model
onnx.save(model, "int4_int8.onnx")"""


def title(summary: Summary) -> str:
    """Return the report's title for a search that ended with a model; nothing for any other."""
    told = summary.precision
    if not told:
        return ""
    high, of, count = told.high, f"of {summary.nodes_before} {summary.unit}", summary.nodes_after
    if summary.status == Status.nothing_to_find:
        searched = " that were searched" if told.stays_high and not count else ""
        return f"all {f'but {count} {of}' if count else summary.unit}{searched} can be in {_called(told.low)}"
    if summary.status != Status.found or not summary.culprits:
        return ""
    if not (summary.minimality or "").startswith("1-minimal") or told.by_margin:
        return f"{count} {of} are in {high}: {some(summary.culprits)}"
    # nothing was shown of what stays high by request, or for want of a sample
    needed = len(summary.culprits)
    return f"{needed} {of} {'has' if needed == 1 else 'have'} to be in {high}: {some(summary.culprits)}"


_LAYERS = " A layer is a node with all that was quantized around it."


def raised(summary: Summary, told: Precision) -> list[Section]:
    """Return the sections on what is raised, and on how to use the model."""
    parts = ", ".join(f"{told.low_share[key]:.1%} of the {name}" for key, name in _SHARES.items())
    count = f"{summary.nodes_after} of {summary.nodes_before} {summary.unit} are in {told.high}"
    beside = len(told.selected) - (summary.nodes_after or 0)
    if summary.strategy.startswith("precision") and beside > 0:
        count += f", and so {'is' if beside == 1 else 'are'} {counted(beside, 'node')} raised with them"
    otherwise = [(one["setting"], _share(one["error"]), _yes(one["outcome"] == "pass")) for one in told.cures]
    said = [
        f"{count}. In {_called(told.low)}: {parts}." + _LAYERS * bool(told.quantizers),
        _staying(told),
        *_worth(told),
        table(("quantized otherwise, no node raised", "error / tolerance", "passes"), otherwise, names=1),
        table(("node", "op", "why"), _rows(told), names=2),
        Picture("The error of each layer, before and after", told.plot) if told.plot else None,
        f"The error of each layer: {told.layers}" if told.layers else "",
        Picture("The remaining error, by the number of raised nodes", told.curve_plot) if told.curve_plot else None,
    ]
    return [
        *section("Raised nodes", said),
        *section("What it costs to keep each layer high", _bought(told)),
        *section("How to use it", usage(summary, told)),
        *float32_section(summary),
    ]


def cured(told: Precision) -> str:
    """Return the clause about ways to quantize in which the whole model passes."""
    passing = [one for one in told.cures if one["outcome"] == "pass"]
    said = [f"{one['setting']} (error {_share(one['error'])} of the tolerance)" for one in passing]
    return f"; with {' or '.join(said)} no node has to be raised" if said else ""


def per_byte(row: Mapping[str, Any]) -> float:
    """Return the error that a layer makes alone, of what is allowed, for each byte that keeps it high."""
    unknown = math.inf if row["outcome"] in ("fail", "different") else 0.0
    return float(unknown if row["error"] is None else row["error"]) / max(int(row["bytes"]), 1)


def _bought(told: Precision) -> list[Block | None]:
    """Return the layers that make most error when they alone are low, and what it costs to keep them high."""
    timed = any("milliseconds" in one for one in told.alone)
    rows = [
        (
            *(listed(one["nodes"]), _share(one["error"]), f"{one['bytes']:,}"),
            f"{1024 * per_byte(one):.2g}" if one["bytes"] else "",
            *([_milliseconds(one)] if timed else []),
            _yes(one["raised"]),
        )
        for one in told.alone[:_MOST_BOUGHT]
    ]
    if not rows:
        return []
    most = (
        f"The {len(rows)} of {len(told.alone)} layers with the largest error when only that layer is in "
        f"{_called(told.low)}, and the bytes of weights that {told.high} costs. All: {code('precision.alone')} in "
        "result.json."
    )
    titles = (
        "node",
        "error / tolerance alone",
        "bytes",
        "error / tolerance for each KB",
        *(["milliseconds"] if timed else []),
        "raised",
    )
    said: list[Block | None] = [most, table(titles, rows, names=1)]
    dense = sorted((one for one in told.alone if one["bytes"]), key=per_byte, reverse=True)[:_MOST_BOUGHT]
    if dense and dense != [*told.alone[:_MOST_BOUGHT]]:
        said.append(f"The largest error for each byte: {some([listed(one['nodes']) for one in dense], _MOST_BOUGHT)}.")
    if kept := told.within_budget:
        nodes, error = some(kept["nodes"], _MOST_NAMES) or "nothing", _share(kept["error"])
        said.append(f"{code(kept['model'])} keeps {nodes} ({code('strategy.budget')}): error / tolerance {error}.")
    return said


def float32_section(summary: Summary) -> list[Section]:
    """Return the section: by name every node that stays in float32, as text that other tools take.

    None where nothing was shown to need it. Where the given model is the low one, its original is named so.
    """
    told, wider = summary.precision, summary.cause.wider if summary.cause else None
    names = [*(high_nodes(summary) if told else wider.raised if wider else ())]
    high = told.high if told else wider.wider if wider else ""
    if not names or high != "float32" or (told and told.low == "quantized"):
        return []
    model = _high_model(summary)
    excluded = " ".join(shlex.quote(f"^{re.escape(name)}$") for name in names)
    weakly = f"trtexec --onnx={shlex.quote(model)} --fp16"
    blocks: list[Block] = [
        Code("\n".join(names), "text"),
        f"For {strong('ONNX Runtime')}'s converter:",
        Code(_CONVERTER.format(names=names, model=model), "python"),
        f"For {strong('AutoCast')}:",
        Code(f"python -m modelopt.onnx.autocast --onnx_path {shlex.quote(model)} --nodes_to_exclude {excluded}", "sh"),
    ]
    if not told or summary.triage:  # a precision run says more of it
        blocks += [f"For {strong('TensorRT 10')}, weakly typed:"]
        layers = {name: "fp32" for name in names if not _SPECIAL & {*name}}
        blocks += [Code(_with_types(weakly, layers), "sh")]
    return section("What stays in float32", blocks)


def _high_model(summary: Summary) -> str:
    """Return what the model in high precision is called; where it was given as the original, that is its name."""
    given = summary.precision and "reference.model" not in summary.context
    return (given and summary.input_model) or "original.onnx"


def _worth(told: Precision) -> list[Block | None]:
    """Say how much of the tolerance is used up, on samples that were searched and on others."""
    samples, alone = told.samples, told.fails_alone
    named = {"searched": f"{samples.searched} of the search", "held_out": f"{samples.held_out} others"}
    if samples.held_out_are not in (None, "given"):
        named["held_out"] += f" ({samples.held_out_are})"
    rows = [(named[on], _share(one.before), _share(one.after)) for on, one in told.error.items() if on in named]
    said: list[Block | None] = [table(("samples", "error / tolerance, all low", "in the mixed model"), rows)]
    said += (
        [f"The answer was not tried on other samples: {samples.why_not_held_out}."] if samples.why_not_held_out else []
    )
    if told.without_margin is not None:
        few = some(told.without_margin, _MOST_NAMES)
        said.append(
            f"On the samples of the search fewer hold the whole tolerance: {few} ({code('strategy.margin=1')})."
        )
    if samples.passed_held_out is False:
        said.append("The answer fails on samples that the search did not use, so it does not hold for other inputs.")
    if alone.nodes:
        kept, names = "raised too" if alone.raised else "not raised", some(alone.nodes, _MOST_NAMES)
        said.append(
            f"{names}: {kept}. The search found a passing set without them, but each fails when only it is low."
        )
    return said


def _yes(said: bool) -> str:
    return "yes" if said else "no"


def _milliseconds(row: Mapping[str, Any]) -> str:
    return "not known" if row.get("milliseconds") is None else f"{row['milliseconds']:+.3f}"


def _share(share: float | None) -> str:
    return "not finite, or not known" if share is None else f"{share:.3g}"


def usage(summary: Summary, told: Precision) -> list[Block]:
    """Return how the model is built and run with TensorRT and ONNX Runtime."""
    model = summary.model or "mixed.onnx"
    strongly = strong("TensorRT 11 and TensorRT for RTX")
    held = "each tensor already has its type, so no option about precision is needed."
    tensorrt = [
        f"{strongly} always build strongly typed engines; TensorRT 10 does with this option:",
        Code(f"trtexec --onnx={shlex.quote(model)} --stronglyTyped --saveEngine=mixed.engine", "sh"),
        *_weakly_typed(summary, told),
    ]
    refused = f"It is for ONNX Runtime: TensorRT's parser refuses {some(told.tensorrt_refuses, _MOST_OPS)}."
    return [
        f"{code(model)} can be used as it is: {held}",
        *([refused] if told.tensorrt_refuses else tensorrt),
        *_quantizing(told),
        f"{strong('ONNX Runtime')} on a GPU:",
        Code(_SESSION.format(model=repr(model)), "python"),
    ]


def _quantizing(told: Precision) -> list[Block]:
    """Return how quantizers are told what to leave out."""
    if not told.nodes_to_exclude or not (told.quantizers or told.high == "int8"):
        return []
    names, patterns = code("precision.nodes_to_exclude"), code("precision.quantizers.patterns")
    how = (
        f"{names} in result.json for ONNX Runtime; {patterns}, regular expressions, for NVIDIA's ModelOpt and AutoCast"
    )
    said: list[Block] = [f"A quantizer makes a similar model if it leaves these nodes out ({how}):"]
    if "patterns" not in told.quantizers:
        said = [f"To make a similar model again, these nodes in {told.high} ({names} in result.json):"]
    if script := told.quantizers.get("script"):
        said = [f"To quantize again without these nodes ({how}):", Code(f"python {script}", "sh")]
        said.append("This was run, and its model passes." if told.quantizers.get("holds") == "pass" else "")
    elif told.high == "int8":
        said.append(Code(_TWO_TURNS.format(names=list(told.nodes_to_exclude)), "python"))
    else:
        said.append(Code(f"nodes_to_exclude={list(told.nodes_to_exclude)}", "python"))
        said.append("This was not tried, as it is not known what made the quantized model, and on which samples.")
        if more := list(told.quantizers.get("beside", [])):
            said.append("It still quantizes what these read for other nodes. If it fails, leave those out, too:")
            said.append(Code(f"nodes_to_exclude += {more}", "python"))
    if told.quantizers.get("int4_nodes_to_exclude"):
        option = shlex.quote(f"int4_nodes_to_exclude={told.quantizers['int4_nodes_to_exclude']}")
        said += ["ONNX Runtime's GenAI builder:", Code(f"--extra_options {option}", "sh")]
    return said


def again_section(summary: Summary, zipped: str, missing: str, beside: Sequence[str]) -> list[Section]:
    """Return how somebody who has the original makes the same model of it. ``beside``: the files that it takes."""
    name = summary.input_model or "the original"
    files = ", and the check's files" if summary.checker in OWN_CODE else ""
    taken = ", ".join(map(code, beside or [name]))
    said = (
        f"{zipped} holds this report and the recipe that makes {code(summary.model or '')} from {code(name)}{files}. "
        f"It holds no model. Unzip it, put {taken} into {code('bundle/')}, and run:"
    )
    what = "The first lines of mixed.yaml say what else is needed. The search is not repeated."
    lacks = f"{zipped} is not complete: {missing}." if missing else ""
    return section("To make it again", [said, Code("winnow bundle/mixed.yaml", "sh"), what, lacks])


def _weakly_typed(summary: Summary, told: Precision) -> list[Block]:
    """Return the way of TensorRT 10, from the original; nothing for Q/DQ models, whose pairs say it all."""
    flag, precisions = _FLAGS.get(told.low), told.layer_precisions
    if flag is None or not summary.input_model:
        return []
    command = f"trtexec --onnx={shlex.quote(_high_model(summary))} {flag}"
    start = f"{strong('TensorRT 10')} can also build the original, weakly typed"
    if not precisions:
        return [f"{start}:", Code(command, "sh")]
    inside = {*told.inlined, *(one.node for one in told.selected if one.nested)}
    nameless = [name for name in precisions if name in inside or _SPECIAL & {*name} or not name.isprintable()]
    named = {name: kind for name, kind in precisions.items() if name not in nameless}
    shown = _with_types(command, named)
    where = f"the names are those of {code('precision.layer_precisions')} in result.json"
    parts: list[Block] = [f"{start}, with these layers in fixed types ({where}):"]
    parts += [Code(shown, "sh")] if named else []
    if nameless:
        parts.append(
            f"{len(nameless)} of them cannot be named there: they lie in functions or bodies, or their names contain a "
            f"comma, a colon, a star or the like ({some(nameless)}). Build {code(summary.model or '')} instead."
        )
    return parts


def _with_types(command: str, precisions: Mapping[str, str]) -> str:
    """Return a command of trtexec in which layers compute, and give, these types."""
    spec = ",".join(f"{name}:{kind}" for name, kind in precisions.items())
    words = " ".join(shlex.quote(f"--{option}={spec}") for option in ("layerPrecisions", "layerOutputTypes"))
    return f"{command} --precisionConstraints=obey {words}"


def _rows(told: Precision) -> Iterator[tuple[str, str, str]]:
    """Yield a row for each raised node; one for all nodes of what is raised as a whole."""
    whole = {name: group for group in told.groups if group.whole for name in group.raised}
    origins = ((one, told.inlined.get(one.node)) for one in told.selected)
    reasons = {one.node: f"{one.reason} ({origin})" if origin else one.reason for one, origin in origins}
    said = set()
    for one in told.selected:
        group = whole.get(one.node)
        if group is None:
            yield one.node, one.op, reasons[one.node]
        elif group.raised[0] not in said:
            names = group.raised
            said.add(names[0])
            why = f"the block {group.scope} of {len(names)} nodes as a whole; {group.worst}: {reasons[group.worst]}"
            yield f"{cut(names[0], 60)} ... {cut(names[-1], 60)}", "block", why


def _called(low: str) -> str:
    return "quantized form" if low == "quantized" else low


def _staying(told: Precision) -> str:
    """Say which float nodes are in the high type whatever is raised, by operator."""
    counts = Counter(one.op for one in told.stays_high)
    if not counts:
        return ""
    shown = listed([f"{count} {code(op)}" for op, count in counts.most_common()], _MOST_OPS)
    nodes = f"float {'node stays' if counts.total() == 1 else 'nodes stay'}"
    return f"{counts.total()} more {nodes} in {told.high}: {shown}. result.json says why."
