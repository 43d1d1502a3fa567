"""Which nodes draw random numbers, themselves or in a function that they call."""

from __future__ import annotations

from onnx import ModelProto, NodeProto

from runner.model.graph import data_dependence, scopes

Key = tuple[str, str, str]


def draws(node: NodeProto, functions: set[Key]) -> bool:
    """Whether a node draws; ``functions``: in which something is drawn."""
    return data_dependence.draws(node) or (bool(functions) and scopes.call_key(node) in functions)


def drawing_functions(model: ModelProto) -> set[Key]:
    """Return the keys of the functions in which something is drawn, directly or through another function."""
    drawing: set[Key] = set()
    grew = True
    while grew:
        grew = False
        for function in model.functions:
            key = scopes.function_key(function)
            if key not in drawing and any(draws(node, drawing) for node in scopes.all_nodes(function.node)):
                drawing.add(key)
                grew = True
    return drawing
