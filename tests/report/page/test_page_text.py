"""A page as text: what stands in it without a script, its policy, and what it carries."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from runner.report.document import Code, section, table
from runner.report.page import html
from tests.report.page.page_values import KINDS, hostile, page, reduced, sweep

ASSETS = Path(html.__file__).parent / "assets"


class Read(HTMLParser):
    """Elements with their attributes, and the texts that stand first in them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside = True

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.texts.setdefault(self.elements[-1][0], []).append(data)

    def handle_endtag(self, tag: str) -> None:
        self.inside = False


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'id="data">([A-Za-z0-9+/=]*)</script>', text)
    assert found
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_allows_its_own_script_and_style_and_nothing_else(kind: str) -> None:
    text = html.page_text(page() if kind == "reduce" else KINDS[kind]())
    read = Read(text)
    policy = next(values["content"] for tag, values in read.elements if tag == "meta" and "http-equiv" in values)
    hashes = [
        "'sha256-" + base64.b64encode(hashlib.sha256("".join(read.texts[tag][-1:]).encode()).digest()).decode() + "'"
        for tag in ("script", "style")
    ]
    allowed = f"script-src {hashes[0]}; style-src {hashes[1]}; img-src data:; base-uri 'none'; form-action 'none'"
    assert policy == f"default-src 'none'; {allowed}"
    assert [tag for tag, _ in read.elements if tag in {"script", "style", "img", "iframe"}] == [
        "style",
        "script",
        "script",
    ]
    assert not [name for _, values in read.elements for name in values if name.startswith("on") or name == "style"]
    links = [values["href"] or "" for tag, values in read.elements if tag in {"a", "link"} and "href" in values]
    assert all(link.startswith(("#", "./")) or link == "data:," for link in links)


def test_the_values_travel_whole_and_sections_stand_in_the_page_once() -> None:
    made = hostile()
    assert made.sections and data_of(html.page_text(made)) == {**vars(made), "sections": []}


def test_answer_commands_and_jobs_stand_in_the_page_without_a_script() -> None:
    made = reduced(40)
    text = html.page_text(made)
    for said in (made.verdict, made.cause, *(cell for row in made.facts for cell in row), *made.warnings):
        assert said in text
    assert all(f"<code>{command}</code>" in text for _, command in made.commands)
    jobs = html.page_text(sweep())
    assert '<a href="./1/report.html">1</a>' in jobs and "model=models/net_3.onnx" in jobs
    assert 'id="graph"' not in jobs and 'id="graph"' in text


def test_narrow_sections_stand_side_by_side() -> None:
    text = html.page_text(KINDS["triage"]())
    steps = text.partition(">Steps</h2>")[2].partition("</section>")[0]
    assert "<p>What goes on below it.</p>" in steps and "<ul><li>one</li><li>long_" in steps
    assert text.count('class="half"') == 2


def test_what_is_long_is_folded_but_jobs_are_not() -> None:
    def shown(lines: int) -> str:
        code = Code("\n".join(f"print({line})" for line in range(lines)))
        held = section("Part", [code, table(("name", ""), [("x", "1")] * lines)])
        return html.page_text(page(sections=held, jobs=sweep().jobs * 8))

    assert "<details>" not in shown(30)
    folded = shown(31)
    assert (
        folded.count("<details><summary>31 lines</summary>") == folded.count("<details><summary>31 rows</summary>") == 1
    )
    assert folded.count("<details>") == 2


def test_code_keeps_its_lines_and_columns_that_say_nothing_are_left_out() -> None:
    code = section("To reproduce", ["Run it:", Code("def a():\n\n    return '<b>'")])
    jobs: Any = [{**one, "trust": "", "asked": 0, "reused": 0} for one in sweep().jobs]
    text = html.page_text(page(sections=code, jobs=jobs))
    assert (
        '<p>Run it:</p><div class="code"><pre ' in text
        and "<code>def a():\n\n    return &#x27;&lt;b&gt;&#x27;</code>" in text
    )
    assert ">run</th>" in text and ">trust</th>" not in text and ">asked</th>" not in text


@pytest.mark.slow
def test_25_000_nodes_are_a_small_file(tmp_path: Path) -> None:
    html.write_page(tmp_path, reduced(25_000))
    assert (tmp_path / "report.html").stat().st_size < 2_000_000
    assert html.page_text(sweep()) == html.page_text(sweep())


def test_the_library_is_the_one_that_its_note_names() -> None:
    note = (ASSETS / "dagre" / "README.md").read_text()
    for name in ("dagre.min.js", "LICENSE"):
        content = (ASSETS / "dagre" / name).read_bytes()
        assert f"| sha256 of `{name}` | `{hashlib.sha256(content).hexdigest()}` |" in note
    version = re.search(r"\| version \| ([0-9.]+) \|", note)
    assert version and f'"{version[1]}"' in (ASSETS / "dagre" / "dagre.min.js").read_text()


def test_scripts_make_no_markup_of_text_and_end_no_element() -> None:
    ours = {path: path.read_text() for path in ASSETS.glob("*.js")}
    assert {path.name for path in ours} == {name for name in html._SCRIPTS if "/" not in name}
    for path, text in ours.items():
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|fetch\(", text
        ), path
        assert len(text.splitlines()) <= 300, path
    for path in (*ours, ASSETS / "page.css", ASSETS / "dagre" / "dagre.min.js"):
        text = path.read_text()
        assert not re.search(r"</(script|style)|<!--", text, re.IGNORECASE) and "\r" not in text, path
    assert "url(" not in (ASSETS / "page.css").read_text()


@pytest.mark.parametrize(
    ("kind", "strategy", "title"),
    [("sweep", "", "Jobs"), ("run", "triage", "Steps"), ("run", "reduce_bisect", "Answers")],
)
def test_jobs_are_called_what_they_are_and_what_is_not_known_is_blank(kind: str, strategy: str, title: str) -> None:
    told = sweep(3)
    told.jobs[1]["seconds"] = told.jobs[1]["run"] = None
    text = html.page_text(replace(told, kind=kind, strategy=strategy))
    assert f'<h2 id="jobs-title">{title}</h2>' in text and "<td></td>" in text
    assert "None" not in text.partition("<script")[0]


def test_a_browser_without_colors_for_both_schemes_has_those_of_the_light_one() -> None:
    style = (ASSETS / "page.css").read_text()
    both = re.findall(r"^  (--[a-z0-9-]+): light-dark\((#[0-9a-f]+), #[0-9a-f]+\);$", style, re.MULTILINE)
    assert len(both) == style.count("light-dark(") - 1, "one more asks whether there is such a thing"
    assert both == re.findall(r"^    (--[a-z0-9-]+): (#[0-9a-f]+);$", style, re.MULTILINE)


def test_a_column_in_which_nothing_stands_takes_no_room() -> None:
    rows = [["y", "", "0.1"], ["z", "", ""]]
    text = html.page_text(page(sections=section("Outputs", [table(("tensor", "PSNR dB", "error"), rows)])))
    assert "PSNR" not in text and re.findall(r"<td>(.*?)</td>", text) == ["y", "0.1", "z", ""]
    bare = section("Outputs", [table(("", "", ""), rows)])
    assert len(re.findall(r"<td>", html.page_text(page(sections=bare)))) == 6
