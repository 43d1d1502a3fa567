"""What happens, as a maintainer reads it: title, sentence, expected and actual values, what was printed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from onnx import ModelProto

from runner.judgment import Status
from runner.model.values.dtype_ranges import range_of
from runner.model.values.dtypes import BY_NUMPY
from runner.report.markup import block, code, section, some, table, text
from runner.report.page.data import PageTensor, PageValues
from runner.report.sections.cause_section import NOT_THE_TARGET, reservation
from runner.report.sections.model_section import operator_of
from runner.report.sections.runtimes_section import runtime
from runner.report.summary import Summary
from runner.text import counted, listed, one_line, with_inside

_COLORS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_MOST_ELEMENTS, _MOST_TENSORS, _MOST_SAID = 8, 3, 3000
_LONGEST_SAID = 80
"""Characters of a title that are what a check printed."""
_NOT_FINITE = ("nan", "inf")
_WHEN: Mapping[str, str] = {"load": "when it is loaded", "build": "when it is built", "infer": "when it runs"}
_STAGES: Mapping[str, str] = {"infer": "run"}
_WORDS: Mapping[str, tuple[str, str]] = {
    "nan": ("NaN in the output", "gives NaN"),
    "inf": ("Inf in the output", "gives Inf"),
    "mismatch": ("wrong values", "gives wrong values"),
    "shape": ("wrong shape of an output", "gives an output of a wrong shape"),
    "timeout": ("does not end", "does not end within the time that the check gives it"),
    "memory": ("takes too much memory", "takes more memory than the check gives it"),
    "death MEMORY": ("crash (bad memory access, or abort)", "crashes the process (bad memory access, or abort)"),
    "listed exit": ("a check fails", "makes the check end with an exit code that stands for failure"),
    "regex": ("a check fails", "makes the check print what stands for failure"),
    "returned fail": ("a check fails", "makes the check say that it fails"),
    "raised": ("a check fails", "makes the check raise an exception"),
}
"""A failure by its kind: for a title, and for a sentence about a model."""


def title(summary: Summary, model: ModelProto | None) -> str:
    """Return the title of a report on a part of a model that fails: what happens, on what, with which operators."""
    signature = summary.signature or {}
    what = signature.get("raised") or _words(signature)[0] + quoted(summary)
    where = runtime(summary, "target")
    about = some(operators(model)) if model and len(model.graph.node) else some(summary.culprits)
    if summary.nested:
        about += f" ({with_inside(some(summary.culprits), len(summary.culprits), some(summary.nested))})"
    doubts = reservation(summary.cause), NOT_THE_TARGET.get(summary.whose or "", "")
    reserved = "".join(f" ({said})" for said in doubts if said)
    return f"{text(what)}{f' with {text(where)}' if where else ''}: {about}{reserved}"


def quoted(summary: Summary) -> str:
    """Return what a check of the user's said, for a title, after what happens; "" where it said nothing of its own."""
    signature = summary.signature or {}
    if signature.get("stage") != "check" or not signature.get("detail") or signature.get("raised"):
        return ""
    said = one_line(summary.said, _LONGEST_SAID)
    return f': "{said}"' if said else ""


def operators(model: ModelProto) -> list[str]:
    """Return the operators of a model, each once."""
    return list(dict.fromkeys(operator_of(node) for node in model.graph.node))


def called(failure: str) -> str:
    """Return the title of a failure that is told as its stage and kind, ``infer: nan``."""
    stage, _, kind = failure.partition(": ")
    return _words({"stage": stage, "kind": kind})[0]


def what_happens(summary: Summary, model: ModelProto | None, tensors: Sequence[PageTensor] = ()) -> str:
    """Return a sentence: what the reduced model does where, and what it does elsewhere. ``tensors``: values in it."""
    signature, told = summary.signature or {}, summary.evidence
    size = len(model.graph.node) if model else summary.nodes_after or len(summary.culprits)
    of = listed([code(one) for one in operators(model)], 6) if model else ""
    subject = of if of and size == 1 else f"A model of {counted(size, 'node')}{f' ({of})' if of else ''}"
    where, reference = (runtime(summary, side, told_apart=True) for side in ("target", "reference"))
    named = f" in {code(str(told['output']))}" if told.get("output") else ""
    said = f"{subject} {text(_words(signature)[1])}{named}{f' with {text(where)}' if where else ''}"
    compared = signature.get("stage") == "compare" and reference
    too = signature.get("kind") in _NOT_FINITE and (told.get("reference") == "non-finite" or _both(tensors, told))
    said += f", compared with {text(reference)}" if compared else ""
    if too:
        other = "the reference" if compared or not reference else text(reference)
        said += f"; {other} gives NaN or Inf there as well: this part alone shows no bug of the runtime"
    elif not compared and where and reference and (other := _elsewhere(signature, told)):
        said += f"; {text(reference)} {other}"
    return f"{said}."


def failure_section(
    summary: Summary, tensors: Sequence[PageTensor] = (), said: str = "", *, whole: bool = False
) -> str:
    """Return the section: expected and actual values, what was measured, and the check.

    ``tensors``: values of the reduced model. ``said``: what the check printed about it. ``whole``: the failure is that
    of the whole model, which nothing else says.
    """
    if not summary.signature:
        return ""
    measured = _measured(summary.evidence)
    reason = str(summary.evidence.get("reason") or "") or summary.signature.get("detail", "")
    judged = f"Judged by {code(summary.checker)}:" if summary.checker else "The check:"
    printed = _end(said, f"{summary.signature.get('stage')}: {summary.signature.get('kind')}")
    about = [one for one in tensors if one["differences"]][:_MOST_TENSORS]
    odd = [one for one in tensors if one["wrong"] and (one["wrong"]["nan"] or one["wrong"]["inf"])][:_MOST_TENSORS]
    where = runtime(summary, "target") if whole else ""
    parts = [
        f"{_whole(summary)} {text(_words(summary.signature)[1])}{f' with {text(where)}' if where else ''}."
        if whole
        else "",
        *map(_differences, about),
        *map(_not_finite, [] if about else odd),
        text(measured),
        "" if about or odd or measured or reason in said else block(reason),
        f"It printed:\n\n{block(printed, 'text')}" if printed and not about else "",
        f"{judged}\n\n{block(summary.check)}" if summary.check else "",
    ]
    shown = "Expected and actual values" if about or odd or measured else "What was seen"
    return section(shown, "\n\n".join(part for part in parts if part))


def _whole(summary: Summary) -> str:
    """Return what it is that fails where a whole model does: a precision search judges what it makes of the file."""
    context = summary.context
    if context.get("subject.kind") != "precision":
        return "The model"
    failed = context.get("subject.high" if summary.status == Status.no_set_suffices else "subject.low", "")
    return f"The model with everything in {text('Q/DQ' if failed == 'quantized' else failed)}"


def _words(signature: Mapping[str, str]) -> tuple[str, str]:
    """Return a failure for a title, and for a sentence about the model."""
    stage, kind = signature.get("stage", ""), signature.get("kind", "") or "failure"
    if kind in _WORDS:
        return _WORDS[kind]
    if kind.startswith("error"):
        named = kind.rstrip(" #")  # which stands for a number at the end
        return f"{_STAGES.get(stage, stage)} {named}", f"fails {_WHEN.get(stage, f'at the stage {stage}')} ({named})"
    if kind.startswith("death"):
        return f"crash ({kind.removeprefix('death ')})", f"crashes the process ({kind.removeprefix('death ')})"
    if kind.startswith("exit"):
        return f"a check fails ({kind})", f"makes the check fail ({kind})"
    return kind, f"fails ({stage}: {kind})" if stage else f"fails ({kind})"


def _elsewhere(signature: Mapping[str, str], told: Mapping[str, Any]) -> str:
    """Return what the reference does with the model; "" where that is not known."""
    kind, did = signature.get("kind"), told.get("reference")
    if did == "failed":
        return "cannot run it either"
    if kind in _NOT_FINITE:
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
    more += [f"{share:.3g} of all elements beyond the tolerance"] if isinstance(share, int | float) and share else []
    unit = "share of elements that differ" if told.get("exact") else "error"
    head = f"{told['output']}: " if told.get("output") else ""
    return f"{head}{'; '.join([f'{unit} {error:.4g}, allowed {limit:.4g}', *more])}."


def _differences(tensor: PageTensor) -> str:
    good, wrong = tensor["good"], tensor["wrong"]
    kind = f", {code(_type(wrong))}" if wrong else ""
    size = math.prod((good or wrong or {"shape": []})["shape"])
    count = "" if tensor["differing"] is None else f"{tensor['differing']} of {size} elements differ"
    rows = [
        (f"[{', '.join(map(str, one['index']))}]", _number(one["good"]), _number(one["wrong"]))
        for one in tensor["differences"][:_MOST_ELEMENTS]
    ]
    head = f"{code(tensor['name'])}{kind}{f': {count}' if count else ''}, the worst of them:"
    return f"{head}\n\n{table(('index', 'expected', 'actual'), rows, names=3)}"


def _not_finite(tensor: PageTensor) -> str:
    """Return how much of a tensor is NaN or Inf, on either side."""
    good, wrong = tensor["good"], tensor["wrong"]
    if wrong is None:
        return ""
    mine, theirs = (_counts(side) if side else "" for side in (wrong, good))
    ends = range_of(BY_NUMPY[wrong["dtype"]].number) if wrong["inf"] and wrong["dtype"] in BY_NUMPY else None
    said = f"{code(tensor['name'])}, {code(_type(wrong))}, in the reduced model: {mine} among "
    said += counted(math.prod(wrong["shape"]), "element")
    said += f" ({wrong['dtype']} holds numbers up to {ends[1]:.6g})" if ends else ""
    if theirs == mine:
        return f"{said}; the reference gives as many."
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
    said = _COLORS.sub("", rest if first.startswith(name) else said).strip("\n")
    if len(said) <= _MOST_SAID:
        return said
    tail = said[-_MOST_SAID:]
    return f"...\n{tail.partition(chr(10))[2] or tail}"
