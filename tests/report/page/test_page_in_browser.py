"""A page in a browser: what is drawn, by pointer and by keyboard, what names can do, and who can read it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper
from playwright.sync_api import Browser, Locator, Page

from runner.model.graph.graph_index import Graph as Index
from runner.report.document import Code, section, table
from runner.report.page import html
from runner.report.page.data import Page as Values
from runner.report.page.data import PagePrecision
from runner.report.page.graph_columns import columns
from runner.report.page.html import page_text, write_page
from tests.report.page.in_browser import SCHEMES, WIDTHS, Loaded, browser, loaded, serious
from tests.report.page.page_values import HOSTILE, KINDS, reduced
from tests.report.page.page_values import page as page_of_values

Show = Callable[..., Page]
SMALL = [kind for kind in KINDS if kind != "reduce"]
READ_BELOW = ("triage", "sweep", "hostile", "nested", "repeat", "precision", "one")
#: of a tensor of which nothing is finite
NONE: dict[str, Any] = {"low": None, "high": None, "mean": None, "edges": [], "counts": []}


@pytest.fixture(scope="module")
def one(chromium: str) -> Iterator[Browser]:
    # for this module only: its loop would be in the way of others
    with browser(chromium) as made:
        yield made


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    for kind in SMALL:
        (folder / f"{kind}.html").write_text(page_text(KINDS[kind]()), encoding="utf-8")
    return folder


@pytest.fixture
def show(one: Browser, pages: Path, tmp_path: Path) -> Iterator[Show]:
    """Shows a page of a kind, or one that was made; it has said nothing to the console in the end."""
    with ExitStack() as held:

        def shown(what: str | Values, *given: str) -> Page:
            if not isinstance(what, str):
                write_page(tmp_path, what)
            path = pages / f"{what}.html" if isinstance(what, str) else tmp_path / "report.html"
            seen = held.enter_context(loaded(one, path, *given))
            held.callback(quiet, seen)
            return seen.page

        yield shown


@pytest.fixture
def triage(show: Show) -> Page:
    return show("triage")


def quiet(seen: Loaded) -> None:
    assert not seen.errors and not seen.asked
    hidden = seen.page.locator("main > section:not([hidden])").count()
    assert hidden == seen.page.locator("#contents a").count() + 1


def chosen(page: Page) -> str:
    return page.inner_text("[role=tabpanel]:not([hidden]) .details h3")


@pytest.mark.parametrize("kind", [kind for kind in SMALL if kind not in READ_BELOW])
def test_a_page_says_nothing_to_the_console_and_asks_for_nothing(show: Show, kind: str) -> None:
    show(kind)


def test_names_are_text_wherever_they_stand(show: Show) -> None:
    page = show("hostile")
    page.click("#tab-whole")
    for line in range(len(HOSTILE)):
        page.locator("#panel-whole .nodes .line").nth(line).click()
    for line in page.locator(".path .line").all():
        line.click()
    assert page.inner_text("#panel-whole .details h3")
    assert page.locator("#panel-whole .box", has_text=HOSTILE[0]).count()
    assert page.locator(".path .trial", has_text=HOSTILE[0]).count()
    assert page.evaluate("document.querySelectorAll('img, iframe, object, base').length") == 0
    assert page.evaluate("document.scripts.length") == 2
    shapeless = (
        "[...document.body.innerText].filter((one) => '\\u202e\\u202c\\u0000\\u0007\\u2028'.includes(one)).length"
    )
    assert page.evaluate(shapeless) == 0


def test_a_page_reads_without_scripts(one: Browser, pages: Path) -> None:
    with loaded(one, pages / "triage.html", scripts=False) as seen:
        text = seen.page.inner_text("main")
        assert "still fail" in text and "They are the cause" in text and "python repro.py" in text
        assert "drawn by this page's own script" in text and "Find a node" not in text
        assert not seen.errors and not seen.asked


def test_a_node_is_chosen_in_the_drawing_and_in_the_list(triage: Page) -> None:
    triage.click("#panel-reduced .box.node >> nth=0")
    assert chosen(triage) == triage.inner_text("#panel-reduced .line[aria-selected=true] .name")
    details = triage.inner_text("#panel-reduced .details")
    assert "float16[1, 128, 768]" in details and "1,284 elements differ" in details and "own, on good inputs" in details
    assert triage.locator("#panel-reduced .details .histogram path").count() >= 2
    triage.click("#tab-whole")
    triage.fill("#panel-whole input", "layer.2 softmax")
    assert triage.locator("#panel-whole .nodes .line").count() == 1
    triage.press("#panel-whole input", "Enter")
    assert "layer.2" in chosen(triage)
    triage.wait_for_selector("#panel-whole .box.node.chosen:has-text('Softmax')")
    triage.click("#panel-whole .details .link >> nth=0")
    assert "MatMul" in chosen(triage)


def test_keys_walk_through_the_list_the_drawing_and_its_blocks(triage: Page) -> None:
    triage.click("#tab-whole")
    triage.select_option("#panel-whole select", "error")
    lines = triage.locator("#panel-whole .list")
    lines.press("Home")
    assert triage.inner_text("#panel-whole .line[aria-selected=true] .score") == "inf"
    worst = chosen(triage)
    lines.press("ArrowDown")
    assert chosen(triage) != worst and lines.get_attribute("aria-activedescendant")
    triage.wait_for_selector("#panel-whole [aria-busy=false]")
    box = triage.locator("#panel-whole .box[tabindex='0']")
    box.press("ArrowUp")
    above = triage.evaluate("document.activeElement.classList.contains('chosen')")
    assert above and chosen(triage)
    closed = triage.locator("#panel-whole .box.block:not(.open)").first
    name = closed.get_attribute("aria-label") or ""
    count = triage.locator("#panel-whole .box").count()
    closed.press("Enter")
    assert triage.locator("#panel-whole .box").count() > count
    assert triage.evaluate("document.activeElement.getAttribute('aria-label')").startswith(name.partition(",")[0])
    triage.keyboard.press("Enter")
    assert triage.locator("#panel-whole .box").count() == count


def test_a_trial_marks_what_it_kept(triage: Page) -> None:
    triage.click(".path .line >> nth=0")
    assert "the model file" in triage.inner_text(".trial") and "max abs error" in triage.inner_text(".trial pre")
    assert triage.locator("#panel-whole .box.out").count() == 0
    triage.click(".path .line >> nth=3")
    assert triage.locator("#panel-whole .box.out").count() > 0
    triage.click("text=Show all nodes")
    assert triage.locator("#panel-whole .box.out").count() == 0


def test_a_layer_is_chosen_in_the_chart(triage: Page) -> None:
    slider = triage.locator("#layers [role=slider]")
    slider.press("End")
    assert (slider.get_attribute("aria-valuetext") or "").startswith("89: ")
    slider.press("Enter")
    assert "node 89 of 90" in triage.inner_text("#panel-whole .details")


def values_of(show: Show, good: Mapping[str, Any], wrong: Mapping[str, Any] | None, **told: Any) -> Locator:
    """The values of a tensor, both sides of which are changed so; the wrong one may be missing."""
    made = reduced(9)
    first: Any = made.tensors[0]
    made = replace(
        made, tensors=[{**first, "good": first["good"] | good, "wrong": wrong and first["wrong"] | wrong, **told}]
    )
    return show(made).locator("#panel-reduced .values").first


@pytest.mark.slow
def test_values_that_target_and_reference_share_are_not_drawn_as_good_and_wrong(show: Show) -> None:
    same = {**NONE, "nan": 0, "inf": 29, "first": []}
    values = values_of(show, same, same, differences=[], differing=0)
    assert "the same values: the reference has 29 Inf here as well" in values.inner_text()
    assert re.search(r"range\s+nothing finite", values.inner_text()) and "lowest" not in values.inner_text()
    assert values.locator(".wrong").count() == 0 and "wrong" not in values.inner_text()


@pytest.mark.slow
def test_values_that_are_all_the_same_have_no_histogram(show: Show) -> None:
    values = values_of(show, {"low": 0.5, "high": 0.5, "edges": [0.5, 0.5], "counts": [8]}, None)
    assert "0.5" in values.inner_text() and not values.locator(".histogram").count()


@pytest.mark.slow
def test_values_of_which_none_is_finite_are_told_so(show: Show) -> None:
    values = values_of(show, {}, {**NONE, "nan": 8})
    assert "nothing finite" in values.locator("table tr", has_text="highest").first.inner_text()
    assert "nothing finite" in (values.locator("[role=img]").first.get_attribute("aria-label") or "")


def test_a_node_tells_its_type_in_the_mixed_model_and_its_share_of_the_range(show: Show) -> None:
    page = show("precision")
    details = page.locator(".details")
    lines = page.locator(".nodes .list")
    lines.press("Home")
    told = re.sub(r"\s+", " ", details.inner_text())
    assert "in the mixed model float16 largest magnitude 12.5" in told and "share of the limit under 0.1 %" in told
    page.select_option(".nodes select", "error")
    lines.press("Home")
    told = re.sub(r"\s+", " ", details.inner_text())
    assert "in the mixed model float32" in told and "4.58 times: beyond it" in told
    assert "with everything low inf in the mixed model 1.00e-4" in told


@pytest.mark.slow
def test_a_nested_node_tells_its_type_and_that_its_error_is_not_measured(show: Show) -> None:
    made = KINDS["nested"]()
    known: PagePrecision = {"held": "float32", "error": None, "most": 7e4, "limit": 65504.0, "why": "not finite"}
    made = replace(made, layers=[{**layer, "error": None, "own": None, "precision": known} for layer in made.layers])
    page = show(made)
    assert chosen(page) == "bad"
    told = re.sub(r"\s+", " ", page.inner_text(".details"))
    assert "in the mixed model float32 largest magnitude 7.00e" in told or "largest magnitude 70" in told, told
    assert "with everything low not measured: in a nested graph own, if it alone is low not finite" in told
    # nothing has an error: there is no chart of these, no legend, and no box with one
    assert page.locator("#layers").count() == 0 and "error:" not in page.inner_text(".legend")
    assert not any("null" in text for text in page.locator(".box, .list").all_text_contents())


def boxes(page: Page, kind: str = "") -> list[str]:
    """The first lines of the boxes that are drawn."""
    return page.locator(f".box{kind} > .first").all_text_contents()


def test_nested_graphs_are_opened_and_a_culprit_is_shown_where_it_is(show: Show) -> None:
    page = show("nested")
    # it opens where the culprit is, and says in words where that is
    assert chosen(page) == "bad"
    assert "in the body of Loop loop, in the then branch of If gate, in the whole model" in page.inner_text(".details")
    assert page.locator(".box.culprit.node:not(.owner)").count() == 1
    assert "\u2605 Exp" in boxes(page, ".chosen") and page.locator(".box.chosen.error-2, .box.chosen.error-1").count()
    # its values are those of its own tensor, and not those of one with the same name elsewhere
    assert page.locator(".details .values").count() == 1
    assert "output of the body of Loop loop" in page.inner_text(".details")
    assert page.inner_text(".count") == "4 nodes, 11 nested"
    # an owner is opened and closed as a block is
    assert not any("Relu" in text for text in boxes(page))
    second = page.locator(".box.owner", has_text="Swish").last
    before = page.locator(".box").count()
    second.dblclick()
    assert page.locator(".box").count() == before + 2
    assert "function Swish" in " ".join(boxes(page, ".open"))
    assert "Close its function Swish" in page.inner_text(".details")
    page.locator(".box.chosen").press("Enter")
    assert page.locator(".box").count() == before
    # what a branch captures comes from outside it
    page.fill(".nodes input", "relu plain")
    page.press(".nodes input", "Enter")
    page.wait_for_selector(".box.chosen:has-text('Relu')")
    assert "in the else branch of If gate, in the whole model" in page.inner_text(".details")
    page.click(".details .link >> text=Abs")
    assert chosen(page) == "before"
    # a trial that left an owner out left out what lies in it
    page.click(".path .line >> nth=2")


@pytest.mark.slow
def test_the_head_of_what_is_open_lies_within_it(show: Show) -> None:
    made = KINDS["nested"]()
    assert made.whole
    made.whole["names"][1] = "a name that is much longer than its nodes are"
    beyond = """() => [...document.querySelectorAll(".box.open")].filter((box) => {
      const [text, rect] = [".first", "rect"].map((one) => box.querySelector(one).getBoundingClientRect());
      return text.right > rect.right;
    }).length"""
    page = show(made)
    page.locator(".box.owner", has_text="Swish").last.dblclick()
    assert page.locator(".box.open").count() == 4 and page.evaluate(beyond) == 0


@pytest.mark.slow
def test_what_names_a_nested_graph_may_be_long_and_what_holds_nothing_is_not_to_be_opened(show: Show) -> None:
    value, node, graph = helper.make_tensor_value_info, helper.make_node, helper.make_graph
    swish = "torch_nn_modules_activation_" * 20
    results = [value("b", TensorProto.FLOAT, None)]
    branches = {
        name: graph([node("Constant", [], ["b"], value_float=1.0)], name, [], results)
        for name in ("then_branch", "else_branch")
    }
    nodes = [node("If", ["yes"], ["a"], "gate", **branches), node(swish, ["a"], ["y"], "call", domain="own")]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    body = helper.make_function("own", swish, ["v"], ["w"], [node("Sigmoid", ["v"], ["w"], "s")], imports[:1])
    ends = value("yes", TensorProto.BOOL, []), value("y", TensorProto.FLOAT, None)
    model = helper.make_model(graph(nodes, "g", ends[:1], ends[1:]), opset_imports=imports, functions=[body])
    page = show(page_of_values(title="names", whole=columns(Index.of(model), {}), elements="nodes"))
    for owner in ("gate", "call"):
        page.fill(".nodes input", owner)
        page.press(".nodes input", "Enter")
        page.locator(".details button", has_text="Open its").click()
    widths = page.locator(".box > rect").evaluate_all("(all) => all.map((one) => one.width.baseVal.value)")
    assert max(widths) < 1000
    # branches that are a constant each: nothing is in them
    empty = page.locator(".box.block", has_text="branch")
    assert [text.startswith("\u25b8") for text in empty.locator(".first").all_text_contents()] == [False, False]
    empty.first.dispatch_event("click")
    told = page.inner_text(".details")
    assert "no nodes but constants" in told and "Operators" not in told


@pytest.mark.slow
def test_edges_of_a_nested_graph_end_at_its_border(show: Show) -> None:
    edges = """async () => {
      const graph = new ModelGraph((await unpacked()).whole, []);
      const ends = (block) => ([from, to]) => [from, to].map((at) => block.children[at]?.name ?? "");
      const named = (block) => graph.edgesIn(block).map(ends(block));
      const inside = (name) => named(graph.items[graph.nodeNames.get(name)]);
      return [named(graph.root), inside("gate"), inside("gate.then_branch/loop")];
    }"""
    page = show("nested")
    root, gate, loop = page.evaluate(edges)
    assert sorted(root) == [
        ["", "before"], ["", "gate"], ["before", "gate"], ["first", "second"], ["gate", "first"], ["second", ""],
    ]  # fmt: skip
    assert sorted(gate) == [["", "else branch"], ["", "then branch"]]
    assert sorted(loop) == [
        ["", "condition"], ["", "step0"], ["", "step1"], ["bad", ""], ["condition", ""],
        ["step0", "step1"], ["step1", "bad"],
    ]  # fmt: skip


def held_by(place: str, down: int) -> str:
    """Return a drawing's place after it was moved down."""
    x, y = place.removeprefix("translate(").removesuffix(")").split()
    return f"translate({x} {float(y) + down})"


@pytest.mark.slow
def test_each_node_counts_once_however_wide_its_block_is(show: Show) -> None:
    counts = """async (many) => {
      const graph = (await unpacked()).whole;
      const nodes = Array.from({ length: many }, (_, node) => node);
      const wide = { ...graph, names: nodes.map(String), operator: nodes.map(() => 0), culprits: [1, many - 1] };
      for (const column of ["inputs", "outputs"]) wide[column] = nodes.map(() => []);
      wide.blocks = ["a/b", "a/c", ...nodes.map((node) => `a/b/${node % 450}`)];
      wide.block = nodes.map((node) => (node % 3 ? node + 2 : node % 2));
      const { root } = new ModelGraph(wide, []);
      const widest = (item) => Math.max(item.children.length, ...item.children.map(widest));
      const sum = (key) => root.children.reduce((all, one) => all + (one[key].length ?? one[key]), 0);
      const once = (item) => new Set(item.nodes).size === item.nodes.length && item.children.every(once);
      return [sum("nodes"), sum("culprits"), root.nodes.length, widest(root) <= 20, once(root)];
    }"""
    page = show("triage")
    for many in (61, 400, 381 * 3, 5000):
        assert page.evaluate(counts, many) == [many, 2, many, True, True]


@pytest.mark.slow
def test_the_keyboard_stays_with_what_it_opened(triage: Page) -> None:
    triage.click("#tab-whole")
    details = triage.locator("#panel-whole .details")
    triage.locator("#panel-whole .box.block:not(.open)").first.dispatch_event("click")
    details.locator("button", has_text="Open block").press("Enter")
    assert triage.evaluate("document.activeElement.closest('.details') && document.activeElement.tagName") == "H3"
    triage.keyboard.press("Tab")
    assert triage.evaluate("document.activeElement.textContent") == "Close block"
    triage.locator("#panel-whole .box.node").first.dispatch_event("click")
    link = details.locator(".links button").first
    link.press("Enter")
    assert triage.evaluate("document.activeElement.tagName") == "H3"
    triage.click(".path .line >> nth=3")
    triage.press("text=Show all nodes", "Enter")
    assert triage.evaluate("document.activeElement.closest('.drawing') !== null")


STANDS_STILL = """() => new Promise(done => {
    let last, same = 0
    const look = () => {
        const now = scrollY + document.querySelector("#panel-whole .graph > g").getAttribute("transform")
        same = now === last ? same + 1 : 0
        last = now
        same > 8 ? done() : requestAnimationFrame(look)
    }
    look()
})"""


@pytest.mark.slow
def test_fingers_scroll_the_page_zoom_the_drawing_and_move_it_once_it_is_tapped(show: Show) -> None:
    page = show("triage", "phone")
    page.locator("#tab-whole").tap()
    drawing = page.locator("#panel-whole .drawing")
    session = page.context.new_cdp_session(page)

    def to_the_drawing() -> None:
        top = "document.querySelector('#panel-whole .drawing').offsetTop"
        page.evaluate(f"scrollTo({{ top: {top}, behavior: 'instant' }})")

    def slide(*fingers: tuple[int, int]) -> tuple[float, str, float]:
        """Move fingers from the middle by so much; return the drawing's scale and place, and the page's."""
        box = drawing.bounding_box()
        assert box
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        for step in range(9):
            points = [
                {"x": x + 30 * at + right * step / 8, "y": y + down * step / 8, "id": at}
                for at, (right, down) in enumerate(fingers)
            ]
            kind = "touchMove" if step else "touchStart"
            session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        page.evaluate(STANDS_STILL)  # a page that still moves takes the next fingers for its own
        return state()

    def state() -> tuple[float, str, float]:
        place = page.evaluate("document.querySelector('#panel-whole .graph > g').getAttribute('transform')")
        move, scale = place.split(" scale(")
        return float(scale[:-1]), move, page.evaluate("scrollY")

    to_the_drawing()
    assert "Two fingers zoom" in page.inner_text(".below .hint")
    scale, place, top = state()
    assert slide((0, -120))[:2] == (scale, place) and state()[2] > top + 60
    to_the_drawing()  # how far a finger's swing carries the page depends on how busy the machine is
    larger, moved, _ = slide((-40, 20), (40, -20))
    assert larger > 1.5 * scale and moved != place
    assert page.evaluate("visualViewport.scale") == 1
    page.locator("#panel-whole .graph").tap(position={"x": 5, "y": 5})
    page.wait_for_timeout(50)
    scale, held, top = state()
    assert slide((0, 60)) == (scale, held_by(held, 60), top)


@pytest.mark.slow
def test_an_unseen_character_has_one_spelling_and_is_found_by_it(show: Show) -> None:
    made = reduced(40)
    assert made.whole
    name = "one\ntwo \x07\xa0\U000e0001"
    made.whole["names"][3] = name
    made = replace(made, sections=section("Names", [table(("", "x"), [("y", name)], names=2)]))
    page = show(made)
    told = page.inner_text("#section-0 tbody td:nth-child(2)")
    assert told == "one\\ntwo \\x07\\xa0\\U000e0001"
    page.click("#tab-whole")
    for typed in ("one\\ntwo", "one\\x0atwo", "two \\x07", "\\u0007"):
        page.fill("#panel-whole input", typed)
        assert page.inner_text("#panel-whole .nodes .line .name") == told
    page.press("#panel-whole input", "Enter")
    assert chosen(page) == told


@pytest.mark.slow
def test_an_older_browser_shows_all_of_it_in_light_colors(
    one: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asset = html._asset
    # as a browser of 2023 reads it: what it does not know is dropped, and a selector that it does not know throws
    monkeypatch.setattr(
        html, "_asset", lambda name: asset(name).replace("light-dark(", "unknown(").replace(":has(", ":unknown(")
    )
    write_page(tmp_path, KINDS["triage"]())
    with loaded(one, tmp_path / "report.html", scheme="dark") as seen:
        page = seen.page
        assert page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor") == "rgb(245, 246, 248)"
        assert page.locator(".box").count() and not page.locator(".theme").is_visible()
        assert page.locator(".copy").count() and not serious(page)
        quiet(seen)


def test_iterations_of_a_repeat_are_no_sets(show: Show) -> None:
    page = show("repeat")
    assert "kept of" not in page.inner_text(".path") and not page.locator(".path .strip").count()


def test_code_is_copied_and_what_is_folded_is_printed(show: Show) -> None:
    made = reduced(40)
    code = "\n".join(f"def f{at}():\n    return {at}" for at in range(20))
    made = replace(made, sections=section("To reproduce", ["Run:", Code(code)]))
    page = show(made)
    part = page.locator("#section-0")
    assert "return 7" not in part.inner_text() and "40 lines" in part.inner_text()
    part.locator("summary").press("Enter")
    assert "def f7():\n    return 7" in part.locator("code").inner_text()
    part.locator("button").click()
    page.wait_for_selector("#section-0 >> text=/^(Copied|Press Ctrl.C)$/")
    part.locator("summary").press("Enter")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert "return 7" in part.inner_text()
    assert not page.locator("#graph").is_visible() and not page.locator(".theme").is_visible()


def test_copying_and_ordering_and_dark_and_light(one: Browser, pages: Path) -> None:
    with loaded(one, pages / "triage.html") as seen:
        button = seen.page.locator(".commands button").first
        button.click()
        seen.page.wait_for_selector("text=/^(Copied|Press Ctrl.C)$/")
        before = seen.page.evaluate("getComputedStyle(document.body).color")
        seen.page.click(".theme")
        assert seen.page.evaluate("getComputedStyle(document.body).color") != before
    with loaded(one, pages / "sweep.html") as seen:
        head = seen.page.locator(".jobs th button", has_text="seconds")
        head.click()
        head.click()
        assert seen.page.inner_text(".jobs tbody tr td") == "23"
        assert seen.page.get_attribute(".jobs th:nth-child(8)", "aria-sort") == "descending"
        quiet(seen)


def test_a_page_is_for_everyone(show: Show) -> None:
    page = show("triage", "phone", "dark")
    page.click("#panel-reduced .box.node >> nth=0")
    assert not serious(page, ("minor", "moderate", "serious", "critical"))
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS["phone"][0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", SMALL)
def test_pages_of_every_kind_are_for_everyone(one: Browser, pages: Path, kind: str) -> None:
    # colors hang on the scheme, places on the width
    for scheme, width in zip(SCHEMES, reversed(WIDTHS), strict=True):
        with loaded(one, pages / f"{kind}.html", width, scheme) as seen:
            page = seen.page
            for part in ("#tab-whole", ".path .line >> nth=0"):
                if page.locator(part).count():
                    page.click(part)
            assert not serious(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width][0]
            quiet(seen)


@pytest.mark.slow
def test_25_000_nodes_are_found_and_chosen(show: Show) -> None:
    page = show(reduced())
    page.click("#tab-whole")
    lines = page.locator("#panel-whole .list")
    lines.press("End")
    assert "node 24999 of 25000" in page.inner_text("#panel-whole .details")
    page.wait_for_selector("#panel-whole .box.node.chosen[aria-label*='layer.2777']")
    assert page.locator("#panel-whole .line").count() < 60 and page.locator(".box").count() < 800
