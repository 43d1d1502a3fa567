"""What is known before anything is asked: of the check, target, inputs, types of the model, and other releases."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runner.jobs.variants.release_cache import ReleaseCache, installed_under, read_versions
from runner.judgment import UsageError
from runner.model.files.parse_without_weights import parse, structure
from runner.model.graph.graph_index import Graph
from runner.model.graph.low_precision import quantized_nodes
from runner.reference.hints import asks_for_data, hides_rounding, larger_sizes
from runner.schema.backend import OnnxRuntimeBackend, Rounding, TensorRtBackend
from runner.schema.checker import BuildsChecker, CommandChecker, Golden, PythonChecker
from runner.schema.installed_choices import SCHEMAS
from runner.schema.root import Settings
from runner.schema.strategy import FloatType, TriageSettings, chosen
from runner.workers.worker import find_python

_LOW = {10: FloatType.float16, 16: FloatType.bfloat16}
"""Element types of ONNX, as a precision search calls them."""
_HIGH = 1


@dataclass(frozen=True)
class Situation:
    """What is known before anything is asked.

    ``own_code``: the check is the user's own; ``names_switches``, ``names_python``: its command leaves a place for
    them. ``looks_at_values``: the checker does. ``inputs``: the choice; ``asks_for_data``: real ones
    could stand in for these. ``given``: files say what is right
    for these. ``alone``: what is right needs neither files nor another model, ``on_its_own`` nor what was recorded.
    ``hides_rounding``: the target computes a low precision in float32; ``rounds``: it rounds after every operator, as
    it was asked to. ``low``: the float type of a model whose original is in float32, or ``quantized``; "" for any
    other. ``quantized_alone``: it is quantized, and nothing says what its original computes. ``larger``: the setting
    with larger sizes than those that are assumed, "" where none are. ``releases``: which can be asked, in words.
    ``strategies``: what is there.
    """

    own_code: bool = False
    names_switches: bool = False
    names_python: bool = False
    looks_at_values: bool = True
    inputs: str = "random"
    asks_for_data: bool = False
    builds_engines: bool = False
    optimizes: bool = True
    given: bool = False
    alone: bool = True
    on_its_own: bool = True
    hides_rounding: bool = False
    rounds: bool = False
    low: str = ""
    quantized_alone: bool = False
    larger: str = ""
    releases: str = ""
    strategies: frozenset[str] = frozenset()


def situation_of(settings: Settings) -> Situation:
    """Return what settings and files tell before anything is asked. Raises UsageError for releases that are none."""
    checker, target = settings.checker, settings.target
    command = str(checker.command) if isinstance(checker, CommandChecker) else ""
    given, alone = settings.reference.has_expected, settings.reference.model is None and target.model is None
    ahead = isinstance(checker, BuildsChecker | PythonChecker) or getattr(checker, "golden", None) is Golden.ahead
    return Situation(
        own_code=checker.runs_own_code,
        names_switches="{switches}" in command and bool(chosen(settings.strategy, TriageSettings).switches),
        names_python="{python}" in command,
        looks_at_values=checker.looks_at_values,
        inputs=settings.inputs.name,
        asks_for_data=asks_for_data(settings),
        builds_engines=target.builds_engines and not checker.runs_own_code,
        optimizes=isinstance(target, OnnxRuntimeBackend | TensorRtBackend),
        given=given,
        alone=alone and not given,
        on_its_own=alone and not ahead,
        hides_rounding=not checker.runs_own_code and hides_rounding(settings, _float_types(settings.model)),
        rounds=getattr(target, "rounding", None) in (Rounding.on, Rounding.strict),
        low=_low(settings),
        quantized_alone=alone and not given and _is_quantized(settings.model),
        larger=_larger(settings),
        releases=_releases(settings),
        strategies=frozenset(SCHEMAS["strategy"]),
    )


def _larger(settings: Settings) -> str:
    """Return the setting with larger sizes; "" where none are assumed, or the file cannot be read."""
    try:
        return larger_sizes(settings, Graph.of(parse(Path(settings.model or "").expanduser())))
    except Exception:  # noqa: BLE001 - whatever lies there, which the steps will say
        return ""


def _low(settings: Settings) -> str:
    """Return the low float type of a model whose original, the reference's model, is in float32; "" for any other."""
    if not (settings.model and settings.reference.model):
        return ""
    kinds = _float_types(settings.model)
    low = next((kind for number, kind in _LOW.items() if number in kinds), None)
    if low is None and _is_quantized(settings.model):
        low = FloatType.quantized
    return low.value if low and _HIGH in _float_types(settings.reference.model) else ""


def _is_quantized(path: str | None) -> bool:
    """Whether any node of a model is quantized."""
    return any(quantized_nodes(structure(path)))


def _float_types(path: str | None) -> set[int]:
    """Return the element types of a model's weights."""
    return {one.data_type for one in structure(path).graph.initializer}


def package_of(settings: Settings) -> str:
    """Return the package whose releases may differ."""
    return "onnx" if settings.target.name == "onnx_reference" else "onnxruntime"


def installed(settings: Settings) -> dict[str, str]:
    """Return a digest of what is installed under each interpreter that takes part; answers hold for these alone."""
    return {python or "": _installed(python) for python in {settings.target.python, settings.reference.python}}


def _installed(python: str | None) -> str:
    try:
        return installed_under(find_python(python))
    except UsageError as error:  # the steps will say so
        return str(error)


def _releases(settings: Settings) -> str:
    """Return which releases can be asked about without installing anything unasked; "" for none."""
    strategy = chosen(settings.strategy, TriageSettings)
    if strategy.versions is not None:
        read_versions(strategy.versions)
        if settings.target.builds_engines and not settings.checker.runs_own_code:
            raise UsageError(
                f"strategy.versions={strategy.versions}: which package target={settings.target.name} comes from is not "
                "known here. Leave it out, and ask about releases alone: strategy=versions strategy.package=NAME"
            )
        return f"strategy.versions={strategy.versions}"
    cache = Path(strategy.cache).expanduser()
    if settings.target.builds_engines or not cache.is_dir():
        return ""
    try:
        base = find_python(settings.target.python)
        held = ReleaseCache(cache.absolute(), package_of(settings), base, offline=True).available()
    except UsageError:
        return ""
    return f"{len(held)} in the cache"
