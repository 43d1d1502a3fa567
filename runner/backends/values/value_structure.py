"""What a value is made of: a tensor, or a sequence, an optional or a map of such.

A structure is a plain tuple, which JSON keeps as lists: ``("tensor", dtype)``, ``("sequence", inner)``,
``("optional", inner)``, ``("map", dtype of the keys, inner)``; dtypes are ``onnx.TensorProto.DataType`` numbers.
"""

# runs under Python 3.8 (and so without subscripted builtins)
# ruff: noqa: UP006, UP035
from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, Tuple, Union

from runner.backends.values.tensor_proto import Tensor
from runner.model.values.dtypes import BY_NAME

Structure = Tuple[Any, ...]
# a sequence is a list, an optional without a value None, a map a dict
Value = Union[Tensor, List[Any], Dict[Any, Any], None]  # noqa: UP007 - read when the module is

_FORMS = {"seq": "sequence", "optional": "optional"}


def parse(text: str) -> Structure | None:
    """Return the structure of a type as ONNX Runtime writes it, ``seq(tensor(float))``; None for what is not known."""
    match = re.match(r"^(\w+)\((.*)\)$", text)
    if not match:
        return None
    word, rest = match.groups()
    if word == "tensor":
        return ("tensor", BY_NAME[rest].number) if rest in BY_NAME else None
    if word == "map":
        key, _, rest = rest.partition(",")
        inner = parse(rest)
        return ("map", BY_NAME[key].number, inner) if key in BY_NAME and inner else None
    inner = parse(rest)
    return (_FORMS[word], inner) if word in _FORMS and inner else None


def of_value(value: Value) -> Structure | None:
    """Return the structure that a value shows; None where it is empty or its parts disagree."""
    if isinstance(value, Tensor):
        return ("tensor", value.kind.number)
    if isinstance(value, list):
        inner = {of_value(item) for item in value}
        return ("sequence", inner.pop()) if len(inner) == 1 and None not in inner else None
    return None


def leaves(value: Value) -> Iterator[Tensor]:
    """Yield the tensors of a value, in order."""
    if isinstance(value, Tensor):
        yield value
    elif value is not None:
        for item in value.values() if isinstance(value, dict) else value:
            yield from leaves(item)


def type_text(structure: Structure) -> str:
    """Return a structure as ONNX Runtime writes it."""
    form, inner = structure[0], structure[-1]
    names = {kind.number: name for name, kind in BY_NAME.items()}
    if form == "tensor":
        return f"tensor({names.get(inner, inner)})"
    if form == "map":
        return f"map({names.get(structure[1], structure[1])},{type_text(inner)})"
    return f"{'seq' if form == 'sequence' else form}({type_text(inner)})"
