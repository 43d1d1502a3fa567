"""What REPORT.md says, read back: nothing that was escaped is lost, and no name makes a table or a heading."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from runner.report.markup import block, bullets, code, section, table, text
from runner.report.page.markdown_sections import sections_of, title_of

PRINTABLE = st.text(st.characters(categories=("L", "N", "P", "S")), max_size=30)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(PRINTABLE, PRINTABLE), min_size=1, max_size=4))
def test_cells_come_back_as_they_were(rows: list[tuple[str, str]]) -> None:
    report = f"# {text('title')}\n\n" + section("Part", table(("name", ""), rows, names=1)) + "\n"
    (held,) = sections_of(report)
    assert held["title"] == "Part" and held["head"] == ["name", ""]
    assert held["rows"] == [list(row) for row in rows]


def test_text_lists_code_and_several_tables_keep_their_order() -> None:
    lines = "print(1)\n## no heading\n| no | table |"
    body = "\n\n".join(
        [text("Before <b>."), table(("a",), [("1",)]), bullets([code("x"), "two"]), block(lines, "sh"), "![c](c.svg)"]
    )
    report = f"# The *title*\n\nwhat was said\n\n{section('Part', body)}\n\n{section('Warnings', '- no')}\n"
    first, second = sections_of(report)
    indented = "\n".join(f"    {line}" for line in lines.splitlines())
    assert (first["title"], first["text"], first["rows"]) == ("Part", "Before <b>.", [["1"]])
    assert second["title"] == "" and second["text"] == f"- x\n- two\n\n{indented}"
    assert title_of(report) == "The *title*" and title_of("") == "" and sections_of("") == []


def test_no_markup_and_no_name_of_a_status_is_left_and_steps_are_told_once() -> None:
    said = f"**{text('Does it * fail?')}** Yes ({code('steps/01')}), 2**3"
    report = f"# t\n\n{section('How', bullets([said]))}\n\n{section('Steps', table(('step',), [('x',)]))}\n\n"
    report += section("Kept", table(("model", "status"), [("a_b", "not_as_expected")]))
    how, kept = sections_of(report)
    assert how["text"] == "- Does it * fail? Yes (steps/01), 2**3"
    assert kept["rows"] == [["a_b", "not as expected"]]
