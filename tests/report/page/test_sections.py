"""The sections of the page are those of the report: nothing that REPORT.md escapes is lost, or made into markup."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from runner.report.document import Bullets, Code, Document, Picture, Section, code, section, strong, table
from runner.report.markup import to_markdown
from runner.report.page.run_page import sections_of

PRINTABLE = st.text(st.characters(categories=("L", "N", "P", "S")), max_size=30)


def document(*sections: Section) -> Document:
    return Document("title", (), sections)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(PRINTABLE, PRINTABLE), min_size=1, max_size=4))
def test_cells_are_as_they_were(rows: list[tuple[str, str]]) -> None:
    (held,) = sections_of(document(*section("Part", [table(("name", ""), rows, names=1)])))
    assert held["title"] == "Part" and held["head"] == ["name", ""]
    assert held["rows"] == [list(row) for row in rows]


def test_text_lists_code_and_several_tables_keep_their_order() -> None:
    lines = "print(1)\n## no heading\n| no | table |"
    blocks = ["Before <b>.", table(("a",), [("1",)]), Bullets((code("x"), "two")), Code(lines, "sh"), Picture("c", "c")]
    made = document(*section("Part", blocks), *section("Warnings", [Bullets(("no",))], aside=True))
    first, second = sections_of(made)
    indented = "\n".join(f"    {line}" for line in lines.splitlines())
    assert (first["title"], first["text"], first["rows"]) == ("Part", "Before <b>.", [["1"]])
    assert second["title"] == "" and second["text"] == f"- x\n- two\n\n{indented}"
    assert "## Warnings\n\n- no" in to_markdown(made) and "![c](c)" in to_markdown(made)


def test_no_mark_and_no_name_of_a_status_is_left() -> None:
    said = f"{strong('Does it * fail?')} Yes ({code('steps/01')}), 2**3"
    made = document(
        *section("How", [Bullets((said,))]),
        *section("Kept", [table(("model", "status"), [("a_b", "not_as_expected")])]),
    )
    how, kept = sections_of(made)
    assert how["text"] == "- Does it * fail? Yes (steps/01), 2**3"
    assert kept["rows"] == [["a_b", "not as expected"]]
    assert "- **Does it * fail?** Yes (`steps/01`), 2&#42;&#42;3" in to_markdown(made)


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=40))
def test_a_name_is_one_whatever_it_holds(name: str) -> None:
    (how,) = sections_of(document(*section("How", [f"a {code(name)} b"])))
    assert how["text"].startswith("a") and how["text"].endswith("b") and "\n" not in how["text"]
