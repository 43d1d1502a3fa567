"""The section of a report that says which tensors are wrong, and which of them first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runner.report.markup import bullets, code, section, some, table
from runner.report.markup import text as as_text
from runner.text import counted

_MARKING = {
    "same": "Marked as outputs or not: the model's own outputs are the same.",
    "hides": "Marking tensors as outputs makes the failure go away; what is told was seen with marks that do not.",
    "changes": "Marking tensors as outputs changes the model's own outputs by more than the check allows.",
    "breaks": "Marking tensors as outputs makes the model fail, which passes without; what is told may be their doing.",
}

_LEFT = {
    "hidden": "Their mark alone hides the failure",
    "unanswered": "With their mark there is no answer",
    "not_asked": "Not asked about",
}
NON_FINITE = ("nan", "inf")
NOT_FINITE = "not finite"
"""The kind of a tensor that overflows on the reference as well."""
NOT_COMPARED = "nothing compared"
"""What stands for the error of a tensor without elements, or all of whose elements were left out."""
_KINDS = {"nan": "NaN", "inf": "Inf", "shape": "another shape", NOT_FINITE: "NaN or Inf"}


def layers_section(layers: Mapping[str, Any] | None, *, failing: bool = True) -> str:
    """Return the section; "" where tensors were not compared. ``failing``: whether the model as it is fails."""
    if not layers:
        return ""
    first, largest, said = layers["first_bad"], layers["largest_own"], []
    if first:
        said += [] if failing else ["The model as it is does not fail by this check."]
        said += [f"First wrong tensor: {_made(first)}, {size_of(first, 'error')}.", _MARKING[layers["marking"]]]
        said += [] if first["own"] is None else [f"Its own error: {size_of(first, 'own')}."]
    if largest:
        said.append(f"Largest error of its own: {ending_in(largest)}{_made(largest)}, {size_of(largest, 'own')}.")
    if layers.get("own_unknown"):
        said.append(f"The own errors are not known: {as_text(layers['own_unknown'])}.")
    said += [f"{word}: {some(layers[key])}." for key, word in _LEFT.items() if layers.get(key)]
    if layers["suspects"]:
        said.append(f"What to extract next: {some(layers['suspects'])}.")
    files = ", ".join(map(code, layers["files"]))
    said.append(f"{counted(layers['tensors'], 'tensor')} in {counted(layers['runs'], 'run')}; all of them: {files}.")
    parts = [bullets(said)]
    if layers["worst"]:
        parts += ["The worst tensors:", tensors_table(layers["worst"])]
    return section("Layer by layer", "\n\n".join(parts)) + "\n\n" + outputs_section(layers["outputs"])


def _made(found: Mapping[str, Any]) -> str:
    return f"{code(found['tensor'])} by {code(found['node'])}"


def ending_in(found: Mapping[str, Any]) -> str:
    """Return what a node is the end of, where a part has too many nodes to name them."""
    return "" if found.get("nodes", True) else "a part that ends in "


def kind_of(row: Mapping[str, Any]) -> str:
    """Return how a tensor is wrong: where nothing but NaN or Inf differs, on whatever side, these."""
    differing = [key for key in NON_FINITE if len(set(row.get(key) or ())) > 1]
    return differing[0] if differing and not row["error"] else row["kind"] or NOT_FINITE


def size_of(found: Mapping[str, Any], key: str) -> str:
    """Return an error in words; the size of one that is no matter of size says nothing."""
    return _KINDS.get(found["kind"]) or f"{found[key]:.3g} of its range"


def outputs_section(rows: Sequence[Mapping[str, Any]], form: str = "") -> str:
    """Return the section on the model's outputs; "" where none were compared. ``form``: what was made of it, if any."""
    return section(f"The model's outputs{f', {as_text(form)}' if form else ''}", tensors_table(rows))


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
    kind = _KINDS.get(kind_of(row)) if row["bad"] else None if row.get("compared", True) else NOT_COMPARED
    nothing = None in (row.get("range") or ())  # no elements that are finite on both sides
    cells = [row["tensor"], *([kind, ""] if kind else [_number(row.get(key)) for key in ("error", "limit")])]
    cells += ["" if nothing else _number(row.get(key)) for key in ("max", "mean", "p99", "sqnr", "psnr", "cosine")]
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
