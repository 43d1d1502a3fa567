"""Simpler attributes: those that an operator does not need are left out, which gives them their defaults."""

from __future__ import annotations

from dataclasses import dataclass

from onnx import ModelProto, defs

from runner.jobs.reduce.shrink.levels import Levels
from runner.jobs.reduce.shrink.shrunk_subject import Feeds, Whole
from runner.model.graph.protobuf_edits import copy_of
from runner.model.graph.scopes import domain_of

Place = tuple[int, str]
"""A node, by its place in the graph, and an attribute of it."""


@dataclass(frozen=True)
class DefaultAttributes:
    """Leaves attributes out. ``places``: those that may be; the standard says which."""

    whole: Whole
    places: tuple[Place, ...]
    name: str = "attributes"

    @staticmethod
    def of(whole: Whole) -> DefaultAttributes:
        """Look for attributes that are not required."""
        versions = {domain_of(one.domain): one.version for one in whole.model.opset_import}
        found: list[Place] = []
        for index, node in enumerate(whole.model.graph.node):
            domain = domain_of(node.domain)
            version = versions.get(domain, 0)
            if node.op_type == "Constant" or not defs.has(node.op_type, version, domain):
                continue
            known = defs.get_schema(node.op_type, version, domain).attributes
            found += [(index, one.name) for one in node.attribute if one.name in known and not known[one.name].required]
        return DefaultAttributes(whole, tuple(found))

    @property
    def levels(self) -> Levels:
        """One part for each attribute."""
        return Levels((1,) * len(self.places), self.name)

    def apply(self, levels: tuple[int, ...]) -> tuple[ModelProto, Feeds]:
        """Return the model without the attributes on level 0, and what it is fed."""
        model = copy_of(self.whole.model)
        gone = {place for place, level in zip(self.places, levels, strict=True) if not level}
        if gone:  # other strides make other shapes
            del model.graph.value_info[:]
        for index in {index for index, _ in gone}:
            node = model.graph.node[index]
            kept = [one for one in node.attribute if (index, one.name) not in gone]
            del node.attribute[:]
            node.attribute.extend(kept)
        return model, tuple(sample.feeds for sample in self.whole.samples)
