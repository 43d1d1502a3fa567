"""python -m benchmarks.planted_noise [--out DIR] [--only NAME ...] [--half seen|held]: is rounding taken for the cause?

Each model is a parent in fp32 and a child, quantized (QDQ) or in fp16, with a planted fault whose error at the outputs
is five times the tolerance or more, and noise: nodes that are just over the tolerance on their own inner tensor, and
far below it at the outputs. Noise stands before the fault, after it, beside it, or on both sides. What is planted is
verified here with ONNX Runtime node by node; a model that does not have these properties is not used.

For each model Winnow runs with ``checker=compare``, and with a command that prints its error, with and without
``checker.measure``; each time with both orders of bisection (``strategy.first``).
"""

from __future__ import annotations

import argparse
import json
import shlex
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto

from benchmarks.planted_models import (
    ATOL,
    ATTRIBUTES,
    HEALTHY,
    LOCAL,
    LOUD,
    RTOL,
    SEEDS,
    SPECS,
    STRENGTHS,
    Conversion,
    Evaluator,
    Planted,
    Spec,
    UnfitError,
    alone,
    in_tolerances,
    minimal,
    outputs,
    worst,
)


def places(conversion: Conversion, kind: str) -> list[str]:
    """Where a fault of a kind may be planted."""
    nodes = conversion.parent.graph.node
    if kind in ATTRIBUTES:
        return [f"#{node.output[0]}" for node in nodes if node.op_type == ATTRIBUTES[kind]]
    if kind in ("weight", "weight scale"):
        held = {one.name for one in conversion.parent.graph.initializer}
        kinds = ("Conv", "MatMul", "ConvTranspose")
        return [node.input[1] for node in nodes if node.op_type in kinds and node.input[1] in held]
    return conversion.sites


def culprits(spec: Spec, child: ModelProto, place: str, kind: str) -> frozenset[str]:
    """Return the nodes of what is planted."""
    if place.startswith("#"):
        return frozenset(
            {
                next(
                    node.name
                    for node in child.graph.node
                    if place[1:] in [o.removesuffix("_half") for o in node.output]
                )
            }
        )
    if kind in ("weight", "weight scale"):
        if spec.dtype == "qdq":
            return frozenset({f"{place}_DequantizeLinear"})
        return frozenset({next(node.name for node in child.graph.node if place in node.input)})
    if spec.dtype == "qdq":
        return frozenset({f"{place}_QuantizeLinear", f"{place}_DequantizeLinear"})
    steps = {"cancel": (1, 2), "overflow": (0, 1, 2, 3)}[kind]
    return frozenset(f"/{place}_{kind}{step}" for step in steps)


class Order:
    """What lies above and below in the child."""

    def __init__(self, model: ModelProto) -> None:
        self.maker = {name: node for node in model.graph.node for name in node.output}
        self.nodes = list(model.graph.node)
        self.ends = outputs(model)

    def below(self, names: Collection[str], without: Collection[str] = ()) -> frozenset[str]:
        """Return the nodes that depend on some, these included, when others are gone."""
        found: set[str] = set(names)
        tensors = {name for node in self.nodes if node.name in found for name in node.output}
        for node in self.nodes:
            if node.name not in without and not tensors.isdisjoint(node.input):
                found.add(node.name)
                tensors.update(node.output)
        return frozenset(found)

    def above(self, names: Collection[str]) -> frozenset[str]:
        """Return the nodes that some depend on, these included."""
        found: set[str] = set()
        waiting = [node for node in self.nodes if node.name in names]
        while waiting:
            node = waiting.pop()
            if node.name not in found:
                found.add(node.name)
                waiting += [self.maker[name] for name in node.input if name in self.maker]
        return frozenset(found)

    def reaches_end(self, names: Collection[str], without: Collection[str] = ()) -> bool:
        """Whether an output depends on some nodes when others are gone."""
        return any(self.maker[end].name in self.below(names, without) for end in self.ends)

    def relation(self, noise: frozenset[str], fault: frozenset[str]) -> str:
        """Return where noise stands, seen from a fault."""
        if noise & self.below(fault):
            return "after" if self.reaches_end(fault, noise) else "only after"
        if noise & self.above(fault):
            roots = [node.name for node in self.nodes if not any(name in self.maker for name in node.input)]
            free = self.below(set(roots) - noise, noise)
            fed = [name for name in fault if name in free] if roots else []
            weights = {one for one in roots if one.endswith("_DequantizeLinear")}
            if not fed or (fed and not (set(fed) & self.below(set(roots) - weights - noise, noise))):
                return "only before"
            return "before"
        return "beside"


def plant(spec: Spec, seed: int, evaluator: Evaluator) -> Planted:
    """Return a model with what is wanted planted in it. Raises UnfitError."""
    conversion = Conversion(spec, seed, evaluator)
    draw = conversion.draw
    clean = conversion.made({})
    if not 55 <= len(clean.child.graph.node) <= 300:
        raise UnfitError(f"{len(clean.child.graph.node)} nodes")
    if error_of(clean, evaluator) > HEALTHY * 0.8:
        raise UnfitError("the conversion alone is not good enough")
    faults = _faults(conversion, evaluator)
    order = Order(conversion.made(faults).child)
    sets = [culprits(spec, conversion.made(faults).child, place, kind) for place, (kind, _) in faults.items()]
    kind = "coarse" if spec.dtype == "qdq" else "cancel"
    wanted = {"both": ("before", "after"), "many both": ("before", "after")}.get(
        spec.where, (spec.where.removeprefix("many "),)
    )
    sites = [site for site in conversion.sites if site not in faults]
    draw.shuffle(sites)
    if spec.where.startswith("many"):
        operators = {node.output[0]: node.op_type for node in conversion.parent.graph.node}
        common = [one for one in operators.values() if one not in ("Concat", "Sigmoid")]
        most = sorted({*common}, key=lambda one: (-common.count(one), one))
        chosen = most[int(draw.integers(min(3, len(most))))]
        sites = [site for site in sites if operators[site] == chosen]
    noise: dict[str, tuple[str, float]] = {}
    seen: list[str] = []
    limit = 8 if spec.where.startswith("many") else len(wanted) + int(draw.integers(2))
    for site in sites:
        strength = float(draw.uniform(LOCAL[0] + 0.1, LOCAL[1] - 0.05))
        trial = {**noise, site: (kind, strength)}
        both = conversion.made(trial | faults)
        nodes = culprits(spec, both.child, site, kind)
        # where a site has a fault as well as noise, or stands in a chain of the fault's, it is neither
        relations = {Order(both.child).relation(nodes, one) for one in sets}
        base = {one.removeprefix("only ") for one in relations} if not spec.where.startswith("only") else relations
        if len(base) != 1 or not base <= set(wanted):
            continue
        relation = base.pop()
        if len(wanted) == 2 and seen.count(relation) > seen.count(wanted[wanted[0] == relation]):
            continue
        local = alone(both, nodes, evaluator)
        if local is None or not LOCAL[0] <= local <= LOCAL[1]:
            continue
        if error_of(conversion.made(trial), evaluator) > HEALTHY:
            continue
        noise, seen = trial, [*seen, relation]
        if len(noise) == limit and set(seen) == set(wanted):
            break
    if set(seen) != set(wanted) or (spec.where.startswith("many") and len(noise) < 3):
        raise UnfitError(f"there is no place for noise {spec.where}")
    del order
    planted = conversion.made(noise | faults)
    planted.faults = sets
    planted.noise = [culprits(spec, planted.child, site, kind) for site in noise]
    _verify(planted, conversion, noise, faults, evaluator)
    return planted


def _verify(planted: Planted, conversion: Conversion, noise: Mapping[str, tuple[str, float]],
            faults: Mapping[str, tuple[str, float]], evaluator: Evaluator) -> None:  # fmt: skip
    planted.error = error_of(planted, evaluator)
    planted.healthy = error_of(conversion.made(noise), evaluator)
    planted.local = [alone(planted, nodes, evaluator) or 0.0 for nodes in planted.noise]
    if not LOUD <= planted.error < 200:
        raise UnfitError("the fault is not loud enough")
    if planted.healthy > HEALTHY:
        raise UnfitError("without the fault it is not healthy")
    if not all(LOCAL[0] <= one <= LOCAL[1] for one in planted.local):
        raise UnfitError("the noise is not just over the tolerance")
    if not 60 <= len(planted.child.graph.node) <= 300:
        raise UnfitError("it is too small, or too large")
    for place in faults:
        if len(faults) > 1:  # each fails at the outputs by itself, and what is left without one fails too
            others = {other: one for other, one in faults.items() if other != place}
            if error_of(conversion.made(noise | others), evaluator) < 2:
                raise UnfitError("a fault can be spared")
            if error_of(conversion.made({**noise, place: faults[place]}), evaluator) < 2:
                raise UnfitError("a fault does not show by itself")
    for nodes in planted.faults:
        if not (error := alone(planted, nodes, evaluator)) or error <= 2:
            raise UnfitError("a fault does not fail alone")


def _faults(conversion: Conversion, evaluator: Evaluator) -> dict[str, tuple[str, float]]:
    """Choose where faults go, and how strong they are, so that they are loud at the outputs."""
    spec, draw = conversion.spec, conversion.draw
    every = spec.fault.startswith("every ")
    kinds = spec.fault.removeprefix("every ").removeprefix("two: ").split(", ")
    found: dict[str, tuple[str, float]] = {}
    for kind in kinds:
        options = [place for place in places(conversion, kind) if place not in found]
        if not options:
            raise UnfitError(f"there is no place for {kind}")
        draw.shuffle(options)
        chosen = options[:3] if every else options[:1]
        for strength in STRENGTHS[kind]:
            trial = dict.fromkeys(chosen, (kind, strength))
            if LOUD * 1.1 <= error_of(conversion.made(trial), evaluator) < 150:
                found |= trial
                break
        else:
            raise UnfitError(f"{kind} is not loud enough")
    return found


def error_of(planted: Planted, evaluator: Evaluator) -> float:
    """Return the error of the whole child at its outputs."""
    with np.errstate(all="ignore"):
        values = evaluator.run(planted.child, planted.feeds)
    return worst(values, planted.good, outputs(planted.child))


def generated(spec: Spec, evaluator: Evaluator) -> Planted:
    """Return the first seed's model that has all properties. Raises UnfitError."""
    reasons = []
    for seed in range(spec.seed, spec.seed + SEEDS):
        try:
            return replace(plant(spec, seed, evaluator), seed=seed)
        except UnfitError as error:  # noqa: PERF203 - most seeds are no good
            reasons.append(str(error))
    raise UnfitError(f"{spec.name}: no seed of {SEEDS}: { ({one: reasons.count(one) for one in reasons}) }")


# ---- runs


CLIENT = """import socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect(sys.argv[1])
link.sendall(("\\n".join(sys.argv[2:]) + "\\n\\n").encode())
code, _, text = link.makefile().read().partition("\\n")
print(text)
sys.exit(int(code))
"""


class Checks(socketserver.ThreadingUnixStreamServer):
    """Judges for the command that Winnow runs, so that no check waits for Python to import a runtime."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), _Check)
        self.evaluator = Evaluator()
        self.lock = threading.Lock()


class _Check(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        words = []
        while line := self.rfile.readline().decode().strip():
            words.append(line)
        assert isinstance(self.server, Checks)
        try:
            with self.server.lock, np.errstate(all="ignore"):
                error = judged(*words, evaluator=self.server.evaluator)
            code, said = (
                (3, "nothing to compare") if error is None else (int(error > 1), f"error {min(error, 1e30):.4g}")
            )
        except Exception as error:  # noqa: BLE001 - it is told
            code, said = 3, f"{type(error).__name__}: {error}"
        self.wfile.write(f"{code}\n{said}".encode())


def judged(model: str, inputs: str, references: str, *, evaluator: Evaluator) -> float | None:
    """Return the error of a candidate in tolerances; None where nothing says what its outputs should be."""
    candidate = onnx.load(model)
    with np.load(inputs) as feeds, np.load(references) as good:
        values = evaluator.run(candidate, dict(feeds))
        names = [name for name in outputs(candidate) if name in good]
        return max(in_tolerances(values[name], good[name]) for name in names) if names else None


@dataclass(frozen=True)
class Way:
    """How Winnow is asked: the checker, and which end is looked for first."""

    check: str
    first: str

    def options(self, folder: Path) -> list[str]:
        """Return the overrides on the command line; ``folder``: where the command's client lies."""
        if self.check == "compare":
            return ["checker=compare", "checker.metric=scale", f"checker.rtol={RTOL}", f"checker.atol={ATOL}"]
        argv = [sys.executable, "-S", "-E", str(folder / "client.py"), str(folder / "socket"),
                "{model}", "{inputs}", "{references}"]  # fmt: skip
        options = ["checker=command", f"checker.command={json.dumps(argv)}", "checker.invalid_codes=[3]"]
        return options + (["checker.measure='error ([0-9.e+-]+)'"] if self.check == "measured" else [])


WAYS = (Way("compare", "start"), Way("compare", "end"), Way("measured", "start"), Way("plain", "start"))


def right(planted: Planted, nodes: Collection[str], evaluator: Evaluator) -> str:
    """Return ``right`` for a set that holds a faulty node and of which none can be spared, else what it is."""
    held = [fault for fault in planted.faults if fault & set(nodes)]
    # what a quantized tensor should hold may be told by its node, or by nobody: both are right; the first node of an
    # overflow fails alone where the check compares it with a good value that fp16 does not have
    if held and (
        (len(nodes) == 1)
        or set(nodes) in planted.faults
        or any(minimal(planted, nodes, evaluator, made_too=x) for x in (0, 1))
    ):
        return "right"
    if held:
        return "large"
    return "noise" if any(set(nodes) & noise for noise in planted.noise) else "other"


def ask(planted: Planted, way: Way, folder: Path, at: Path) -> dict:
    """Run Winnow; return its result."""
    run = at / f"{way.check}-{way.first}"
    argv = [
        *(sys.executable, "-m", "runner", f"model={at / 'child.onnx'}", f"reference.model={at / 'parent.onnx'}"),
        *("inputs=files", f"inputs.path={at / 'inputs.npz'}", "target.optimization=none", "checker.flaky=never"),
        f"target.rounding={'on' if planted.spec.dtype == 'fp16' else 'off'}",
        f"strategy.first={way.first}",
        # two faults take a second search
        *(["strategy.cause_checks=60"] if planted.joint else []),
        *way.options(folder),
        f"hydra.run.dir={run}",
    ]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    (at / f"{run.name}.txt").write_text(shlex.join(argv) + "\n" + done.stdout + done.stderr)
    if done.returncode:
        return {"exit": done.returncode, "said": (done.stdout + done.stderr).strip().splitlines()[-1:]}
    return json.loads((run / "result.json").read_text())


def shown(one: dict | None) -> str:
    """An experiment in a cell of the table."""
    if one is None:
        return "-"
    return one["outcome"] + ("" if one["measure"] is None else f" {one['measure']:.2g}")


def line(spec: Spec, way: Way, result: dict, first: str, last: str) -> str:
    """Return a row of the table."""
    if "cause" not in result:
        return f"{spec.name:42} {way.check:8} {way.first:5} exit {result['exit']}: {result['said']}"
    cause, checks = result["cause"], result["checks"]
    main = next(
        (one for one in cause["answers"] if set(one["culprits"]) == set(result["culprits"])), cause["answers"][0]
    )
    return (
        f"{spec.name:42} {way.check:8} {way.first:5} {first:6} {last:6} {cause['status']:10} {len(main['instances']):3}"
        f" {shown(cause['whole']):>11} {shown(main['good_outputs']):>11} {shown(main['good_inputs']):>11} "
        f"{checks['search']:4} {checks['cause']:3}"
    )


def write(planted: Planted, at: Path) -> None:
    """Write a model's files."""
    at.mkdir(parents=True, exist_ok=True)
    onnx.save(planted.parent, at / "parent.onnx")
    onnx.save(planted.child, at / "child.onnx")
    np.savez(at / "inputs.npz", **planted.feeds)
    said = {
        "faults": [sorted(one) for one in planted.faults],
        "noise": [sorted(one) for one in planted.noise],
        "error": planted.error,
        "healthy": planted.healthy,
        "local": planted.local,
    }
    (at / "planted.json").write_text(json.dumps(said, indent=1))


def asked(spec: Spec, ways: list[Way], out: Path, evaluator: Evaluator) -> list[tuple[Spec, Way, dict, str, str]]:
    """Make a model, run Winnow on it in several ways, and print a row of each."""
    try:
        planted = generated(spec, evaluator)
    except UnfitError as error:
        print(f"no model: {error}", flush=True)
        return []
    at = out / spec.name.replace(" ", "_").replace(":", "").replace(",", "")
    write(planted, at)
    print(
        f"# {spec.name} (seed {planted.seed}): {len(planted.child.graph.node)} nodes, {planted.error:.1f} tolerances "
        f"off, {planted.healthy:.2f} without the fault; {len(planted.noise)} x noise",
        flush=True,
    )
    rows = []
    with ThreadPoolExecutor(2) as pool:
        for way, result in zip(ways, pool.map(lambda way: ask(planted, way, out, at), ways), strict=True):
            found = [result["cause"]["answers"][0]["culprits"], result["culprits"]] if "cause" in result else []
            first, last = [right(planted, set(one), evaluator) for one in found] or ["-", "-"]
            rows.append((spec, way, result, first, last))
            print(line(*rows[-1]), flush=True)
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="", help="part of a name")
    parser.add_argument("--half", choices=["seen", "held"])
    parser.add_argument("--ways", default="", help="compare, measured, plain")
    given = parser.parse_args(arguments)
    out = (given.out or Path(tempfile.mkdtemp(prefix="planted-noise-"))).absolute()
    out.mkdir(parents=True, exist_ok=True)
    evaluator = Evaluator()
    (out / "client.py").write_text(CLIENT)
    (out / "socket").unlink(missing_ok=True)
    rows: list[tuple[Spec, Way, dict, str, str]] = []
    with Checks(out / "socket") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for spec in SPECS:
            if given.only in spec.name and (not given.half or (given.half == "held") is spec.held):
                rows += asked(spec, [way for way in WAYS if given.ways in way.check], out, evaluator)
        server.shutdown()
    for half in (False, True):
        print(f"\n## {'held back' if half else 'seen'}")
        for way in WAYS:
            some = [row for row in rows if row[0].held is half and row[1] == way]
            if some:
                count = {what: sum(test(row) for row in some) for what, test in TOTALS.items()}
                print(
                    f"{way.check:8} first={way.first:5} of {len(some)}: "
                    + ", ".join(f"{what} {n}" for what, n in count.items())
                )


TOTALS: dict[str, Callable[[tuple], bool]] = {
    "first right": lambda row: row[3] == "right",
    "culprits right": lambda row: row[4] == "right",
    "shown to be the cause": lambda row: row[4] == "right" and row[2]["cause"]["status"] in ("proven", "joint"),
    "wrongly proven": lambda row: row[4] not in ("right", "-") and row[2]["cause"]["status"] in ("proven", "joint"),
}


if __name__ == "__main__":
    main()
