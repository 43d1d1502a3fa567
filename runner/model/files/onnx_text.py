"""A model as ONNX text, where that says all of it: the text is parsed again, and has to give the same model.

The syntax is that of https://github.com/onnx/onnx/blob/main/docs/Syntax.md. `onnx.printer` and `onnx.parser` are native
code, so this runs in a worker; which text an interpreter's onnx can read, that interpreter tells.
"""

# runs under Python 3.8 (and so without subscripted builtins)
# ruff: noqa: UP006, UP035
from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Tuple

from onnx import GraphProto, ModelProto, TensorProto

from runner.model.values.tensor_bytes import raw_bytes, set_raw

WIDTH = 88
"""Columns of a line, where its tokens allow that: of one that is written as a string, without the quotes."""
# what no runtime looks at
_REMARKS = ("doc_string", "metadata_props", "producer_name", "producer_version", "model_version")
_SIGNS = "@~^"
_SCOPES = re.compile(r'"((?:[\w:-]*[/.])+)')
_LONGEST = 80
"""Characters of a beginning that is written as a sign: one line holds it."""
_WORDS = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^\s"])+')


class ModelText(NamedTuple):
    """A model as text. ``lines``: with signs in it. ``prefixes``: what each sign stands for; replaced in this order."""

    lines: List[str]
    prefixes: Dict[str, str]

    def whole(self) -> str:
        """Return the text without signs."""
        text = "\n".join(self.lines)
        for sign, prefix in self.prefixes.items():
            text = text.replace(sign, prefix)
        return text


def print_model(args: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the ``text`` of the model at ``args["model"]``, and in ``why`` what text cannot say of it.

    ``text``: the fields of `ModelText`, or none of them where there is something that text cannot say.
    Names of graphs, and remarks, count as nothing.
    """
    model = ModelProto.FromString(Path(str(args["model"])).read_bytes())
    try:
        text = text_of(model)
    except Exception as error:  # noqa: BLE001 - whatever the printer and the parser do not take
        return {"text": [], "why": f"{type(error).__name__}: {error}"}
    return {"text": list(text), "why": ""}


def text_of(model: ModelProto) -> ModelText:
    """Return the text of a model. Raises ValueError (or what the parser raises) where none says all of it."""
    import onnx.parser  # noqa: PLC0415 - native
    import onnx.printer  # noqa: PLC0415

    wanted = bare(model)
    text, prefixes = _with_signs(onnx.printer.to_text(wanted))
    head, found, rest = text.partition("\n>\n")
    whole = [" ".join(map(str.strip, [*head.split("\n"), ">"])), *rest.split("\n")] if found else text.split("\n")
    made = ModelText([piece for line in whole for piece in wrapped(line)], prefixes)
    parsed = bare(onnx.parser.parse_model(made.whole()))
    # as bytes: of messages, 0 equals -0, and NaN nothing
    if parsed.SerializeToString(deterministic=True) != wanted.SerializeToString(deterministic=True):
        raise ValueError("the text of this model is that of another one")
    return made


def _with_signs(text: str) -> Tuple[str, Dict[str, str]]:
    """Return a text with signs for what many names begin with, where that spares lines; and what they stand for.

    Exporters put the scopes of a module before each name. The one that takes most room is replaced first.
    """
    prefixes: Dict[str, str] = {}
    for sign in _SIGNS:
        times = Counter(scopes[:_LONGEST] for scopes in _SCOPES.findall(text))
        room = {prefix: (len(prefix) - 1) * count for prefix, count in times.items()}
        best = max(room, key=lambda prefix: (room[prefix], prefix), default="")
        if sign in text or room.get(best, 0) < 2 * WIDTH:
            break
        text, prefixes = text.replace(best, sign), {sign: best, **prefixes}
    return text, prefixes


def bare(model: ModelProto) -> ModelProto:
    """Return a copy without remarks and what is set and says nothing, all graphs of one name, all tensors' data raw."""
    copy = ModelProto()
    copy.CopyFrom(model)
    _strip(copy)
    return copy


def wrapped(line: str) -> List[str]:
    """Return a line in lines that are no longer than `WIDTH`, broken where the text has a space."""
    words, indent = _WORDS.findall(line), line[: len(line) - len(line.lstrip())]
    if _columns(line) <= WIDTH or not words:
        return [line.rstrip()] if words else []
    lines = [indent + words[0]]
    for word in words[1:]:
        if _columns(f"{lines[-1]} {word}") <= WIDTH:
            lines[-1] += " " + word
        else:
            lines.append(f"{indent}   {word}")
    return lines


def _columns(line: str) -> int:
    return len(repr(line)) - 2


def _strip(message: Any) -> None:
    for field, value in message.ListFields():
        if field.name in _REMARKS or (isinstance(value, str) and not value):
            message.ClearField(field.name)
        elif field.message_type is not None:
            for one in [value] if hasattr(value, "ListFields") else value:
                _strip(one)
    if isinstance(message, GraphProto):
        message.name = "g"
    elif isinstance(message, TensorProto) and raw_bytes(message) is not None:
        set_raw(message, raw_bytes(message))
