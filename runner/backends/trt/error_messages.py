"""TensorRT's messages as one failure: an error code, and the message without what changes from model to model.

A code alone does not tell failures apart (4 is every misuse, 1 all that its compiler says), so the first sentence
belongs to the kind; names, numbers, shapes, paths and the lines of TensorRT's own source do not.
"""

# runs under Python 3.8 (and so without subscripted builtins)
# ruff: noqa: UP006, UP035
from __future__ import annotations

import re
from typing import Iterable, List, Sequence, Tuple

from runner.backends.errors import StageError

_CODE = re.compile(r"Error Code (\d+): ([A-Za-z ]+?)\s*\(")
# said on machines without a GPU or with an older driver, whatever the model
_NOISE = re.compile(
    r"cudaError ?\d+|CUDA driver version is insufficient|CUDA initialization failure|no CUDA-capable device"
    r"|catchCudaError|^\s*-+ (Begin|End) node|While parsing node number"
)
_UNUSABLE = re.compile(r"driver version is insufficient|initialization failure|no CUDA-capable device")
_RULES: Tuple[Tuple[re.Pattern[str], str], ...] = (
    # who says it: IBuilder::buildSerializedNetwork:, [pass.cpp:337: check_turing_op_compatibility]
    (re.compile(r"\[[^\[\]]*\.(?:cpp|cc|h|cu):[^\[\]]*\]|\b[\w/]+\.(?:cpp|cc|h|cu)(?::\d+)?:?"), " "),
    (re.compile(r"\bI[A-Z]\w+::\w+:"), " "),
    # where: In analyzeShapes at /_src/optimizer/shapeof/graphShapeAnalyzer.cpp:2825
    (re.compile(r"\bIn [\w()~:]+ at \S*"), " "),
    (re.compile(r"`[^`']*[`']|(?<!\w)'[^']*'(?!\w)|\"[^\"]*\"|\{[^{}]*\}"), "_"),
    (re.compile(r"\(See https?:[^)]*\)|https?:\S+"), " "),
    (re.compile(r"(?:/?[\w.~+-]+/){2,}[\w.+-]*"), "_"),
    (re.compile(r"\b0[xX][0-9a-fA-F]+\b"), "#"),
    (re.compile(r"\[[-\d,x\s]*\]|\([-\d,x\s]*\)"), "#"),
    (re.compile(r"[-+]?(?<![A-Za-z\d.])\d+(?:\.\d+)*(?:[eE][-+]?\d+)?"), "#"),
    (re.compile(r"[\s()]+"), " "),
)
# which layer: ITopKLayer node_of_v:
_LAYER = re.compile(r"\bI[A-Z]\w*Layer (?:\(Unnamed [^:]*:|\S+:|_ )")
# (axis >= 0) && "message", or Assertion failed: mode == "linear": Message
_ASSERTIONS = (re.compile(r'&&\s*"(.+)"\s*$'), re.compile(r"^\s*Assertion failed: .*?: (?=[A-Z])(.*)$"))
# a word or a number that may be a node's name: value, zero-point, 16
_WORD = re.compile(r"[A-Za-z]+(?:[ -][A-Za-z]+)*|\d+")
# an engine for another GPU or of another release, or a library that runs on no GPU like this one
_ANOTHER_GPU = re.compile(
    r"cannot run on this GPU|generated on an incompatible device|not compatible with this version"
    r"|[Vv]ersion tag does not match"
)
# said where a flag makes the builder use a GPU that is not there
_CUDA_CALL = re.compile(r"CHECK\(.*CUDA_SUCCESS")
_LONGEST = 100


def parsing(code: str, operator: str, description: str, names: Iterable[str], node: str = "") -> StageError:
    """Return the failure (stage load) of the parser's first error: its code by name, the operator, its description.

    The message ends with a line that names the operator, and the ``node``. Of all operators that it does not know the
    parser itself says no more than "false".
    """
    names = [*names, node] if node else list(names)
    lines = _telling([description if description.strip() != "false" else "the parser does not support it"], names)
    # the first line of several repeats the code and names the node; the next one is the cause
    telling = [line for line in lines if not re.match(r"(Invalid|Unsupported) Node\b", line.strip())] or lines
    _, text = _code_and_words(telling, names)
    at = " ".join(part for part in (operator, f"'{node}'" if node else "") if part)
    message = "\n".join([*lines[:-1], _joined(at, lines[-1] if lines else "")])
    return StageError(
        "load", _joined(" ".join(part for part in (code.rpartition(".")[2], operator) if part), text), message
    )


def building(errors: Sequence[str], printed: Sequence[str], names: Iterable[str], *, gpu: bool = True) -> StageError:
    """Return the failure (stage build) told by the logger's errors, or by what was printed where there are none.

    Where a missing GPU is all that was said, or without one (``gpu=False``) a call to CUDA is what failed, the stage is
    setup: no model is at fault.
    """
    names = list(names)
    lines = _telling(errors, names)
    wanted = next((line for line in [*lines, *printed] if not gpu and _CUDA_CALL.search(line)), None)
    lines = lines or _telling(printed, names)
    if not lines and any("udaError" in text or "CUDA" in text for text in errors):
        if not gpu or any(_UNUSABLE.search(text) for text in errors):
            wanted = errors[0]
        # with a GPU, an error of CUDA is the failure itself
        lines = [line for text in errors for line in text.splitlines()]
    if wanted:
        message = (
            f"this build needs a GPU, and none is usable here ({wanted.strip()[:200]}). TensorRT for RTX builds "
            "without one for the GPUs that are named (compute_capabilities: [SM86]), unless flags want one, as REFIT "
            "and STRIP_PLAN do"
        )
        return StageError("setup", "NoGpu", message)
    if not lines:
        return StageError("build", "Unexplained", "TensorRT built nothing and did not say why")
    return StageError("build", _joined(*_code_and_words(lines, names)), "\n".join(lines))


def unreadable(said: Sequence[str], printed: Sequence[str]) -> StageError:
    """Return the failure (stage infer) of an engine that cannot be read.

    Where this GPU or this release cannot run it, whatever it computes, the stage is setup: no model is at fault.
    """
    wanted = next((line for text in said for line in text.splitlines() if _ANOTHER_GPU.search(line)), None)
    if wanted is None:
        return executing("the engine cannot be read", said, printed, ())
    code = _CODE.search(wanted)
    why = (wanted[code.end() :] if code else wanted).partition(" In ")[0].strip(" ().")
    message = (
        f"engines cannot run here: {why}. Name another GPU (workers.gpus), or what runs on this one "
        "(target=onnxruntime, target.flavor=tensorrt); an engine from a file must have been built by this release "
        "for this kind of GPU"
    )
    return StageError("setup", "WrongGpu", message)


def executing(what: str, said: Sequence[str], printed: Sequence[str], names: Iterable[str]) -> StageError:
    """Return the failure (stage infer) of an engine that cannot be read or does not run; ``what``: in our words.

    On a GPU an error of CUDA is what happened, not noise.
    """
    names = list(names)
    lines = _telling(said, names) or [line for text in said for line in text.splitlines()] or _telling(printed, names)
    kind = _joined(*_code_and_words(lines, names)) if lines else "Unexplained"
    return StageError("infer", kind, "\n".join([what, *(lines or ["TensorRT did not say why"])]))


def _telling(texts: Iterable[str], names: Sequence[str]) -> List[str]:
    """Return the lines that are about the model, whatever its nodes are called."""
    lines = [line for text in texts for line in text.splitlines() if line.strip()]
    return [line for line in lines if not _NOISE.search(_without(line, names))]


def _joined(code: str, words: str) -> str:
    return ": ".join(part for part in (code, words) if part)


def _code_and_words(lines: Sequence[str], names: Iterable[str]) -> Tuple[str, str]:
    """Return the code and the words of the first line that has a code, else of the first line."""
    line = next((line for line in lines if _CODE.search(line)), lines[0] if lines else "")
    match = _CODE.search(line)
    return (match.group(1) if match else ""), essence(line[match.end() :] if match else line, names)


def essence(text: str, names: Iterable[str] = ()) -> str:
    """Return the first sentence of a message without ``names``, numbers, shapes and places; 100 characters at most."""
    text = _LAYER.sub(" ", _without(text, names))
    for assertion in _ASSERTIONS:
        found = assertion.search(text)
        text = found.group(1) if found else text
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    sentences = re.split(r"(?<=[^\s.#_])\. (?=[A-Z(])", text.strip())
    said = [sentence.strip(" ._:;,") for sentence in sentences]
    # the text of a failed CHECK says less than the message after it
    telling = [one for one in said if one and not re.search(r"\bCHECK\b", one)] or [one for one in said if one]
    return re.sub(r"(?:_ )+", "_ ", telling[0]).strip(" _")[:_LONGEST].strip() if telling else ""


def _without(text: str, names: Iterable[str]) -> str:
    """Return a message without names. One that could be a word is only taken for a name where a name stands.

    A candidate that lacks the node would otherwise say something else than one that has it.
    """
    present = sorted({name for name in names if name and name in text}, key=len, reverse=True)
    marked = [re.escape(name) for name in present if not _WORD.fullmatch(name)]
    words = [re.escape(name) for name in present if _WORD.fullmatch(name)]
    if marked:
        text = re.sub(rf"(?<![\w/.-])(?:{'|'.join(marked)})(?![\w/-])(?: *: *)?", "_ ", text)
    if words:
        either = "|".join(words)
        text = re.sub(rf"((?:^|[(:\]]|\bI[A-Z]\w*Layer)\s*)(?:(?:{either}) ?: )+", r"\1_ ", text)
        text = re.sub(rf"\b((?:for|of|in|at) (?:node|layer|tensor|input|output) )(?:{either})(?![\w/-])", r"\1_ ", text)
    return text
