"""What a model or an engine is made of: as the sections of a report, and as a screen of a terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runner.report.markup import section, table

_MOST_OPERATORS, _MOST_TENSORS, _MOST_LAYERS = 12, 6, 200
_WAYS = ("inputs", "outputs")
_UNITS = ("bytes", "KiB", "MiB", "GiB")


def inspection_section(inspection: Mapping[str, Any] | None) -> str:
    """Return the sections; "" where nothing was inspected."""
    if not inspection:
        return ""
    weights, operators = inspection["weights"], inspection["operators"]
    concerns = [(one["kind"], one["where"], one["what"]) for one in inspection["concerns"]]
    tensors = [
        (one["name"], way, one["dtype"], _shape(one)) for way in ("inputs", "outputs") for one in inspection[way]
    ]
    largest = [(one["name"], one["dtype"], _shape(one), _size(one["bytes"])) for one in weights.get("largest", ())]
    layers = [
        (one["name"], one["type"], one["tactic"], ", ".join(one["dtypes"])) for one in inspection.get("layers", ())
    ]
    sections = [
        section("The file", table(("", ""), [row for row in _facts(inspection) if row[1]])),
        section("Concerns", table(("kind", "where", "what"), concerns)),
        section("Inputs and outputs", table(("tensor", "", "type", "shape"), tensors, names=1)),
        section("Operators", table(("operator", "nodes"), list(operators.items()), names=1)),
        section("Largest weights", table(("weight", "type", "shape", "size"), largest, names=1)),
        section("Layers", table(("layer", "type", "tactic", "outputs"), layers[:_MOST_LAYERS], names=1)),
    ]
    return "\n\n".join(one for one in sections if one)


def screen(inspection: Mapping[str, Any]) -> str:
    """Return what a person wants to see first, in the width of the terminal."""
    rows = [*_facts(inspection), *_tensors(inspection)]
    rows.append(("operators", _first([f"{name} {count}" for name, count in inspection["operators"].items()])))
    rows += [(f"! {one['kind']}", f"{one['where']}: {one['what']}") for one in inspection["concerns"]]
    width, column = min(shutil.get_terminal_size().columns, 160), max(len(name) for name, _ in rows) + 2
    lines = textwrap.TextWrapper(max(width, column + 20), subsequent_indent=" " * column, break_long_words=False)
    lines.break_on_hyphens = False
    return "\n".join(lines.fill(f"{name:<{column}}{told}") for name, told in rows if told)


def _facts(inspection: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    weights = inspection["weights"]
    yield "size", _size(inspection["bytes"])
    if inspection["kind"] == "engine":
        yield "library", inspection["library"]
        yield "layers", str(len(inspection["layers"]))
        yield "memory of a run", _size(inspection["memory"])
        return
    opsets = ", ".join(f"{name} {version}" for name, version in inspection["opsets"].items())
    yield "opsets", f"{opsets}; IR version {inspection['ir_version']}"
    yield "made by", inspection["producer"]
    besides = [f"{inspection[key]} {key}" for key in ("constants", "nested") if inspection[key]]
    yield "nodes", ", besides ".join([str(inspection["nodes"]), *([" and ".join(besides)] if besides else [])])
    yield "functions", _first(inspection["functions"])
    yield "tensors", ", ".join(f"{count} {name}" for name, count in inspection["dtypes"].items())
    types = ", ".join(f"{one['count']} {name} {_size(one['bytes'])}" for name, one in weights["dtypes"].items())
    yield "weights", f"{weights['count']} of {_size(weights['bytes'])}: {types}" if types else "none"
    yield "parameters", f"{weights['parameters']:,}"
    dynamic = [f"{name} {', '.join(dims)}" for name, dims in inspection["dynamic"].items()]
    yield "dynamic", _first(dynamic) or "no input"


def _tensors(inspection: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for way in _WAYS:
        yield way, _first([f"{one['name']} {one['dtype']} {_shape(one)}" for one in inspection[way]], _MOST_TENSORS)


def _first(items: Sequence[str], most: int = _MOST_OPERATORS) -> str:
    more = len(items) - most
    return ", ".join(items[:most]) + (f" and {more} more" if more > 0 else "")


def _shape(tensor: Mapping[str, Any]) -> str:
    return "of any rank" if tensor["shape"] is None else f"[{', '.join(map(str, tensor['shape']))}]"


def _size(count: int) -> str:
    size, unit = float(count), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_UNITS[unit]}" if unit else f"{count} bytes"
