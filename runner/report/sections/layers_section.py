"""The section of a report that says which tensors are wrong, and which of them first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runner.report.markup import bullets, code, section, some, table

_MARKING = {
    "same": "Marked as outputs or not: the model's own outputs are the same.",
    "hides": "Marking tensors as outputs makes the failure go away; what is told was seen with marks that do not.",
    "changes": "Marking tensors as outputs changes the model's own outputs, and they still differ.",
}

_KINDS = {"nan": "NaN", "inf": "Inf", "shape": "another shape", "not finite": "NaN or Inf"}


def layers_section(layers: Mapping[str, Any] | None) -> str:
    """Return the section; "" where tensors were not compared."""
    if not layers:
        return ""
    first, largest, said = layers["first_bad"], layers["largest_own"], []
    if first:
        said += [f"First wrong tensor: {_made(first)}, {size_of(first, 'error')}.", _MARKING[layers["marking"]]]
        said += [] if first["own"] is None else [f"Its own error: {size_of(first, 'own')}."]
    if largest:
        said.append(f"Largest error of its own: {_made(largest)}, {size_of(largest, 'own')}.")
    if layers["suspects"]:
        said.append(f"What to extract next: {some(layers['suspects'])}.")
    files = ", ".join(map(code, layers["files"]))
    said.append(f"{layers['tensors']} tensors in {layers['runs']} runs; all of them: {files}.")
    parts = [bullets(said)]
    if layers["worst"]:
        parts += ["The worst tensors:", tensors_table(layers["worst"])]
    return section("Layer by layer", "\n\n".join(parts)) + "\n\n" + outputs_section(layers["outputs"])


def _made(found: Mapping[str, Any]) -> str:
    return f"{code(found['tensor'])} by {code(found['node'])}"


def size_of(found: Mapping[str, Any], key: str) -> str:
    """Return an error in words; the size of one that is no matter of size says nothing."""
    return _KINDS.get(found["kind"]) or f"{found[key]:.3g} of its range"


def outputs_section(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the section on the model's outputs; "" where none were compared."""
    return section("The model's outputs", tensors_table(rows))


def tensors_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a row for each tensor."""
    top = any("top1" in row for row in rows)
    head: tuple[str, ...] = (
        "tensor",
        "error",
        "allowed",
        "max",
        "mean",
        "p99",
        "SQNR dB",
        "PSNR dB",
        "cosine",
        "NaN",
        "Inf",
        "range",
    )
    head += ("own",) if any("own" in row for row in rows) else ()
    head += ("top-1", "top-5") if top else ()
    return table(head, [_cells(row, head) for row in rows], names=1)


def _cells(row: Mapping[str, Any], head: Sequence[str]) -> list[str]:
    cells = [row["tensor"], _number(row.get("error")), _number(row.get("limit"))]
    cells += [_number(row.get(key)) for key in ("max", "mean", "p99", "sqnr", "psnr", "cosine")]
    cells += [_sides(row.get(key), str) for key in ("nan", "inf")]
    cells.append(_sides(row.get("range"), _range))
    cells += [_number(row.get("own"))] if "own" in head else []
    return cells + ([_number(row.get(key)) for key in ("top1", "top5")] if "top-1" in head else [])


def _sides(pair: Sequence[Any] | None, shown: Any) -> str:
    """Return what the target has, and the reference's behind it where that is another."""
    if not pair:
        return ""
    mine, theirs = map(shown, pair)
    return mine if mine == theirs else f"{mine} ({theirs})"


def _range(ends: Sequence[float] | None) -> str:
    return "none" if ends is None else f"{ends[0]:.3g} to {ends[1]:.3g}"


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else ""
