"""Does `strategy=layerwise` name the planted node: first wrong tensor, and largest error of its own?

    python -m benchmarks.layerwise [--half seen|held] [--only NAME] [--seeds 2]

Planted: one weight of one node in a copy of a network, which is compared with the network itself (reference.model); in
every other row a pair of nodes further on, harmless by itself, makes the error 30 times as large. Architectures and
seeds are held back: the first half of the architectures and the first seed were looked at while it was built.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from benchmarks import print_head, print_row, winnow
from benchmarks.planted_models import ARCHITECTURES, Network

Values = dict[str, np.ndarray]
SEEN = ("residual", "pre-LN", "inception", "recurrent")
TIMES, RTOL = 30.0, 0.01
STRENGTHS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)


@dataclass(frozen=True)
class Planted:
    """``node``: the one whose weight was changed in the child. ``own``: the error that this makes of good values."""

    parent: ModelProto
    child: ModelProto
    feeds: Values
    node: str
    own: float
    later: float


def evaluated(model: ModelProto, feeds: Values) -> Values:
    """Return what every tensor holds, by the reference evaluator of the onnx package."""
    return dict(ReferenceEvaluator(model).run(None, feeds, intermediate=True))


def plant(architecture: str, seed: int, *, amplified: bool) -> Planted:
    """Return a network and its copy with a wrong weight. Raises ValueError where no node fits."""
    net, draw = Network(seed), np.random.default_rng([seed, 18])
    ARCHITECTURES[architecture](net, 1)
    parent = net.model()
    feeds = {name: draw.uniform(-1, 1, shape).astype(np.float32) for name, shape in net.inputs.items()}
    values = evaluated(parent, feeds)
    weights = {
        one.name for one in parent.graph.initializer if one.data_type == TensorProto.FLOAT and np.prod(one.dims) > 1
    }
    places = [at for at, node in enumerate(parent.graph.node[:-2]) if weights.intersection(node.input)]
    for at in draw.permutation(places).tolist():
        later = _amplified(parent, at, values, draw) if amplified else parent
        for strength in STRENGTHS if later else ():
            child = _spoiled(later, parent.graph.node[at].name, strength, draw)
            good, bad = evaluated(later, feeds), evaluated(child, feeds)
            node = next(one for one in child.graph.node if one.name == parent.graph.node[at].name)
            read = {name: good.get(name, bad[name]) for name in node.input if name}
            own = _error(ReferenceEvaluator(node).run(None, read)[0], good[node.output[0]])
            after = [one.output[0] for one in child.graph.node[at + 1 :]]
            most = max(_error(bad[name], good[name]) for name in after if good[name].dtype == np.float32)
            ends = max(_error(bad[name], good[name]) for name in net.outputs)
            if own > 3 * RTOL and ends > 2 * RTOL and (most > 3 * own or not amplified):
                return Planted(later, child, feeds, node.name, own, most)
    raise ValueError(f"{architecture} {seed}: no node fits")


def _amplified(model: ModelProto, at: int, values: Values, draw: np.random.Generator) -> ModelProto | None:
    """Return the model with a pair of nodes behind node ``at`` that changes no good value, but any error."""
    below, places = {model.graph.node[at].output[0]}, []
    for place, node in enumerate(model.graph.node):
        if place > at and below.intersection(node.input):
            below.update(node.output)
            places.append(place)
    places = [place for place in places[1:-2] if values[model.graph.node[place].output[0]].size > 8]
    if not places:
        return None
    made = deepcopy(model)
    place = int(draw.choice(places))
    name = model.graph.node[place].output[0]
    held = values[name]
    for other in made.graph.node:
        other.input[:] = [f"{name}_again" if one == name else one for one in other.input]
    constants = {f"{name}_most": np.float32(1 - 1 / TIMES) * held, f"{name}_times": np.float32(TIMES)}
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), key) for key, array in constants.items())
    pair = [
        helper.make_node("Sub", [name, f"{name}_most"], [f"{name}_rest"], name=f"/{name}_rest"),
        helper.make_node("Mul", [f"{name}_rest", f"{name}_times"], [f"{name}_again"], name=f"/{name}_again"),
    ]
    for node in reversed(pair):
        made.graph.node.insert(place + 1, node)
    return made


def _spoiled(model: ModelProto, name: str, strength: float, draw: np.random.Generator) -> ModelProto:
    """Return a copy in which a node has a weight of its own, which is off."""
    made = deepcopy(model)
    held = {one.name: one for one in made.graph.initializer if np.prod(one.dims) > 1}
    node = next(one for one in made.graph.node if one.name == name)
    at = next(at for at, one in enumerate(node.input) if one in held)
    array = numpy_helper.to_array(held[node.input[at]])
    noise = np.random.default_rng(int(strength * 100)).standard_normal(array.shape)
    node.input[at] += "_spoiled"
    spoiled = (array + strength * np.abs(array).max() * noise / 3).astype(np.float32)
    made.graph.initializer.append(numpy_helper.from_array(spoiled, node.input[at]))
    return made


def _error(mine: np.ndarray, good: np.ndarray) -> float:
    return float(np.abs(mine - good).max() / (np.abs(good).max() or 1.0))


def planted_rows(given: argparse.Namespace, out: Path) -> None:
    """Print a row for each planted error, and the counts of both halves."""
    counts = {half: Counter[str]() for half in ("seen", "held")}
    print_head(
        *("half", "network", "seed", "amplified", "planted", "own", "largest later", "first wrong", "largest own"),
        *("runs", "tensors", "said"),
    )
    for architecture in ARCHITECTURES:
        for seed in range(given.seeds):
            half = "seen" if architecture in SEEN and seed == 0 else "held"
            if given.only not in architecture or (given.half and given.half != half):
                continue
            for amplified in (False, True):
                one = plant(architecture, seed, amplified=amplified)
                folder = out / f"{architecture}{seed}{'a' * amplified}"
                folder.mkdir(parents=True)
                onnx.save(one.parent, str(folder / "parent.onnx"))
                onnx.save(one.child, str(folder / "child.onnx"))
                np.savez(folder / "inputs.npz", **one.feeds)
                files = [f"model={folder / 'child.onnx'}", f"reference.model={folder / 'parent.onnx'}"]
                files += ["inputs=files", f"inputs.path={folder / 'inputs.npz'}", "verbosity=warning"]
                done, result = winnow(folder / "run", "strategy=layerwise", *files)
                layers = result.get("layers") or {}
                right = [(layers.get(key) or {}).get("node") == one.node for key in ("first_bad", "largest_own")]
                counts[half].update({"of": 1, "first wrong": right[0], "largest own": right[1]})
                said = "" if all(right) else (result.get("message") or done.stderr)[:200].replace("|", "/")
                print_row(
                    *(half, architecture, seed, "yes" if amplified else "", one.node, f"{one.own:.3f}"),
                    *(f"{one.later:.3f}", *right, layers.get("runs", 0), layers.get("tensors", 0), said),
                )
    for half, count in counts.items():
        print(f"{half}: first wrong {count['first wrong']}, largest own {count['largest own']}, of {count['of']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=["seen", "held"])
    parser.add_argument("--only", default="", help="part of an architecture's name")
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="layerwise-") as scratch:
        planted_rows(given, Path(scratch))


if __name__ == "__main__":
    main()
