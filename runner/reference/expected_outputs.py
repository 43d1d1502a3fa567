"""Expected outputs from files, `reference=files`: what the model's outputs should hold, whatever runs the model.

Of tensors inside the model they say nothing. What a runtime made of these is good where its run of the whole model
gives the expected outputs; where it does not, no good value inside is known.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from runner.checkers.metrics import Difference, compare_recorded
from runner.checkers.tolerances import rules_of
from runner.judgment import UsageError, gives_expected
from runner.model.graph.graph_index import Graph
from runner.model.values.recorded import TensorFile
from runner.reference.recording import Recorded
from runner.samples.declared_inputs import declared_outputs
from runner.samples.files import INPUTS, OUTPUTS, read, sources
from runner.schema.backend import FilesBackend
from runner.schema.inputs import FilesInputs, RandomInputs
from runner.schema.root import Settings
from runner.text import counted, listed

log = logging.getLogger(__name__)

Values = tuple[Mapping[str, TensorFile], ...]


def expected_outputs(settings: Settings, graph: Graph, count: int, folder: Path) -> Values:
    """Return the expected outputs of each of ``count`` samples, those that the files hold; none without such files.

    Raises UsageError where there are none for these samples, and for files that cannot be read or do not fit.
    """
    reference = settings.reference
    if not isinstance(reference, FilesBackend):
        return ()
    if isinstance(settings.inputs, RandomInputs) and graph.inputs:
        raise UsageError(
            f"reference=files inputs={settings.inputs.name}: expected outputs belong to certain inputs. Give these: "
            "inputs=files inputs.path=inputs.npz"
        )
    path = _beside_inputs(settings) if reference.path is None else reference.path
    every = read(path, OUTPUTS, declared_outputs(graph), folder / "expected", getattr(settings.inputs, "split", None))
    if len(every) != count:
        raise UsageError(
            f"reference.path={path}: it holds {counted(len(every), 'sample')}, and inputs={settings.inputs.name} "
            f"{count}. Each sample of the inputs needs its own expected outputs, in the same order"
        )
    names = [name for name in graph.outputs if all(name in one for one in every)]
    wanted = getattr(settings.checker, "outputs", ())
    if not any(map(rules_of(settings.checker).settings.selects, names)):
        what = f"checker.outputs=[{', '.join(wanted)}]" if wanted else "there is no output that all samples have"
        raise UsageError(f"{what}: reference.path={path} holds {listed(names or [*every[0]])}")
    if rest := [name for name in graph.outputs if name not in names]:
        log.warning("the model is judged at %s: there are no expected values of %s", listed(names), listed(rest))
    return tuple({name: one[name] for name in names} for one in every)


def _beside_inputs(settings: Settings) -> list[str]:
    """Return the data sets of the inputs, which hold expected outputs as well. Raises UsageError for others."""
    inputs = settings.inputs
    found = sources(inputs.path, INPUTS) if isinstance(inputs, FilesInputs) else []
    lacking = [one for one in found if not any(one.glob("output_*.pb"))]
    if lacking or not found:
        where = f"{lacking[0]} has no output_*.pb" if lacking else f"inputs={settings.inputs.name} names no data set"
        raise UsageError(f"reference.path=: where are the expected outputs? {where}. Give {OUTPUTS.forms}")
    return [str(one) for one in found]


def with_expected(settings: Settings, graph: Graph, recorded: Recorded, expected: Values) -> Recorded:
    """Return recorded values in which the outputs hold what is expected, and how far the run was from that."""
    if not expected:
        return recorded
    rules, inputs, far = rules_of(settings.checker), set(graph.inputs), [(0.0, "")]
    for sample, good in zip(recorded.values, expected, strict=True):
        for name in good.keys() & sample.keys():
            found = max((compare_recorded(sample[name], good[name], one) for one in rules.of_output(name)), key=_off)
            size = _off(found)
            said = found.detail or (f"{size:.3g} times the tolerance" if size < math.inf else found.kind)
            far.append((size, f"{name}: {said}"))
    off, off_by = max(far)
    # an input may be an output as it is
    held = ({name: value for name, value in good.items() if name not in inputs} for good in expected)
    return replace(
        recorded,
        values=tuple({**one, **good} for one, good in zip(recorded.values, held, strict=True)),
        run=recorded.values,
        unjudged=frozenset(graph.outputs) - expected[0].keys(),
        off=off,
        off_by=off_by,
    )


def _off(found: Difference) -> float:
    return found.rank()[1] if found.kind in ("", "mismatch") else math.inf


def unlike_expected(settings: Settings, recorded: Recorded, whole: float | None) -> str:
    """Return why no good value inside a failing model is known, though its expected outputs are; "" where one is.

    ``whole``: how far the model is from what is expected, in tolerances; None: that is not measured.
    """
    off, model = recorded.off, settings.reference.model
    if not recorded.run or gives_expected(off, whole):
        return ""
    run = f"reference.model={model}" if model else "a plain run of the model"
    if off <= 1:
        return (
            f"{run} differs from the expected outputs by {off:.2g} times the tolerance ({recorded.off_by}), the "
            f"target by {whole:.3g}: too close to know the right values inside. Give a larger tolerance "
            "(checker.rtol=), or a reference that is nearer"
        )
    return (
        f"{run} does not compute the expected outputs either ({recorded.off_by}): no good value inside the model is "
        "known, and no part of the model can be judged"
    )
