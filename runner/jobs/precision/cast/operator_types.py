"""What schemas say of a node's types: which formal inputs and outputs share a type, and which it may be.

Those of ONNX are known here. What ONNX Runtime adds (``com.microsoft`` and others) it tells itself, in a worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from onnx import NodeProto, TensorProto, defs

from runner.model.graph import scopes
from runner.model.values.dtypes import BY_NAME

_FLOATS = ("float", "float16", "bfloat16", "double")
# operators that look at a tensor's shape or turn it into something else: the type it comes in costs no accuracy
AGNOSTIC = frozenset({"Shape", "Size"})
# operators that make a table of what no activation says; runtimes make it in fp32, whatever the schema allows
TABLES = frozenset({"MelWeightMatrix"})
# operators whose definition in ONNX has constants of fp32, so that no other type is valid, whatever the schema allows
WIDE = frozenset({"MeanVarianceNormalization"})
# operators whose further outputs (a mean, a deviation) have the type that `stash_type` says, whatever comes in
STASHING = frozenset({"LayerNormalization", "RMSNormalization", "GroupNormalization"})


@dataclass(frozen=True)
class Formal:
    """A formal input or output.

    ``variable``: those of one name share a type; ``floats``: float types it may have; ``only``: the one type that it
    can have, 0: there are several.
    """

    variable: str
    floats: frozenset[int]
    only: int = 0


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


@dataclass(frozen=True)
class Schemas:
    """The schemas of a model's operators. ``opsets``: the version of each domain that it imports.

    ``contrib``: by (domain, operator), what `contrib_of` made of ONNX Runtime's own.
    """

    opsets: Mapping[str, int]
    contrib: Mapping[tuple[str, str], Formals] = field(default_factory=dict)

    def of(self, node: NodeProto) -> Formals | None:
        """Return a node's formals; None for an operator whose schema is not known here."""
        return self.onnx(node) or self.contrib.get((scopes.domain_of(node.domain), node.op_type))

    def onnx(self, node: NodeProto) -> Formals | None:
        """Return a node's formals as ONNX defines them; None for an operator that is not ONNX's."""
        domain = scopes.domain_of(node.domain)
        return _formals(node.op_type, self.opsets.get(domain), domain)

    def infers(self, node: NodeProto) -> bool:
        """Whether ONNX's inference says what a node makes; of GroupNormalization, which is its own, it does not."""
        domain = scopes.domain_of(node.domain)
        schema = _schema(node.op_type, self.opsets.get(domain), domain)
        return schema is not None and bool(schema.has_type_and_shape_inference_function)


def contrib_of(schemas: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Formals]:
    """Return the formals of the schemas that the operation ``contrib_schemas`` returns."""
    return {(str(one["domain"]), str(one["op"])): _formals_of(one["inputs"], one["outputs"]) for one in schemas}


def _formals_of(inputs: list[Mapping[str, Any]], outputs: list[Mapping[str, Any]]) -> Formals:
    def formals(group: list[Mapping[str, Any]]) -> tuple[Formal, ...]:
        return tuple(Formal(str(one["variable"]), _floats(one["types"]), _only(one["types"])) for one in group)

    tails = [bool(group) and bool(group[-1]["variadic"]) for group in (inputs, outputs)]
    free = [tail and not group[-1]["homogeneous"] for tail, group in zip(tails, (inputs, outputs), strict=True)]
    return Formals(formals(inputs), formals(outputs), *tails, *free)


@lru_cache(maxsize=4096)
def _schema(op_type: str, version: int | None, domain: str) -> defs.OpSchema | None:
    try:
        return None if version is None else defs.get_schema(op_type, version, domain)
    except defs.SchemaError:
        return None


@lru_cache(maxsize=4096)
def _formals(op_type: str, version: int | None, domain: str) -> Formals | None:
    schema = _schema(op_type, version, domain)
    if schema is None:
        return None
    allowed = {constraint.type_param_str: list(constraint.allowed_type_strs) for constraint in schema.type_constraints}

    def plain(parameter: defs.OpSchema.FormalParameter) -> dict[str, Any]:
        return {
            "variable": parameter.type_str,
            "types": allowed.get(parameter.type_str, [parameter.type_str]),
            "variadic": parameter.option == defs.OpSchema.FormalParameterOption.Variadic,
            "homogeneous": parameter.is_homogeneous,
        }

    return _formals_of([plain(one) for one in schema.inputs], [plain(one) for one in schema.outputs])


def _floats(names: Iterable[object]) -> frozenset[int]:
    texts = {str(name) for name in names}
    return frozenset(BY_NAME[name].number for name in _FLOATS if f"tensor({name})" in texts)


def _only(names: Iterable[object]) -> int:
    """Return the element type that a schema's names of types leave, 0: several, or no tensor."""
    texts = [str(name) for name in names]
    inner = texts[0][len("tensor(") : -1].upper() if len(texts) == 1 and texts[0].startswith("tensor(") else ""
    return int(TensorProto.DataType.Value(inner)) if inner in TensorProto.DataType.keys() else 0  # noqa: SIM118


def _at(formals: tuple[Formal, ...], place: int, tail: bool, free: bool) -> Formal | None:
    last = len(formals) - 1
    if place < last or (place == last and not (tail and free)):
        return formals[place]
    if not tail:
        return None
    return replace(formals[last], variable=f"{formals[last].variable}#{place}") if free else formals[last]
