"""What the schemas of ONNX say of a node's types: which formal inputs and outputs share a type, and which it may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from onnx import NodeProto, TensorProto, defs

from runner.model import scopes

# names of tensor types as schemas write them -> onnx.TensorProto.DataType
_NAMES = {
    "float": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "double": TensorProto.DOUBLE,
}
# operators that look at a tensor's shape or turn it into something else: the type it comes in costs no accuracy
AGNOSTIC = frozenset({"Shape", "Size"})
# operators that make a table of what no activation says; runtimes make it in fp32, whatever the schema allows
TABLES = frozenset({"MelWeightMatrix"})
# operators whose further outputs (a mean, a deviation) have the type that `stash_type` says, whatever comes in
STASHING = frozenset({"LayerNormalization", "RMSNormalization", "GroupNormalization"})


@dataclass(frozen=True)
class Formal:
    """A formal input or output. ``variable``: those of one name share a type; ``floats``: float types it may have."""

    variable: str
    floats: frozenset[int]


@dataclass(frozen=True)
class Formals:
    """All of an operator's. ``tail``: the last one stands for all further ones; each then has a type of its own."""

    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    tail_inputs: bool
    tail_outputs: bool
    free_inputs: bool
    free_outputs: bool

    def of_input(self, place: int) -> Formal | None:
        """Return the formal of the input at ``place``; None: there is none."""
        return _at(self.inputs, place, self.tail_inputs, self.free_inputs)

    def of_output(self, place: int) -> Formal | None:
        """Return the formal of the output at ``place``; None: there is none."""
        return _at(self.outputs, place, self.tail_outputs, self.free_outputs)


def formals_of(node: NodeProto, opsets: Mapping[str, int]) -> Formals | None:
    """Return a node's formals; None for an operator whose schema is not known here."""
    domain = scopes.domain_of(node.domain)
    version = opsets.get(domain)
    return None if version is None else _formals(node.op_type, version, domain)


@lru_cache(maxsize=4096)
def _formals(op_type: str, version: int, domain: str) -> Formals | None:
    try:
        schema = defs.get_schema(op_type, version, domain)
    except defs.SchemaError:
        return None
    allowed = {
        constraint.type_param_str: _floats(constraint.allowed_type_strs) for constraint in schema.type_constraints
    }

    def formal(parameter: defs.OpSchema.FormalParameter) -> Formal:
        text = parameter.type_str
        return Formal(text, allowed[text] if text in allowed else _floats([text]))

    variadic = defs.OpSchema.FormalParameterOption.Variadic
    inputs, outputs = list(schema.inputs), list(schema.outputs)
    return Formals(
        tuple(map(formal, inputs)),
        tuple(map(formal, outputs)),
        bool(inputs) and inputs[-1].option == variadic,
        bool(outputs) and outputs[-1].option == variadic,
        bool(inputs) and inputs[-1].option == variadic and not inputs[-1].is_homogeneous,
        bool(outputs) and outputs[-1].option == variadic and not outputs[-1].is_homogeneous,
    )


def _floats(names: object) -> frozenset[int]:
    texts = {str(name) for name in names}  # type: ignore[attr-defined]
    return frozenset(int(dtype) for name, dtype in _NAMES.items() if f"tensor({name})" in texts)


def _at(formals: tuple[Formal, ...], place: int, tail: bool, free: bool) -> Formal | None:
    last = len(formals) - 1
    if place < last or (place == last and not (tail and free)):
        return formals[place]
    if not tail:
        return None
    return Formal(f"{formals[last].variable}#{place}", formals[last].floats) if free else formals[last]
