"""Which nodes of a model a message names: the error of a runtime or a builder, the last words of one that crashed.

What fails may have another name than in the model: a runtime adds words and numbers before and after it
(``InsertedPrecisionFreeCast_/m/Pow_output_0``, ``culprit_68``), or says only what kind of operator it is.
"""

from __future__ import annotations

import re
from itertools import combinations

from runner.model.graph.graph_index import Graph
from runner.model.graph.scopes import all_nodes

_WORDS = re.compile(r"'([^'\n]+)'|\"([^\"\n]+)\"|([^\s'\"()\[\]{},;=]+)")
_BREAK = re.compile(r"\s+|\.{3}")
_EDGE = re.compile(r"(?<=[_:|.])|(?=[_:|.])|(?=/)|(?<=>)")
_LONGEST = 400
"""Characters of a word in which a name is looked for."""
_FEW = 3
"""So many nodes of one kind of operator say where to look; more do not."""


def named_tensors(graph: Graph, text: str) -> tuple[str, ...]:
    """Return the tensors, made by nodes, that a text names itself, or by the name of a node; in the text's order.

    The model's own outputs are left out: a check may name them whatever has failed. A node inside an If, a Loop or a
    Scan stands for its owner.
    """
    owners = [(node, node.outputs[0]) for node in graph.nodes if node.nests and node.outputs]
    inside = ((inner.name, gives) for node, gives in owners for inner in all_nodes([graph.protos[node.index]]))
    known = {name: gives for name, gives in inside if name}
    known |= {name: name for name in graph.producers if name not in graph.output_set}
    known |= {node.name: node.outputs[0] for node in graph.nodes if node.outputs}
    found: dict[str, None] = {}
    for match in _WORDS.finditer(text):
        quoted, word = match[1] or match[2], match[3]
        for one in (quoted,) if quoted in known else _BREAK.split(quoted or word):
            if name := _name_in(one.strip(".:"), known, bare=not quoted):
                found[known[name]] = None
    return tuple(found)


def _name_in(word: str, known: dict[str, str], *, bare: bool) -> str | None:
    """Return the longest name in a word, or in what is left of it without what was put before or after a name.

    What is only a number counts in quotation marks alone.
    """
    inner = _EDGE.finditer(word) if len(word) <= _LONGEST else ()
    parts = (word[start:end] for start, end in combinations(sorted({0, len(word), *(one.start() for one in inner)}), 2))
    names = (name for name in parts if name in known and not (bare and name.isdigit()))
    return max(names, key=len, default=None)


def named_operators(graph: Graph, text: str) -> tuple[int, ...]:
    """Return the nodes of the operators that a text names, of the rarest one, where the model has few of that kind."""
    words = set(re.findall(r"[A-Za-z]\w*", text))
    by_type: dict[str, list[int]] = {}
    for node in graph.nodes:
        if node.op_type in words:
            by_type.setdefault(node.op_type, []).append(node.index)
    rarest = min(by_type.values(), key=len, default=[])
    return tuple(rarest) if len(rarest) <= _FEW else ()
