"""repro.py: one file that shows the failure of the reduced model beside it, and needs what its first lines say.

It is made of a template (see `script`): what this failure needs, and nothing else, so that a maintainer can read it.
What was found goes into it as literals of plain values, so no name of a node, a tensor or a file can become code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto

from runner.checkers.compare.tolerances import rules_of
from runner.files import write_text
from runner.model.files.external_data import locations
from runner.report.repro_facts import Facts, Runtime, threshold_of
from runner.report.repro_script import compose
from runner.report.summary import Summary
from runner.schema.checker import (
    AutoChecker,
    BuildsChecker,
    CommandChecker,
    CompareChecker,
    FiniteChecker,
    InteractiveChecker,
    PythonChecker,
    Tolerance,
)

REPRO_NAME = "repro.py"
_TEMPLATES = tuple(Path(__file__).with_name(name) for name in ("repro_template.txt", "repro_tensorrt.txt"))
# failures after which a process is not there to tell of them
_ENDS_THE_PROCESS = ("death", "timeout", "memory", "exit")
_MOST_NODES = 20
# types that NumPy has under no name of its own
_NARROW = frozenset(kind for name, kind in TensorProto.DataType.items() if name.startswith(("BFLOAT", "FLOAT8")))
_MODULES = {
    "auto": ["tensorrt", "tensorrt_rtx", "tensorrt_rtx_bindings"],
    "tensorrt": ["tensorrt"],
    "tensorrt_rtx": ["tensorrt_rtx", "tensorrt_rtx_bindings"],
}
_HEAD = '''"""Shows one failure of {model}: run it with `python repro.py`.

It needs {needs}.
Exit status: 1 the failure shows, 0 it does not, 2 it cannot be told here (the reason is printed).
"""

'''


def write_repro(folder: Path, summary: Summary, facts: Facts) -> Path:
    """Write ``repro.py`` into ``folder``, beside ``facts.model`` and ``facts.data``; return its path.

    Run by any Python >= 3.8, it exits with 1 if the failure shows, 0 if not, 2 if that machine cannot tell.
    """
    signature = dict(summary.signature or {})
    stage, kind = signature.get("stage", ""), signature.get("kind", "")
    judge, sides = _judge(facts, stage, kind)
    flags = {judge, *_judging(judge, facts, summary.evidence), *_running(judge, sides, stage)}
    model = onnx.load(str(folder / facts.model), load_external_data=False)
    weights = sorted(locations(model))
    values = [*model.graph.input, *model.graph.output]
    flags |= {"containers"} if any(value.type.WhichOneof("value") != "tensor_type" for value in values) else set()
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    flags |= {"narrow"} if _NARROW & {*types.values()} and "onnxruntime" in flags else set()
    flags |= {"weights"} if weights and "place" in flags else set()
    target = _side(facts.target, facts.rounded if facts.target.rounding != "off" else facts.model, types, flags)
    checker, rules = facts.settings, rules_of(facts.settings)
    constants: dict[str, Any] = {
        "STAGE": stage,
        "KIND": kind,
        "DETAIL": signature.get("detail", ""),
        "NODES": _few(summary.culprits),
        "VERSIONS": dict(summary.versions),
        "PACKAGES": _packages(judge, flags),
        "MODEL": facts.model,
        "DATA": list(facts.data),
        "TARGET": target,
        "REFERENCE": _side(facts.reference, facts.model, types, flags) if facts.reference else None,
        "MODULES": _MODULES[str(facts.target.settings.get("flavor", "auto"))],
        "TIMEOUT": checker.timeout,
        "MEMORY_MB": checker.memory_mb,
        **_rules(checker, kind, summary.evidence),
        "RTOL": dict(rules.rtol),
        "ATOL": dict(rules.atol),
        **_command(facts, str(signature.get("raised", ""))),
        "WEIGHTS": weights,
    }
    imports = {
        "np": "import numpy as np",
        "onnx": "import onnx",
        "ReferenceEvaluator": "from onnx.reference import ReferenceEvaluator",
        "onnxruntime": 'os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")\nimport onnxruntime',
    }
    flags |= {"timeout"} if checker.timeout else set()
    flags |= {"memory"} if checker.memory_mb else set()
    template = "".join(path.read_text(encoding="utf-8") for path in _TEMPLATES)
    head = _HEAD.format(model=facts.model, needs=_needs(judge, flags, facts))
    path = folder / REPRO_NAME
    write_text(path, head + compose(template, flags, constants, imports))
    return path


def _judge(facts: Facts, stage: str, kind: str) -> tuple[str, list[Runtime]]:
    """Return what shows a failure of this kind, and what has to run; any runtime may meet a model that does not run."""
    checker, sides = facts.settings, [facts.target]
    for name, one in (("command", CommandChecker), ("python", PythonChecker), ("person", InteractiveChecker)):
        if isinstance(checker, one):
            return name, []
    if kind.startswith("error"):
        return "error", sides
    if kind.startswith(_ENDS_THE_PROCESS):
        return "dies", sides
    if isinstance(checker, BuildsChecker):
        return "shapes", sides
    if isinstance(checker, FiniteChecker) or (isinstance(checker, AutoChecker) and stage != "compare"):
        return "finite", sides
    return "compare", [*sides, *([facts.reference] if facts.reference else [])]


def _judging(judge: str, facts: Facts, evidence: Mapping[str, Any]) -> set[str]:
    """Return the flags of how it is judged."""
    checker, flags = facts.settings, {"inside"}
    if judge in ("command", "person"):
        flags = set()
    if isinstance(checker, CommandChecker):
        flags |= {name for name in ("pass_codes", "fail_codes", "fail_regex") if getattr(checker, name)}
        flags |= {"other_codes"} if checker.different_codes or checker.invalid_codes else set()
        flags |= facts.mentions & {"inputs", "references"}
        flags |= {"samples"} if flags & {"inputs", "references"} else set()
        flags |= {"place", "placed_model"} if checker.place else set()
        flags |= {"place", "information"} if checker.iteration_info else set()
    elif isinstance(checker, PythonChecker):
        flags |= {"threshold"} if threshold_of(checker) else set()
    elif judge == "compare":
        rules = rules_of(checker)
        flags |= {"reference"} if facts.reference else set()
        flags |= {one.value for one in rules.metrics} | {rules.settings.statistic.value}
        flags |= {"limit"} if _limit(checker, evidence) is not None else set()
        flags |= {"outputs"} if rules.settings.outputs or "limit" in flags else set()
    elif judge == "finite" and facts.meant and evidence.get("output"):
        flags |= {"meant"}
    return flags


def _running(judge: str, sides: list[Runtime], stage: str) -> set[str]:
    """Return the flags of what runs, and of what was set."""
    flags = {{"onnx_reference": "evaluator"}.get(side.name, side.name) for side in sides}
    flags |= {"builds"} if "tensorrt" in flags and (judge == "shapes" or stage in ("load", "build")) else set()
    for side in sides:
        flags |= {name for name in side.settings if side.settings[name]}
        flags |= {"settings"} if side.name == "tensorrt" else set()
    return flags


def _side(side: Runtime, model: str, types: Mapping[str, int], flags: set[str]) -> dict[str, Any]:
    """Return what the script has to know of one side."""
    narrow = {"types": {name: kind for name, kind in types.items() if kind in _NARROW}} if "narrow" in flags else {}
    return {"name": side.name, "model": model, **side.settings, **narrow}


def _packages(judge: str, flags: set[str]) -> list[str]:
    """Return the packages whose versions the script shows."""
    values = judge in ("error", "dies", "finite", "compare", "shapes", "python") or "samples" in flags
    return [*(["numpy", "onnx"] if values else []), *(["onnxruntime"] if "onnxruntime" in flags else [])]


def _needs(judge: str, flags: set[str], facts: Facts) -> str:
    """Say what has to be there."""
    packages = _packages(judge, flags)
    packages += ["tensorrt (or tensorrt_rtx)"] if "tensorrt" in flags else []
    packages += ["cuda-python, and a GPU"] if "tensorrt" in flags and "builds" not in flags else []
    more = f", and {', '.join(packages)}" if packages else ""
    asked = {"command": ", and the command with what that needs", "python": ", and what the function imports"}.get(
        judge, ""
    )
    return f"the files beside it, Python >= 3.8{more}{asked}"


def _limit(checker: Any, evidence: Mapping[str, Any]) -> float | None:
    """Return the limit that was measured, where the tolerance was."""
    measured = isinstance(checker, CompareChecker) and checker.tolerance is Tolerance.auto
    return evidence.get("limit") if measured and "output" in evidence and not evidence.get("exact") else None


def _rules(checker: Any, kind: str, evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constants of a check of values."""
    rules = rules_of(checker)
    looked = [
        name
        for name in ("nan", "inf")
        if not isinstance(checker, FiniteChecker) or getattr(checker, name).value == "fail"
    ]
    limit = _limit(checker, evidence)
    return {
        "LOOKED_FOR": looked,
        "COUNTED": [evidence.get("output")],
        "METRICS": [one.value for one in rules.metrics],
        "OUTPUTS": [evidence["output"]] if limit is not None else list(rules.settings.outputs),
        "NAN": rules.settings.nan,
        "INF": rules.settings.inf,
        "LIMIT": limit,
        "FRACTION": rules.settings.fraction,
        "COSINE": rules.settings.cosine,
        "QUANTILE": rules.settings.quantile,
    }


def _command(facts: Facts, raised: str) -> dict[str, Any]:
    """Return the constants of a check of the user's: its words, its files, and the classes of what it raised."""
    checker = facts.settings
    given: dict[str, Any] = {"FILES": dict(facts.files), "CWD": facts.cwd}
    given["RAISED"] = sorted({one.partition(" at ")[0].strip() for one in raised.split(", ") if one})
    if isinstance(checker, CommandChecker):
        lists = {
            f"{name}_codes": list(getattr(checker, f"{name}_codes"))
            for name in ("pass", "fail", "invalid", "different")
        }
        given |= {name.upper(): codes for name, codes in lists.items()}
        given |= {"LISTED": sorted({code for codes in lists.values() for code in codes})}
        given |= {
            "FAIL_REGEX": list(checker.fail_regex),
            "COMMAND": list(facts.words),
            "ENVIRONMENT": dict(checker.env),
        }
        given |= {"PLACE": checker.place, "INFORMATION": checker.iteration_info}
    elif isinstance(checker, PythonChecker):
        given |= {"FUNCTION": checker.function, **(threshold_of(checker) or {})}
    return given


def _few(names: tuple[str, ...]) -> list[str]:
    more = len(names) - _MOST_NODES
    return [*names[:_MOST_NODES], *([f"and {more} more"] if more > 0 else [])]
