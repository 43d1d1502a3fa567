"""Shorter names of tensors. Nodes and outputs keep theirs, which say where in the model the answer lies."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from onnx import ModelProto

from runner.jobs.reduce.shrink.levels import Levels
from runner.jobs.reduce.shrink.shrunk_subject import Feeds, Whole
from runner.model.graph import scopes
from runner.model.graph.protobuf_edits import copy_of
from runner.model.graph.rename import NameSupply, names_of, rename_graph
from runner.model.values import recorded

SHORT = 12
"""Characters of names that stay."""


@dataclass(frozen=True)
class ShorterNames:
    """Gives all tensors with long names short ones. ``names``: the new ones; ``folder``: for values of inputs.

    What the model is fed is written once: a check may read it while a repeat of it is made.
    """

    whole: Whole
    names: dict[str, str]
    folder: Path
    name: str = "names"
    _fed: list[Feeds] = field(default_factory=list, compare=False)

    @staticmethod
    def of(whole: Whole, folder: Path) -> ShorterNames:
        """Look for long names: none where there are nested graphs, which may hide one name behind another."""
        graph = whole.model.graph
        kept = {value.name for value in graph.output}
        kept |= {name for sample in whole.samples for name, file in sample.feeds.items() if file.structure}
        if whole.model.functions or any(True for node in graph.node for _ in scopes.subgraphs(node)):
            return ShorterNames(whole, {}, folder)
        supply = NameSupply(names_of(whole.model))
        used = dict.fromkeys(name for node in graph.node for name in (*node.input, *node.output))
        long = [name for name in used if len(name) > SHORT and name not in kept]
        return ShorterNames(whole, {name: supply.fresh(f"t{at}") for at, name in enumerate(long)}, folder)

    @property
    def levels(self) -> Levels:
        """One part, all names."""
        return Levels((1,) if self.names else (), self.name)

    def apply(self, levels: tuple[int, ...]) -> tuple[ModelProto, Feeds]:
        """Return the model with these names, and what it is fed."""
        model = copy_of(self.whole.model)
        if levels[0]:
            return model, tuple(sample.feeds for sample in self.whole.samples)
        rename_graph(model.graph, self.names, NameSupply(names_of(model)))
        if not self._fed:
            self._fed.append(tuple(self._feeds(number) for number in range(len(self.whole.samples))))
        return model, self._fed[0]

    def _feeds(self, number: int) -> dict[str, recorded.TensorFile]:
        self.folder.mkdir(parents=True, exist_ok=True)
        fed = {}
        for place, (name, file) in enumerate(self.whole.samples[number].feeds.items()):
            new, path = self.names.get(name, name), self.folder / f"{number}_{place}.pb"
            fed[new] = file if new == name else recorded.write(recorded.read(file), new, path)
        return fed
