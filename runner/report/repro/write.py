"""repro.py: one file that shows the failure of the reduced model, and needs what its first lines say.

It is made of templates (see `compose`): what this failure needs, and nothing else, so that a maintainer can read it.
What was found goes into it as literals of plain values, so no name of a node, a tensor or a file can become code.
It holds the model where a reader takes this in (see `stand_alone`), else it reads the files of the bundle beside it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx import TensorProto

from runner.files import write_text
from runner.model.files.external_data import locations
from runner.model.files.parse_without_weights import parse
from runner.model.values import tensor_file
from runner.report import check_files
from runner.report.repro import backends, checks, stand_alone
from runner.report.repro.compose import compose, template
from runner.report.sections.runtimes_section import relevant
from runner.report.summary import Summary
from runner.schema.backend import TensorRtBackend
from runner.schema.root import Settings

log = logging.getLogger(__name__)

REPRO_NAME = "repro.py"
# failures after which a process is not there to tell of them
_ENDS_THE_PROCESS = ("death", "timeout", "memory", "exit")
_MOST_NODES = 20
_MISSED, _MISSED_LOW = 0.001, 0.01
"""How often the script of a flaky failure may end without having seen it: by the rate that was measured, and by one
that is a standard deviation lower."""
_OWN_PROCESS = ("command", "interactive")  # these run nothing that may take the script down
_FIRST = ("python", "numpy", "onnx", "onnxruntime")
_CPU = ["CPUExecutionProvider"]
# types that NumPy has under no name of its own
_NARROW = frozenset(kind for name, kind in TensorProto.DataType.items() if name.startswith(("BFLOAT", "FLOAT8")))


@dataclass(frozen=True)
class Repro:
    """The source of a script, and whether it stands alone."""

    source: str = ""
    alone: bool = False


@dataclass(frozen=True)
class Beside:
    """What lies beside the script. ``data``: a folder for each sample.

    ``meant``: some good output is not finite, so that only the output counts that failed. ``copies``: files of the
    check, by their paths here (see `check_files`); None: the check lies where it was run.
    """

    model: str = "reduced.onnx"
    data: Sequence[str] = ("test_data_set_0",)
    meant: bool = False
    copies: Mapping[Path, str] | None = None


def write_repro(
    folder: Path,
    summary: Summary,
    settings: Settings,
    cwd: Path,
    beside: Beside | None = None,
    printed: stand_alone.Printed | None = None,
) -> Repro:
    """Write ``repro.py`` into ``folder``: see `repro`. Raises OSError."""
    made = repro(folder, summary, settings, cwd, beside or Beside(), printed)
    write_text(folder / REPRO_NAME, made.source)
    return made


def repro(
    folder: Path,
    summary: Summary,
    settings: Settings,
    cwd: Path,
    beside: Beside,
    printed: stand_alone.Printed | None = None,
) -> Repro:
    """Return ``repro.py`` for what lies in ``folder``.

    Run by any Python >= 3.8, it exits with 1 if the failure shows, 0 if not, 2 if that machine cannot tell. ``cwd``:
    where the user stands. It stands alone where it can. ``printed``: None: it never does.
    """
    target, checker, signature = settings.target, settings.checker, dict(summary.signature or {})
    stage, kind = signature.get("stage", ""), signature.get("kind", "")
    ends, error = kind.startswith(_ENDS_THE_PROCESS), kind.startswith("error")
    judge = checks.template_of(settings, stage, runs=not ends and not error)
    command, runs = judge == "command", judge in ("runs", "builds", "finite", "compare")
    values = checks.values_of(checker, cwd, summary.evidence, kind)
    if beside.copies is not None:
        values = check_files.moved(values, checker, cwd, beside.copies)
    model, data, versions = beside.model, beside.data, relevant(summary)
    loaded = parse(folder / model)
    order = dict.fromkeys(name for name in (*_FIRST, *versions) if name in versions)
    declared = [value.type for value in (*loaded.graph.input, *loaded.graph.output)]
    containers = any(one.WhichOneof("value") != "tensor_type" for one in declared)
    types = {one.tensor_type.elem_type for one in declared}
    ran = {"target": target} if runs else {}
    if judge == "compare" and checks.runs_beside(settings):
        ran["reference"] = settings.reference
    recorded = judge == "compare" and "reference" not in ran
    engine = target if runs and isinstance(target, TensorRtBackend) else None
    given: dict[str, Any] = {
        **(backends.values_of(engine, cwd) if engine else {}),
        **values,
        "stage": stage,
        "kind": kind,
        "detail": signature.get("detail", "")[: 180 if error else 60],
        "raised": sorted({one.partition(" at ")[0].strip() for one in signature.get("raised", "").split(", ")} - {""}),
        "nodes": _few(summary.culprits),
        "then": ", ".join(f"{name} {versions[name]}" for name in order),
        "model": model,
        "data": list(data or [""])[: 1 if command and not values["samples"] else None],
        "place": checks.placed(checker, model, sorted(locations(loaded))),
        "meant": beside.meant and summary.evidence.get("output"),
        "shapes": not error and not ends,
        "error": error,
        "ends": not command and (ends or judge == "python" or bool(checker.memory_mb)),
        "containers": containers,
        "recorded": recorded,
        "recorded_containers": recorded and containers,
        "narrow": bool(types & _NARROW),
        "plain": not (containers or types & _NARROW),
        "text": containers or TensorProto.STRING in types,
        "whole": containers or any(number in tensor_file.INTEGERS for number in types),
        "accelerated": any(getattr(one, "providers", _CPU) != _CPU for one in ran.values()),
        "engine": engine is not None,
        "reference": "reference" in ran,
        "flaky": _flaky(summary),
        "beside": False,
    }
    sources = [*(backends.runner(*one, cwd) for one in ran.items()), template(judge)]
    sources += [template(name) for name in ([] if judge in _OWN_PROCESS else ["child_process"]) + ["program"]]
    if printed:
        try:
            return Repro(stand_alone.source(folder, given, settings, ran, sources, printed), alone=True)
        except Exception as why:  # noqa: BLE001 - whatever cannot be held in a script lies beside it
            log.debug("%s needs the files beside it: %s: %s", REPRO_NAME, type(why).__name__, why)
    needs = {"command": ["the command with what that needs"], "python": ["what the function imports"]}.get(judge, [])
    needs += ["tensorrt (or tensorrt_rtx)"] if engine else []
    needs += ["cuda-python", "a GPU"] if engine and judge != "builds" else []
    files = [template("files"), template("containers" if containers else "values")]
    return Repro(compose([*files, *sources], {**given, "beside": True}, needs))


def _flaky(summary: Summary) -> dict[str, int]:
    """Return how often a flaky failure has to be tried to show, and what that rests on; nothing of any other one.

    Where a model that must pass fails at times as well, trying again would
    show that instead, so the script tries once.
    """
    rates = summary.reliability or {}
    whole, control = (rates.get(name) or {} for name in ("whole_model", "control"))
    failed, of = whole.get("failed", 0), whole.get("of", 0)
    if not 0 < failed < of or control.get("failed"):
        return {}
    low = max(failed - math.sqrt(failed), 0.5)
    bounds = ((_MISSED, failed), (_MISSED_LOW, low))
    times = max(math.floor(math.log(missed) / math.log(1 - fails / of)) + 1 for missed, fails in bounds)
    return {"times": times, "rarely": round(1 / _MISSED), "failed": failed, "of": of}


def _few(names: Sequence[str]) -> list[str]:
    more = len(names) - _MOST_NODES
    return [*names[:_MOST_NODES], *([f"and {more} more"] if more > 0 else [])]
