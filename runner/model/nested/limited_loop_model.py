"""A Loop or Scan as a model of its own that stops after a number of iterations, to record what the next one gets."""

from __future__ import annotations

from onnx import ModelProto, NodeProto, SparseTensorProto, TensorProto, ValueInfoProto, helper

from runner.model.graph.graph_index import Graph
from runner.model.graph.protobuf_edits import set_messages
from runner.model.graph.rename import NameSupply, names_of
from runner.model.nested.bodies import (
    Body,
    check_supported,
    formal_inputs,
    scan_inputs,
    states,
)
from runner.model.values.value_types import tensor_type

COUNT = "winnow.last_iteration"
"""The output of a limited Loop that holds the number of its last iteration, -1 where there was none."""


def limited_loop(graph: Graph, body: Body, limit: int, *, stacked: bool = False) -> ModelProto:
    """Return a model of a Loop alone that makes ``limit`` iterations at most and gives COUNT besides.

    Its outputs are what it carries, each under a name, then COUNT, then what it stacks, if that is wanted. The
    types of its inputs are those that the file declares, if any: a recorder knows better. Raises HoistError for a
    loop that is not one.
    """
    model, owner, supply = _alone(graph, body)
    carried = states(graph, body)
    inner = next(attribute.g for attribute in owner.attribute if attribute.name == body.attribute)
    inputs = formal_inputs(inner)
    limit_name, start, last, before, after = (
        supply.fresh(f"winnow.{what}") for what in ("limit", "start", "none", "before", "now")
    )
    go_on = owner.input[1] if len(owner.input) > 1 and owner.input[1] else start
    # a body may declare its iteration number with one dimension
    dims = [1] * len(inputs[0].type.tensor_type.shape.dim)
    model.graph.initializer.append(helper.make_tensor(limit_name, TensorProto.INT64, [], [limit]))
    model.graph.initializer.append(helper.make_tensor(last, TensorProto.INT64, dims, [-1]))
    if go_on == start:
        # omitted, the condition is true; some runtimes take it for false
        model.graph.initializer.append(helper.make_tensor(start, TensorProto.BOOL, [], [True]))
    # the number is a carried value: some runtimes stack scan outputs wrongly
    number = tensor_type(TensorProto.INT64, tuple(dims))
    inner.node.append(helper.make_node("Identity", [inputs[0].name], [after]))
    inner.input.append(helper.make_value_info(before, number))
    more = list(inner.output[1 + carried :]) if stacked else []
    set_messages(inner.output, [*inner.output[: 1 + carried], helper.make_value_info(after, number), *more])
    owner.input[:] = [limit_name, go_on, *owner.input[2:], last]
    outputs = [name or supply.fresh("winnow.given") for name in [*owner.output, *[""] * (carried + len(more))]]
    return _finished(model, owner, [*outputs[:carried], COUNT, *outputs[carried : carried + len(more)]])


def shortened_scan(graph: Graph, body: Body) -> tuple[ModelProto, dict[str, str]]:
    """Return a model of a Scan alone that scans other tensors, and what these stand for: new name, old name."""
    model, owner, supply = _alone(graph, body)
    count, carried = scan_inputs(owner), states(graph, body)
    found = {}
    for place in range(carried, carried + count):
        name = supply.fresh(f"winnow.part{place}")
        found[name] = owner.input[place]
        owner.input[place] = name
    outputs = [name or supply.fresh("winnow.given") for name in owner.output]
    return _finished(model, owner, outputs), found


def _alone(graph: Graph, body: Body) -> tuple[ModelProto, NodeProto, NameSupply]:
    """Return a model of the owner alone, with the constants that it reads, and its node in it, which stands last."""
    check_supported(graph, body)
    source = graph.model
    model = ModelProto(ir_version=max(source.ir_version, 4))  # from then on, initializers are no inputs
    model.opset_import.extend(source.opset_import)
    model.functions.extend(source.functions)
    model.graph.name = "owner"
    for name in graph.nodes[body.owner].inputs:
        found = graph.initializers.get(name)
        if isinstance(found, SparseTensorProto):
            model.graph.sparse_initializer.append(found)
        elif found is not None:
            model.graph.initializer.append(found)
        elif name in graph.carried:
            model.graph.node.append(graph.carried[name][1])
    model.graph.node.append(graph.protos[body.owner])
    return model, model.graph.node[-1], NameSupply(names_of(source))


def _finished(model: ModelProto, owner: NodeProto, outputs: list[str]) -> ModelProto:
    owner.output[:] = outputs
    set_messages(model.graph.output, [ValueInfoProto(name=name) for name in outputs])
    return model
