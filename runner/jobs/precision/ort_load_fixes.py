"""Whether a plain ONNX Runtime loads a mixed model, and what is raised besides where it does not.

Its own fusions take casts apart: one of them makes an invalid node of a Cast in front of a decomposed layer norm whose
scale is of another type. Which node is raised decides where the casts are, so one more, in reach of the node that
the message names, is tried: the cheapest first, and only as long as it helps. Where that does not help it is said, with
the optimizers to disable.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from onnx import ModelProto

from runner.jobs.precision.cast.layers import node_label
from runner.jobs.precision.ort_load_result import Levels, Loads
from runner.jobs.precision.prepare_search import Material
from runner.jobs.precision.report.low_share import arithmetic
from runner.model.graph.cut import CutError
from runner.model.graph.scopes import graphs_below, initializers
from runner.schema.backend import OnnxRuntimeBackend
from runner.text import listed
from strategies.minimal import reduce
from strategies.outcome import Answer
from strategies.search import Search
from strategies.search_space import Space
from strategies.trial import Trial

log = logging.getLogger(__name__)

MOST_VAIN = 60
"""So many times a model is loaded in search of a way out without that it helps."""
_REACH = 4
"""A fusion covers several nodes: from the one that it is named after, its Cast is so many steps away."""
_WORD = re.compile(r"[A-Z]\w*(?:Fusion|Elimination|Transformer)")


class Loading:
    """Loads the mixed models of a run in a plain ONNX Runtime."""

    def __init__(self, material: Material) -> None:
        self._settings = material.settings
        self._casting = material.casting
        self._loaded = material.loaded
        self._pool = material.pool
        self._subject = material.subject
        self._units = material.searched
        self._left = MOST_VAIN
        self._own: Levels | None = None
        target = material.settings.target
        self._python = target.python if isinstance(target, OnnxRuntimeBackend) else None
        self._custom_ops = list(target.custom_ops) if isinstance(target, OnnxRuntimeBackend) else []

    def asked(self, trial: Trial) -> Loads:
        """Load the model of a trial as it is; where it is refused, look for the optimizers to disable."""
        found = self._found(self._subject.raised(trial))
        return replace(found, disabled=self._disabled(found)) if found.blamed else found

    def wider(self, trial: Trial) -> tuple[Trial, Loads]:
        """Return a trial with what is raised besides so that its model loads at all levels, and how it loads.

        Where that cannot be reached, or what it takes is not searched, the trial is as it was.
        """
        raised = self._subject.raised(trial)
        found = self._found(raised)
        more = self._more(raised, found.blamed) if found.blamed else None
        if more:
            # a whole block is raised with what is needed of it
            wider = Trial.of((*trial, *self._units.of(more)))
            high = self._subject.raised(wider)
            loads = self._found(high)
            if more <= high and not loads.blamed:
                added = tuple(sorted(high - raised))
                paths = [self._casting.layers[index].path for index in added]
                log.info("%s raised besides: ONNX Runtime loads the model so", listed(paths))
                return wider, replace(loads, added=added)
        return trial, self.asked(trial) if found.blamed else found

    def _found(self, raised: frozenset[int]) -> Loads:
        reply = self._of(raised)
        if isinstance(reply, str):
            return Loads(raised, {}, untried=reply)
        if not any(reply.values()):
            return Loads(raised, reply)
        if self._own is None:
            told = self._load(str(self._loaded.path), None)
            self._own = told if isinstance(told, dict) else {}
        return Loads(raised, reply, own={level: self._own.get(level, "") for level, why in reply.items() if why})

    # ---- moving the casts by raising more layers

    def _more(self, raised: frozenset[int], at: Sequence[str]) -> frozenset[int] | None:
        """Return which layers, raised besides, make the model load at these levels; None: none were found."""
        added: list[int] = []
        helped: list[tuple[str, int]] = []
        for level in at:
            why = self._refusal(raised | {*added}, level)
            while why:
                found = self._step(raised | {*added}, level, why, helped)
                if found is None:
                    return None
                layer, steps, why = found
                added.append(layer)
                helped.append((self._casting.layers[layer].op_type, steps))
        return frozenset(added)

    def _step(
        self, raised: frozenset[int], level: str, why: str, helped: Collection[tuple[str, int]]
    ) -> tuple[int, int, str] | None:
        """Return a layer that, raised, leaves no complaint or one further down: its index, distance, what is left."""
        named = self._named(why)
        distances = self._distances(named)
        near = [index for index in distances if index not in raised]
        layers = self._casting.layers
        like = {index for index in near if (layers[index].op_type, distances[index]) in helped}
        # layers like those that helped elsewhere first, then the cheapest
        near.sort(key=lambda at: (at not in like, self._work.get(at, 0.0), distances[at], at))
        for index in near:
            if self._left <= 0:
                return None
            left = self._refusal(raised | {index}, level)
            after = self._named(left) if left else []
            if not left or (after and min(after) > max(named)):
                return index, distances[index], left
            self._left -= 1
        return None

    def _named(self, message: str) -> list[int]:
        """Return the layers that a message of ONNX Runtime's names: a fused node has the name of one that it was."""
        inside = [name for name in self._names if f"({name}" in message or f"'{name}" in message]
        longest = max(inside, key=len, default=None)
        return [index for index, name in enumerate(self._names) if name == longest]

    def _distances(self, named: Collection[int]) -> dict[int, int]:
        """Return the layers in reach of these, with the steps: what reads or makes the same tensor is next."""
        layers = self._casting.layers
        found, edge = dict.fromkeys(named, 0), list(named)
        for steps in range(1, _REACH + 1):
            names = {name for index in edge for name in (*layers[index].reads, *layers[index].writes)}
            edge = sorted({at for name in names for at in self._touching.get(name, ())} - found.keys())
            found |= dict.fromkeys(edge, steps)
        return found

    @cached_property
    def _work(self) -> Mapping[int, float]:
        return arithmetic(self._casting, self._loaded)

    @cached_property
    def _names(self) -> list[str]:
        """The name of each layer's node, as ONNX Runtime knows it: nested ones without their owners'."""
        graphs = list(graphs_below(self._casting.mixer.model.graph))
        return [node_label(graphs[at].node[place], place) for at, place in (one.key for one in self._casting.layers)]

    @cached_property
    def _touching(self) -> Mapping[str, list[int]]:
        """The layers that read or make a tensor, weights aside."""
        weights = {tensor.name for tensor in initializers(self._casting.mixer.model)}
        found: dict[str, list[int]] = {}
        for index, layer in enumerate(self._casting.layers):
            for name in {*layer.reads, *layer.writes} - weights:
                found.setdefault(name, []).append(index)
        return found

    # ---- optimizers to disable

    def _disabled(self, found: Loads) -> tuple[str, ...]:
        """Return the fewest optimizers that were found without which the model loads at all levels; empty: none."""
        reply = self._called("optimizers", {})
        if isinstance(reply, str):
            return ()
        every, words = list(reply["names"]), {word for why in found.refused.values() for word in _WORD.findall(why)}
        likely = [name for name in every if any(name.startswith(word) for word in words)]
        at = found.blamed

        tries = iter(range(MOST_VAIN))

        def loads(disabled: Sequence[str]) -> bool:
            told = self._of(found.raised, at, disabled) if next(tries, None) is not None else ""
            return isinstance(told, dict) and not any(told.values())

        start = next((names for names in (likely, every) if names and loads(names)), None)
        return tuple(_least(start, loads)) if start else ()

    # ---- loading

    def _refusal(self, raised: frozenset[int], level: str) -> str:
        """Return why the model is refused at a level; empty: it loads."""
        told = self._of(raised, [level])
        return told if isinstance(told, str) else told.get(level, "")

    def _of(
        self, raised: frozenset[int], at: Sequence[str] | None = None, disabled: Sequence[str] = ()
    ) -> Levels | str:
        """Load a mixed model; return what came of each level, or why it could not be tried."""
        model = self._casting.mixer.mixed(raised)
        _name(model)
        store = self._loaded.store
        try:
            path = store.write(model, store.folder, "loads")
        except CutError as error:
            return str(error)
        try:
            return self._load(str(path), at, disabled)
        finally:
            path.unlink(missing_ok=True)

    def _load(self, path: str, at: Sequence[str] | None, disabled: Sequence[str] = ()) -> Levels | str:
        args = {"model": path, "levels": list(at or ()), "disabled": list(disabled), "custom_ops": self._custom_ops}
        reply = self._called("loads", args)
        if isinstance(reply, str):
            return reply
        return {str(level): str(why).replace(path, "the model") for level, why in reply["levels"].items()}

    def _called(self, op: str, args: Mapping[str, Any]) -> dict[str, Any] | str:
        limits = self._settings.workers
        reply = self._pool.call(op, args, python=self._python, timeout=limits.timeout, memory_mb=limits.memory_mb)
        if reply.value is not None:
            return reply.value
        return str(reply.failure.message if reply.failure else reply.death)


def _name(model: ModelProto) -> None:
    """Name nodes that have no name, so that a message can name them."""
    for graph in graphs_below(model.graph):
        for place, node in enumerate(graph.node):
            node.name = node_label(node, place)


def _least(names: Sequence[str], loads: Callable[[Sequence[str]], bool]) -> list[str]:
    """Return as few of the names as still do."""
    space = Space(tuple(range(len(names))))
    search = Search(space, reduce(space, 0))
    while search.done is None:
        (ask,) = search.ask()
        search.tell(ask.trial, Answer.YES if loads([names[at] for at in ask.trial]) else Answer.NO)
    return [names[at] for at in search.done.trial or ()]
