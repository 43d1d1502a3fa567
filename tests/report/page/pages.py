"""Pages that runs wrote, read back, and what holds for every page."""

from __future__ import annotations

import base64
import json
import re
import types
import zlib
from html import unescape
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from runner.report.document import Section, Table
from runner.report.page.data import Page, PageGraph

_SECTION = re.compile(r'<section id="section-\d+"[^>]*><h2[^>]*>(.*?)</h2>(.*?)</section>', re.DOTALL)
_SCRIPT = re.compile(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', re.DOTALL)


def page_in(folder: Path) -> Page:
    """The page in a folder's report.html, whole but for the texts of its sections."""
    written = (folder / "report.html").read_text(encoding="utf-8")
    held = _SCRIPT.search(written)
    assert held, f"no values in {folder}/report.html"
    text = held[1].strip()
    if not text.startswith("{"):
        text = zlib.decompress(base64.b64decode(text), zlib.MAX_WBITS | 32).decode()
    page = Page(**{**json.loads(text), "sections": sections_in(written)})
    whole(page)
    return page


def rows_of(section: Section) -> list[tuple[str, ...]]:
    """The rows of all tables of a section."""
    return [row for one in section.blocks if isinstance(one, Table) for row in one.rows]


def sections_in(text: str) -> list[Section]:
    """The sections of a page's HTML, with the rows of their tables."""
    return [section_in(title, body) for title, body in _SECTION.findall(text)]


def section_in(title: str, body: str) -> Section:
    """A section with all of its rows, of its HTML."""
    lines = (
        re.findall(r"<td>(.*?)</td>", line) for line in re.findall(r"<tr>(.*?)</tr>", body.split("<tbody>", 1)[-1])
    )
    rows = tuple(tuple(map(unescape, line)) for line in lines)
    return Section(unescape(title), (Table((), rows),))


def whole(page: Page) -> None:
    """All that holds for every page: its types, and that what is numbered is there."""
    json.dumps({**vars(page), "sections": []}, allow_nan=False)
    assert not list(misfits(vars(page), Page, "page"))
    for graph in (page.reduced, page.whole):
        if graph:
            whole_graph(graph)
    if page.elements == "nodes" and page.whole:
        last = len(page.whole["names"]) - 1
        assert all(0 <= first <= end <= last for one in page.trials for first, end in one["kept"])
    for tensor in page.tensors:
        for side in (tensor["good"], tensor["wrong"]):
            assert side is None or len(side["edges"]) == (len(side["counts"]) + 1 if side["counts"] else 0)


def whole_graph(graph: PageGraph) -> None:
    nodes, tensors = len(graph["names"]), range(-1, len(graph["tensors"]))
    assert {len(graph[key]) for key in ("operator", "block", "inputs", "outputs")} == {nodes}
    assert len(graph["types"]) == len(graph["tensors"])
    assert all(0 <= one < len(graph["operators"]) for one in graph["operator"])
    assert all(0 <= one < len(graph["blocks"]) for one in graph["block"])
    assert all(one in tensors for key in ("inputs", "outputs") for row in graph[key] for one in row)
    assert all(one in tensors[1:] for key in ("constants", "feeds", "results") for one in graph[key])
    assert all(0 <= int(one) < nodes for one in (*graph["attributes"], *graph["culprits"]))
    top, last = nodes, len(graph["tensors"])
    for body in reversed(graph["bodies"]):
        # they lie one after the other, each after its owner, and their tensors as well
        assert body["node"] + body["nodes"] == top and body["owner"] < body["node"] and body["tensor"] <= last
        top, last = body["node"], body["tensor"]
    assert len(set(graph["tensors"][:last])) == last
    kept = {number for body in graph["bodies"] for number in (*body["feeds"], *body["results"])}
    assert all(one in tensors[1:] for one in kept)


def misfits(value: Any, kind: Any, where: str) -> list[str]:
    """Where a value is not of its type, as JSON has it."""
    if is_typeddict(kind) or kind is Page:
        hints = get_type_hints(kind)
        if not isinstance(value, dict) or {*value} != {*hints}:
            return [where]
        return [one for key in hints for one in misfits(value[key], hints[key], f"{where}.{key}")]
    if get_origin(kind) in (Union, types.UnionType):
        return [] if any(not misfits(value, one, where) for one in get_args(kind)) else [where]
    if get_origin(kind) is list:
        (inner,) = get_args(kind)
        fits = isinstance(value, list)
        return (
            [one for at, item in enumerate(value) for one in misfits(item, inner, f"{where}[{at}]")]
            if fits
            else [where]
        )
    if get_origin(kind) is dict:
        inner = get_args(kind)[1]
        return [one for key in value for one in misfits(value[key], inner, f"{where}[{key}]")]
    if kind is float:
        return [] if isinstance(value, (int, float)) else [where]
    return [] if isinstance(value, kind) else [where]
