"""From a model file to all that cutting it needs: sanitized or not, with inputs as its profiles move."""

from __future__ import annotations

import logging
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from runner.backends.errors import StageError
from runner.backends.trt.build_options import Range, range_of
from runner.checkers.checker import Checker, feeds_inputs
from runner.checkers.metrics import Difference, compare_recorded
from runner.checkers.tolerances import check_outputs, rules_of
from runner.disk_space import recording_limits
from runner.exit_codes import NotApplicable, UsageError, WinnowError
from runner.journal.kept_files import confirm_source, leave_affordable, leave_kept
from runner.judgment import gives_expected
from runner.model.files.candidate_store import Store
from runner.model.graph.graph_index import Graph
from runner.model.passes.infer_shapes import read_types
from runner.model.values import recorded
from runner.model.values.recorded import TensorFile
from runner.reference.body_values import Level, loop_types, opened
from runner.reference.hints import doubts, reference_run
from runner.reference.models import ingest, needs_values, recorder, recording_backend
from runner.reference.recording import Recorded, Recorder
from runner.samples.ask_reference import Reference, Taken, taken, write_refusal
from runner.samples.declared_inputs import Declared, declared, declared_outputs, refuse_unknown, tensor
from runner.samples.files import INPUTS, OUTPUTS, read, sources
from runner.samples.needed_values import Run, begins
from runner.samples.sizes_and_ranges import samples
from runner.schema.backend import FilesBackend, TensorRtBackend
from runner.schema.inputs import FilesInputs, InputsSettings, RandomInputs
from runner.schema.root import Settings, ShapeInference
from runner.text import counted, in_tolerances, listed, program_name
from runner.verdict import Sample, Signature
from runner.workers.pool import Pool, limited, operate

# Expected outputs from files, `reference=files`: what the model's outputs should hold, whatever runs the model.
#
# Of tensors inside the model they say nothing. What a runtime made of these is good where its run of the whole model
# gives the expected outputs; where it does not, no good value inside is known.

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
            said = found.detail or (in_tolerances(size) if size < math.inf else found.kind)
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
    off, run = recorded.off, reference_run(settings)
    if not recorded.run or gives_expected(off, whole):
        return ""
    if off <= 1:
        return (
            f"{run} differs from the expected outputs by {off:.2g} times the tolerance ({recorded.off_by}), the "
            f"target by {whole:.3g}: too close to know the right values inside. Give a larger tolerance "
            "(checker.rtol=), or a reference that is nearer"
        )
    return (
        f"{run} also gives other outputs than your files ({recorded.off_by}), so the right values inside the model are "
        "not known"
    )


if TYPE_CHECKING:
    from runner.reference.parent import Inherited


# Inputs as the profiles of a TensorRT target say that they move: the shapes to optimize for first, then both ends.

_PROFILES, _VALUES = "target.profiles", "target.shape_values"


def profiled_samples(
    settings: Settings, graph: Graph, pool: Pool, folder: Path
) -> tuple[tuple[dict[str, TensorFile], ...], list[str]]:
    """Return the samples for a model's inputs, and warnings about those that lie outside the profiles.

    Random ones are drawn for the shapes (and hold the shape values) to optimize for, and once more for the least and
    the largest ones: tensors at cuts then move as they would. Raises what `samples` does, and UsageError for profiles
    that do not fit the model.
    """
    inputs, target = settings.inputs, settings.target
    if not isinstance(target, TensorRtBackend) or not (target.profiles or target.shape_values):
        return samples(inputs, graph, pool, folder), []
    known = declared(graph)
    profiles, values = _ranges(_PROFILES, target.profiles, known), _ranges(_VALUES, target.shape_values, known)
    for name, ranges in profiles.items():
        for end, shape in zip(("min", "opt", "max"), ranges, strict=True):
            negative = any(size < 0 for size in shape)
            if why := "has a negative size" if negative else known[name].mismatch(known[name].dtype, shape):
                raise UsageError(f"{_PROFILES}.{name}={target.profiles[name]}: {end} {why}")
    found: tuple[dict[str, TensorFile], ...] = ()
    for number, (asked, held) in enumerate(_asked(inputs, profiles, values)):
        drawn = samples(asked, graph, pool, folder / f"end_{number}" if number else folder)
        found += tuple(_holding(sample, held, known) for sample in drawn)
    return found, [*_outside(profiles, found)]


def _ranges(key: str, given: Mapping[str, Any], known: Mapping[str, Declared]) -> dict[str, Range]:
    refuse_unknown(key, given, known)
    try:
        return {name: range_of(f"{key}.{name}", one) for name, one in given.items()}
    except StageError as error:
        raise UsageError(str(error)) from None


def _asked(
    inputs: InputsSettings, profiles: Mapping[str, Range], values: Mapping[str, Range]
) -> Iterator[tuple[InputsSettings, dict[str, list[int]]]]:
    """Yield what is to be drawn, and the values that inputs then hold."""
    if not isinstance(inputs, RandomInputs):
        yield inputs, {}
        return
    for end in (1, 0, 2):
        shapes, held = ({name: one[end] for name, one in ranges.items()} for ranges in (profiles, values))
        if end == 1:
            # the shapes that are given are the user's choice of a first sample
            yield replace(inputs, shapes={**shapes, **inputs.shapes}), held
        else:
            yield replace(inputs, shapes={**inputs.shapes, **shapes}, samples=1), held


def _holding(
    sample: dict[str, TensorFile], held: Mapping[str, Sequence[int]], known: Mapping[str, Declared]
) -> dict[str, TensorFile]:
    """Return a sample in which inputs hold these values."""
    for name, numbers in held.items():
        old = sample[name]
        size = int(np.prod(old.shape, dtype=np.int64))
        if size != len(numbers) and len(old.shape) != 1:
            raise UsageError(
                f"{_VALUES}.{name}={list(numbers)}: the input {known[name]} holds {size} values, not {len(numbers)}"
            )
        shape = (len(numbers),) if len(old.shape) == 1 else old.shape
        if why := known[name].mismatch(known[name].dtype, shape):
            raise UsageError(f"{_VALUES}.{name}={list(numbers)}: {name!r} then {why}")
        array = tensor(np.asarray(numbers).reshape(shape), name, known[name].dtype)
        sample[name] = recorded.write(array, name, old.path)
    return sample


def _outside(profiles: Mapping[str, Range], found: Sequence[Mapping[str, TensorFile]]) -> Iterator[str]:
    for name, (low, _, high) in profiles.items():
        for number, sample in enumerate(found):
            shape = sample[name].shape if name in sample else ()
            if len(shape) == len(low) and any(not a <= size <= b for a, size, b in zip(low, shape, high, strict=True)):
                yield (
                    f"sample {number} of the input {name} is {list(shape)}, outside {_PROFILES}.{name} "
                    f"({low} to {high}): an engine built for it does not take this sample"
                )


# The model as a run takes it: the user's own file, or what `sanitize` makes of it.

FOLDER = "sanitized"
STEPS = ("fold", "shapes", "cleanup")


def own_file_only(settings: Settings, does: str = "checks") -> None:
    """Raise UsageError where anything is to be sanitized: the strategy ``does`` something to the user's own file."""
    if any(getattr(settings.sanitize, name) for name in STEPS):
        raise UsageError(
            f"sanitize: strategy={settings.strategy.name} {does} your own file as it is. Sanitize the file before, or "
            "leave sanitize out"
        )


def sanitized(settings: Settings, path: Path, pool: Pool, folder: Path) -> tuple[Path, tuple[str, ...]]:
    """Return the path to read the model from and what was done to it; both as they were if nothing is switched on.

    The sanitized model lies in ``folder``/sanitized until ``remove`` is called. Raises UsageError for a file that is
    wrong and for a step that fails; nothing is left behind then.
    """
    chosen = settings.sanitize
    on = [name for name in STEPS if getattr(chosen, name)]
    remove(folder)
    if not on:
        return path, ()
    if not path.is_file():
        raise UsageError(f"model={path}: no such file")
    args = {
        "model": str(path),
        "out": str(folder / FOLDER),
        "fold": chosen.fold,
        "fold_limit": None if chosen.fold_limit_mb is None else int(chosen.fold_limit_mb * 2**20),
        "shapes": {name: list(dims) for name, dims in settings.inputs.shapes.items()} if chosen.shapes else None,
        "cleanup": chosen.cleanup,
    }
    keys = " ".join(f"sanitize.{name}=true" for name in on)
    try:
        reply = operate(pool, settings, "sanitize", args, f"{keys}: model={path}: it")
    except WinnowError:
        remove(folder)
        raise
    if reply.value is not None:
        return Path(reply.value["path"]), (*reply.value["warnings"], *reply.value["done"])
    remove(folder)
    assert reply.failure
    if reply.failure.type == "SanitizeError":
        raise UsageError(f"{reply.failure.message}; model={path}")
    raise UsageError(f"model={path}: {reply.failure.message}")


def remove(folder: Path) -> None:
    """Remove the sanitized model: once it is read, the run has a copy of its own."""
    shutil.rmtree(folder / FOLDER, ignore_errors=True)


@dataclass(frozen=True)
class Loaded:
    """A model that is ready to be cut.

    ``sha256``: of the file and its external data. ``path``: the user's own file (of a link the target, where its
    weights lie beside that only). ``studied``: the same, or what `sanitize` made of it. ``inherited``: what a
    parent of its own (reference.model) tells, if it has one. ``samples``: of the model where nothing was recorded, as
    it stays whole. ``expected``: its outputs for each sample, where files hold them.
    ``taken``: the inputs with which the reference runs, and what it says of those that were made up.
    """

    path: Path
    sha256: str
    graph: Graph
    store: Store
    recorded: Recorded
    types: Mapping[str, onnx.TypeProto]
    warnings: tuple[str, ...]
    studied: Path
    inherited: Inherited | None = None
    samples: tuple[Sample, ...] = ()
    expected: tuple[Mapping[str, TensorFile], ...] = ()
    taken: Taken = field(default_factory=lambda: Taken(None))


def load(
    settings: Settings,
    pool: Pool,
    folder: Path,
    *,
    record: bool = True,
    feeds: bool = True,
    examine: Callable[[Path], None] = lambda structure: None,
) -> Loaded:
    """Read the model of ``settings`` and record its values on the reference.

    ``feeds``: whether checks are fed with these values. ``examine``: looks at the file, and may add to it, before
    anything runs. Raises UsageError for files that are wrong.
    """
    if settings.model is None:
        raise UsageError(f"no model given. Give its path: {program_name()} model=path/to/model.onnx")
    path = Path(settings.model).expanduser().absolute()
    for stale in ("values", "inputs"):  # what an interrupted run left half-made
        shutil.rmtree(folder / stale, ignore_errors=True)
    store = Store(folder / "store")
    leave_kept(store.folder)
    cleaned, said = sanitized(settings, path, pool, folder)
    facts = ingest("model", cleaned, store, settings, pool)
    confirm_source(store, facts["sha256"])
    if facts["behind_link"]:
        cleaned = path.resolve() if cleaned == path else cleaned
        path = path.resolve()
    warnings = [*said, *facts["warnings"]]
    examine(store.structure)
    graph = Graph.load(store.structure)
    if not settings.target.model:
        check_outputs(settings.checker, graph.outputs)
    values, unusable = _samples(settings, graph, pool, folder)
    warnings += unusable
    expected = expected_outputs(settings, graph, len(values), folder / "inputs")
    recorded, inherited, told = Recorded(values), None, Taken(settings.inputs)
    if record and settings.cut.records and values:
        if settings.reference.model:
            from runner.reference.parent import inherit  # noqa: PLC0415 - few models have one

            inherited = inherit(settings, graph, store, values, pool, folder / "values")
            recorded, warnings = inherited.recorded, [*warnings, *inherited.warnings]
        else:
            limits = recording_limits(settings.cut, folder, seldom=not feeds)
            source = recording_backend(settings)
            running = recorder(settings, source, graph, store, pool, folder / "values", limits)
            recorded, told = _recorded(settings, running, values, cleaned, folder)
            settings = replace(settings, inputs=told.inputs)
            warnings += filter(None, [told.warning])
    elif record and settings.reference.model:
        raise needs_values(settings)
    samples: tuple[Sample, ...] = ()
    if record:
        recorded = with_expected(settings, graph, recorded, expected)
    else:
        samples = _whole(settings, graph, pool, values, folder / "values" / "parent")
        samples = tuple(replace(one, expected=good) for one, good in zip(samples, expected)) or samples  # noqa: B905
    warnings += doubts(settings, graph, recorded, facts["seeded"], fed=feeds, refused=bool(told.refused))
    types = inferred_types(settings, graph, store, recorded, pool, warnings) if record else {}
    if recorded.unrunnable and recorded.values:

        def again(other: Graph, place: Path) -> Recorder:
            return recorder(settings, recording_backend(settings), other, store, pool, place)

        types |= loop_types(Level(graph, store, recorded, types), again, folder / "values" / "loops")
    for warning in warnings:
        log.warning("%s", warning)
    facts_of = facts["sha256"], graph, store, recorded, types, tuple(warnings), cleaned, inherited, samples, expected
    return Loaded(path, *facts_of, told)


def refusal(settings: Settings, checker: Checker, loaded: Loaded, folder: Path, failure: Signature | None) -> str:
    """Return why a failure of the file shows no bug, as its inputs are made up; "": it shows one.

    The file to edit is left in ``folder``. A triage and the pre-flight of a reduction ask this alike.
    """
    if not (feeds_inputs(checker) and loaded.taken.explains(failure)):
        return ""
    return write_refusal(settings, loaded.graph, loaded.taken, folder)


def filling_of(settings: Settings, loaded: Loaded, pool: Pool, lacking: Sequence[str]) -> str:
    """Return the override by which made-up inputs give outputs the finite values that they lack; "": none is known."""
    given, place = loaded.taken.inputs or settings.inputs, loaded.store.folder / "filling"
    if not isinstance(given, RandomInputs) or getattr(settings.target, "profiles", None):
        return ""
    asked = recording_backend(settings), loaded.graph, loaded.studied, pool, place, time.monotonic() + given.timeout
    found = Reference(*asked).filling(given, lacking)
    shutil.rmtree(place, ignore_errors=True)
    return found


def record_target(settings: Settings, pool: Pool, loaded: Loaded, folder: Path) -> tuple[Mapping[str, TensorFile], ...]:
    """Return what every tensor holds when the target runs the whole model with all of them as outputs."""
    inputs = [Sample.of(one, loaded.graph.inputs).feeds for one in loaded.recorded.values]
    shutil.rmtree(folder / "target", ignore_errors=True)
    # nobody reads these values, but whether they are finite
    limits = replace(recording_limits(settings.cut, folder), disk=0, lazy=True)
    running = recorder(settings, settings.target, loaded.graph, loaded.store, pool, folder / "target", limits)
    return running.record(inputs).values


def _recorded(
    settings: Settings, running: Recorder, values: Sequence[Mapping[str, TensorFile]], model: Path, folder: Path
) -> tuple[Recorded, Taken]:
    """Record on the reference; where it refuses inputs that were made up, on others that it takes."""
    recorded = running.record(values)
    if not recorded.reason.startswith("infer") and recorded.healthy(running.graph.outputs):
        return recorded, Taken(settings.inputs)
    graph, pool, attempts = running.graph, running.pool, folder / "attempts"

    def again(inputs: RandomInputs) -> Run:
        drawn = samples(inputs, graph, pool, attempts / "drawn")
        shutil.rmtree(attempts / "values", ignore_errors=True)
        return as_it_ran(replace(running, folder=attempts / "values").record(drawn), attempts / "values" / "bodies")

    def inside(body: Graph, place: Path) -> Recorder:
        return recorder(settings, recording_backend(settings), body, running.store, pool, place)

    def as_it_ran(known: Recorded, place: Path) -> Run:
        level, owners = opened(Level(graph, running.store, known, {}), begins, inside, place)

        def weight(name: str) -> Any:
            held = level.graph.initializers.get(name)
            return running.store.array(held) if isinstance(held, onnx.TensorProto) else None

        return Run(level.graph, level.recorded.values, weight, again, owners)

    run = partial(as_it_ran, recorded, folder / "bodies")
    found = taken(settings, recording_backend(settings), graph, model, pool, attempts, run=run)
    shutil.rmtree(folder / "bodies", ignore_errors=True)
    shutil.rmtree(attempts, ignore_errors=True)
    if found.inputs != settings.inputs:
        shutil.rmtree(running.folder, ignore_errors=True)
        recorded = running.record(_samples(replace(settings, inputs=found.inputs), graph, pool, folder)[0])
    return recorded, found


def _samples(
    settings: Settings, graph: Graph, pool: Pool, folder: Path
) -> tuple[tuple[Mapping[str, TensorFile], ...], list[str]]:
    try:
        return profiled_samples(settings, graph, pool, folder / "inputs")
    except NotApplicable as error:
        return (), [f"no values are recorded, since there are none for the model's inputs: {error}"]


def _whole(
    settings: Settings, graph: Graph, pool: Pool, values: Sequence[Mapping[str, TensorFile]], folder: Path
) -> tuple[Sample, ...]:
    if not settings.reference.model:
        return tuple(Sample(sample) for sample in values)
    from runner.reference.parent import whole_samples  # noqa: PLC0415 - few models have one

    return whole_samples(settings, graph, pool, values, folder)


def inferred_types(
    settings: Settings, graph: Graph, store: Store, recorded: Recorded, pool: Pool, warnings: list[str]
) -> dict[str, onnx.TypeProto]:
    """Return what shape inference knows, if recording left anything open."""
    mode = settings.cut.shapes
    known = set(recorded.values[0]) if recorded.values else set()
    tensors = {name for node in graph.nodes for name in node.outputs}
    if mode is ShapeInference.off or not tensors - known:
        return {}
    out = store.folder / "inferred.onnx"
    shapes = dict(settings.inputs.shapes)
    args = {"model": str(store.structure), "mode": mode.value, "shapes": shapes, "out": str(out)}
    reply = limited(pool, settings, "infer_shapes", args)
    if reply.value is None:
        warnings.append(f"cut.shapes={mode.value} failed: {reply.why}")
        return {}
    if reply.value["warning"]:
        warnings.append(reply.value["warning"])
    return read_types(out)


def clean_up(folder: Path, artifacts: Path, budget_mb: int) -> None:
    """Remove what only the run itself needed; large candidates that were kept stay with their weights, in a budget."""
    remove(folder)
    for name in ("inputs", "values", "target"):
        shutil.rmtree(folder / name, ignore_errors=True)
    store = folder / "store"
    if store.is_dir() and not store.is_symlink():
        leave_affordable(Store(store), artifacts, budget_mb)
    for empty in (store, *(folder / "checks").glob("*")):
        if empty.is_dir() and not any(empty.iterdir()):
            empty.rmdir()
