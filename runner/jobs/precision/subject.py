"""Subject `precision`: the elements are units of nodes that can run in low precision, a trial is what is raised.

The candidate is the whole model, strongly typed, with casts where raised and other nodes meet.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import onnx

from runner.candidate import Candidate, Invalid, Sample
from runner.jobs.precision.cast.layers import Layer
from runner.jobs.precision.cast.mixer import Mixer
from runner.model.files.candidate_store import Store
from runner.model.graph.cut import Cut, CutError
from runner.session.subject import values_digest
from strategies.search_space import Space
from strategies.trial import Trial


@dataclass(frozen=True)
class Precision:
    """Makes mixed-precision models.

    ``samples``: what the model is fed, and what its outputs should be. ``order``: the units that are searched;
    ``members``: the layers of each unit; ``high``: layers that are raised in every trial.
    """

    mixer: Mixer
    store: Store
    samples: tuple[Sample, ...]
    order: tuple[int, ...]
    parents: tuple[tuple[int, ...], ...]
    members: tuple[tuple[int, ...], ...]
    high: frozenset[int] = frozenset()

    @property
    def layers(self) -> tuple[Layer, ...]:
        """All nodes that can run in either precision."""
        return self.mixer.layers

    @property
    def space(self) -> Space:
        """What is searched; any set of units may be raised."""
        return Space(self.order, self.parents)

    def identity(self) -> dict[str, str]:
        """Return the two precisions, what is searched on which samples, and what happens to the rest."""
        mixer = self.mixer
        low, high = (onnx.TensorProto.DataType.Name(dtype).lower() for dtype in (mixer.pair.low, mixer.pair.high))
        paths = "\n".join(layer.path for layer in self.layers)
        searched = [self.members[unit] for unit in self.order]
        return {
            "kind": "precision",
            "low": "quantized" if low == high else low,
            "high": high,
            "keep_io": str(mixer.keep_io).lower(),
            "pairs": "kept" if mixer.restored is None else "restored where raised",
            "layers": hashlib.sha256(paths.encode()).hexdigest(),
            "searched": hashlib.sha256(f"{searched} {sorted(self.high)}".encode()).hexdigest(),
            "samples": values_digest(dict(sorted(sample.feeds.items())) for sample in self.samples),
        }

    def own(self, trial: Trial) -> frozenset[int]:
        """Return the layers that a trial raises, without those that are raised in every one."""
        return frozenset(layer for unit in trial.elements for layer in self.members[unit])

    def raised(self, trial: Trial) -> frozenset[int]:
        """Return all layers that are high in a trial."""
        return self.own(trial) | self.high

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the paths of the nodes that a trial raises, in the model's order."""
        return tuple(self.layers[index].path for index in sorted(self.own(trial)))

    def cut(self, trial: Trial) -> Cut:
        """Return the model in which the nodes of ``trial`` are raised; it is whole."""
        return Cut(self.mixer.mixed(self.raised(trial)), (), (), ())

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Write the model in which the nodes of ``trial`` are raised, all others low."""
        try:
            path = self.store.write(self.cut(trial).model, folder)
        except CutError as error:
            return Invalid(str(error))
        return Candidate(path, folder, trial, self.samples, nodes=self.names(trial), temporary=True)


def parents_of(layers: tuple[Layer, ...]) -> tuple[tuple[int, ...], ...]:
    """Return for each layer those that make what it reads: culprits of one failure lie together."""
    makers = {name: index for index, layer in enumerate(layers) for name in layer.writes}
    return tuple(
        tuple(sorted({makers[name] for name in layer.reads if name in makers and makers[name] < index}))
        for index, layer in enumerate(layers)
    )
