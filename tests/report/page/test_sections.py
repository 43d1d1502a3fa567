"""The sections of the page are those of the report: nothing that REPORT.md escapes is lost, or made into markup."""

from __future__ import annotations

from html import unescape

from hypothesis import given, settings
from hypothesis import strategies as st

from runner.report.document import Bullets, Code, Document, Picture, Section, Table, code, section, strong, table
from runner.report.markup import to_markdown
from runner.report.page.html import page_text
from tests.report.page.page_values import page
from tests.report.page.pages import sections_in

PRINTABLE = st.text(st.characters(categories=("L", "N", "P", "S")), max_size=30)


def shown(sections: list[Section]) -> str:
    """The HTML of the first section on a page that has nothing else."""
    return page_text(page(sections=sections)).partition('<section id="section-0"')[2].partition("</section>")[0]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(PRINTABLE, PRINTABLE.filter(bool)), min_size=1, max_size=4))
def test_cells_are_as_they_were(rows: list[tuple[str, str]]) -> None:
    (held,) = sections_in(page_text(page(sections=section("Part", [table(("", ""), rows, names=1)]))))
    assert held == Section("Part", (Table((), tuple(rows)),))


def test_text_lists_code_and_several_tables_keep_their_order() -> None:
    lines = "print(1)\n## no heading\n| no | table |"
    blocks = ["Before <b>.", table(("a",), [("1",)]), Bullets((code("x"), "two")), Code(lines, "sh"), Picture("c", "c")]
    made = section("Part", blocks)
    text = shown(made)
    parts = ("<p>Before &lt;b&gt;.</p>", ">a</th>", "<td>1</td>", "<li>x</li><li>two</li>", f"<code>{lines}</code>")
    assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)
    assert "![c](c)" in to_markdown(Document("title", (), tuple(made)))


def test_no_mark_and_no_name_of_a_status_is_left() -> None:
    said = f"{strong('Does it * fail?')} Yes ({code('steps/01')}), 2**3"
    made = section("How", [Bullets((said,)), table(("model", "status"), [("a_b", "not_as_expected")])])
    text = shown(made)
    assert "<li>Does it * fail? Yes (steps/01), 2**3</li>" in text
    assert "<td>a_b</td><td>not as expected</td>" in text
    assert "- **Does it * fail?** Yes (`steps/01`), 2&#42;&#42;3" in to_markdown(Document("title", (), tuple(made)))


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=40))
def test_a_name_is_one_whatever_it_holds(name: str) -> None:
    said = unescape(shown(section("How", [f"a {code(name)} b"])).partition("<p>")[2].rpartition("</p>")[0])
    assert said.startswith("a") and said.endswith("b") and "\n" not in said
