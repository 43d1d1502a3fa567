"""Subject `precision`: the elements are nodes that can run in low precision, a trial is the nodes raised to high.

The candidate is the whole model, strongly typed, with casts where raised and other nodes meet.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from runner.candidate import Candidate, Invalid, Sample
from runner.model.cast.layers import Layer
from runner.model.cast.mixed import Mixer
from runner.model.cut import CutError
from runner.model.store import Store
from strategies.space import Space
from strategies.trial import Trial


@dataclass(frozen=True)
class Mixed:
    """A mixed-precision model of a trial."""

    model: onnx.ModelProto


@dataclass(frozen=True)
class Precision:
    """Makes mixed-precision models. ``samples``: what the model is fed, and what its outputs should be."""

    mixer: Mixer
    store: Store
    samples: tuple[Sample, ...]
    order: tuple[int, ...]
    parents: tuple[tuple[int, ...], ...] = field(default=())

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The elements."""
        return self.mixer.layers

    @property
    def space(self) -> Space:
        """The nodes that can run in either precision, nested ones included; any set of them may be raised."""
        return Space(self.order, self.parents)

    def identity(self) -> dict[str, str]:
        """Return the two precisions, the layers, and what happens to Q/DQ pairs, inputs and outputs."""
        mixer = self.mixer
        low, high = (onnx.TensorProto.DataType.Name(dtype).lower() for dtype in (mixer.pair.low, mixer.pair.high))
        paths = "\n".join(layer.path for layer in self.layers)
        return {
            "kind": "precision",
            "low": "quantized" if low == high else low,
            "high": high,
            "keep_io": str(mixer.keep_io).lower(),
            "pairs": "kept" if mixer.restored is None else "restored where raised",
            "layers": hashlib.sha256(paths.encode()).hexdigest(),
        }

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the paths of the raised nodes, in the model's order."""
        return tuple(self.layers[index].path for index in sorted(trial.elements))

    def cut(self, trial: Trial) -> Mixed:
        """Return the model in which the nodes of ``trial`` are raised."""
        return Mixed(self.mixer.mixed(trial.elements))

    def make(self, trial: Trial, folder: Path, iteration: int, phase: str, label: str) -> Candidate | Invalid:
        """Write the model in which the nodes of ``trial`` are raised, all others low."""
        try:
            path = self.store.write(self.mixer.mixed(trial.elements), folder)
        except CutError as error:
            return Invalid(str(error))
        return Candidate(path, folder, iteration, phase, label, trial, self.samples, nodes=self.names(trial))

    def discard(self, candidate: Candidate) -> None:
        """Remove the candidate's model file."""
        if candidate.model:
            candidate.model.unlink(missing_ok=True)


def parents_of(layers: tuple[Layer, ...]) -> tuple[tuple[int, ...], ...]:
    """Return for each layer those that make what it reads: culprits of one failure lie together."""
    makers = {name: index for index, layer in enumerate(layers) for name in layer.writes}
    return tuple(
        tuple(sorted({makers[name] for name in layer.reads if name in makers and makers[name] < index}))
        for index, layer in enumerate(layers)
    )
