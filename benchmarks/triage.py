"""Triage failures whose cause is known, and compare with what was expected before any of them was run.

    python -m benchmarks.triage [--cases DIR] [--trt PYTHON] [--keep DIR] [--option key=value ...] [NAME ...]

``--cases``: a folder of cases (see `benchmarks.cases`); each is judged by ``checker=auto`` under its interpreters, or
else by its check.py. Beside them are planted failures in fp16, and with ``--trt`` failures of TensorRT's builder under
that interpreter. Given are the model, the inputs, and the checker or the backends; nothing else. What is expected is in
triage_expected.yaml. Releases are asked only where they are cached, so they count only where any was.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import yaml

from benchmarks.cases import command, judged_by_auto, right
from benchmarks.planted_half_precision import KINDS, half_precision_failure
from benchmarks.trt_networks import CULPRIT, FAILURES, resnet

EXPECTED = Path(__file__).with_name("triage_expected.yaml")
HEAD = ("case", "branch", "culprits", "cause", "pass", "releases", "workaround", "checks", "seconds", "agreement")


@dataclass(frozen=True)
class Failure:
    """``options``: how Winnow is asked. ``truth``: whose culprits are right, as truth.json has them."""

    name: str
    model: Path
    options: list[str]
    truth: Mapping[str, Any]
    expected: Mapping[str, Any]


def failures(cases: Path | None, trt: str | None, scratch: Path) -> Iterator[Failure]:
    """Yield all of them; planted ones are written where they are asked for."""
    table = yaml.safe_load(EXPECTED.read_text())
    for name, expected in table["cases"].items() if cases else ():
        assert cases is not None
        case = cases.resolve() / name
        words = command(case, Path(), [], None, auto=judged_by_auto(case) is not None)[4:]
        options = [word for word in words if not word.startswith(("hydra.", "model=", "verbosity="))]
        truth = json.loads((case / "truth.json").read_text())
        yield Failure(name, case / "model.onnx", options, truth, expected)
    for name in KINDS:
        made, folder = half_precision_failure(name), scratch / name
        folder.mkdir()
        onnx.save(made.parent, str(folder / "parent.onnx"))
        onnx.save(made.child, str(folder / "half.onnx"))
        np.savez(folder / "inputs.npz", **{key: value.astype(np.float16) for key, value in made.feeds.items()})
        options = ["inputs=files", f"inputs.path={folder / 'inputs.npz'}", f"reference.model={folder / 'parent.onnx'}"]
        expected = table["half_precision"][name]
        truth = {"any_of": expected["culprits"]}
        yield Failure(name, folder / "half.onnx", [*options, "target=onnx_reference"], truth, expected)
    for name, failure in FAILURES.items() if trt else ():
        path = scratch / f"builder_{name}.onnx"
        model = resnet(failure.opset, failure.plant)
        onnx.save(model, str(path))
        planted = [node.name for node in model.graph.node if node.name.startswith(CULPRIT)]
        options = ["checker=builds", "target=tensorrt", f"target.python={trt}", *failure.options]
        yield Failure(f"builder_{name}", path, options, {"planted": planted}, table["builder"][name])


def asked(failure: Failure, folder: Path, more: list[str]) -> dict[str, Any]:
    """Return the result of a triage."""
    given = [f"model={failure.model}", *failure.options, *more, f"hydra.run.dir={folder}", "verbosity=warning"]
    argv = [sys.executable, "-m", "runner", "strategy=triage", *given]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    path = folder / "result.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return found if found.get("triage") else {**found, "message": f"{found.get('message', '')}{ended.stderr[-300:]}"}


def differences(failure: Failure, result: Mapping[str, Any]) -> list[str]:
    """Return what is not as expected."""
    expected, told = failure.expected, result.get("triage") or {}
    found = [] if told.get("branch") == expected["branch"] else [f"branch {expected['branch']}"]
    culprits = result.get("culprits") or []
    if not _right(failure, culprits):
        found.append("culprits")
    passes = result.get("passes") or {}
    if sorted(passes.get("needed") or ()) != sorted(expected["passes"] or ()):
        found.append(f"pass {expected['passes']}")
    releases, wanted = result.get("releases"), expected.get("releases")
    if releases and wanted and any(releases.get(key) != wanted[key] for key in wanted):
        found.append(f"releases {wanted}")
    kinds = {one["kind"] for one in result.get("workarounds") or () if one["passes"]} or {None}
    if expected["workaround"] not in kinds:
        found.append(f"workaround {expected['workaround']}")
    return found


def _right(failure: Failure, culprits: list[str]) -> bool:
    if "planted" in failure.truth:
        return bool(culprits) and set(culprits) <= set(failure.truth["planted"])
    if "any" in failure.expected:  # as many nodes of these operators, wherever they are
        graph = onnx.load(str(failure.model), load_external_data=False).graph
        operators = {node.name: node.op_type for node in graph.node}
        return sorted(operators.get(name, name) for name in culprits) == sorted(failure.expected["any"])
    return bool(right(culprits, dict(failure.truth), failure.model))


def row(failure: Failure, result: Mapping[str, Any], differ: list[str]) -> str:
    """Return a row of the table."""
    told, releases = result.get("triage") or {}, result.get("releases") or {}
    passing = "; ".join(filter(None, map(_workaround, result.get("workarounds") or ())))
    paid = sum((result.get("checks") or {}).get(name, 0) for name in ("search", "trust", "refine", "cause"))
    cells = (
        *(failure.name, told.get("branch", result.get("message", "?")), ", ".join(result.get("culprits") or ())),
        *((result.get("cause") or {}).get("status", ""), ", ".join((result.get("passes") or {}).get("needed", ()))),
        f"{releases.get('good_before')} .. {releases.get('good_after')}" if releases else "not asked",
        *(passing, paid, f"{(result.get('seconds') or {}).get('total', 0):.1f}"),
        f"no: expected {'; '.join(differ)}" if differ else "yes",
    )
    return "| " + " | ".join(" ".join(str(cell).split()) for cell in cells) + " |"


def _workaround(one: Mapping[str, Any]) -> str:
    """Return a workaround and how it was shown; "" for one that does not pass."""
    samples = one["samples"]
    passed = f"{samples['passed']} of {samples['of']} {samples['kind']}"
    return f"{one['kind']}: {one['what'][:60]} ({passed})" if one["passes"] else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--cases", type=Path)
    parser.add_argument("--trt", help="an interpreter with TensorRT")
    parser.add_argument("--keep", type=Path, help="leave the run folders here")
    parser.add_argument("--option", action="append", default=[])
    given = parser.parse_args()
    wrong = 0
    print(f"| {' | '.join(HEAD)} |\n{'|---' * len(HEAD)}|")
    with tempfile.TemporaryDirectory() as place:
        scratch = Path(place)
        for failure in failures(given.cases, given.trt, scratch):
            if given.names and failure.name not in given.names:
                continue
            result = asked(failure, (given.keep or scratch / "runs").absolute() / failure.name, given.option)
            differ = differences(failure, result)
            wrong += bool(differ)
            print(row(failure, result, differ), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
