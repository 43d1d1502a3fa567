"""What a page costs in a browser: bytes, first paint, time until it is drawn, a click on a node; and what is wrong.

    python -m benchmarks.pages [REPORT.html ...] [--kinds reduce,sweep] [--pictures DIR] [--times 5]

Pages that are named, or pages of every kind that are made here (``reduce``: 25,000 nodes). Each is loaded afresh
``--times`` times in a Chromium without a window; milliseconds are medians. ``click``: from the press of a node's box or
line until its details are there and laid out; ``open``: until a block is; ``far``: until a node anywhere in the list is
drawn and lit, with all blocks that it lies in, ``cpu``: of that the page's own work. ``axe``: issues that axe-core
calls serious or critical, in both schemes at desktop and phone width together. ``asked``: requests but for the file
itself.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from benchmarks.page_values import KINDS
from runner.report.page.html import page_text

WIDTHS = {"desktop": (1440, 900), "phone": (390, 844)}
SCHEMES = ("light", "dark")
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
)
HEAD = (
    "page                        bytes  paint  drawn  click   most   open   most    far   most    cpu  axe errors asked"
)
_PAINT = "performance.getEntriesByType('paint').find((entry) => entry.name === 'first-paint')?.startTime ?? 0"
_MADE_BY_NAMES = "[...document.querySelectorAll('img, iframe, object, embed')].map((one) => one.outerHTML)"
_CLICKS = """async (what) => {
  const taken = [];
  const busy = () => document.querySelector("[aria-busy=true]");
  for (let turn = 0; turn < what.times; turn++) {
    const list = document.querySelector("[role=tabpanel]:not([hidden]) .list");
    if (what.far && list) {
      list.scrollTop = (turn * 0.37 % 1) * list.scrollHeight;
      list.dispatchEvent(new Event("scroll"));
    }
    const all = [...document.querySelectorAll(what.where)].filter((one) => one.getClientRects().length);
    if (!all.length) break;
    const one = all[(turn * 7) % all.length];
    const start = performance.now();
    one.dispatchEvent(new MouseEvent(what.event, { bubbles: true }));
    document.body.getBoundingClientRect();
    while (what.far && busy()) await new Promise((done) => setTimeout(done));
    taken.push(performance.now() - start);
    while (busy()) await new Promise((done) => setTimeout(done));
  }
  return taken;
}"""


@dataclass
class Loaded:
    """A page in a browser, and what it did that it should not."""

    page: Page
    errors: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


@contextmanager
def browser(program: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path=program, args=[*ARGUMENTS])
        try:
            yield one
        finally:
            one.close()


@contextmanager
def loaded(
    one: Browser, path: Path, width: str = "desktop", scheme: Any = "light", scripts: bool = True
) -> Iterator[Loaded]:
    """A page until it is drawn, in a context of its own."""
    across, down = WIDTHS[width]
    context = one.new_context(
        viewport={"width": across, "height": down},
        has_touch=width == "phone",
        is_mobile=width == "phone",
        color_scheme=scheme,
        java_script_enabled=scripts,
        reduced_motion="reduce",
    )
    try:
        page = context.new_page()
        seen = Loaded(page)
        page.on(
            "console",
            lambda message: seen.errors.append(message.text) if message.type in {"error", "warning"} else None,
        )
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.on("dialog", lambda dialog: (seen.errors.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: None if request.url == path.as_uri() else seen.asked.append(request.url))
        page.goto(path.as_uri())
        if scripts:
            page.wait_for_selector("html[data-ready]", state="attached")
        yield seen
    finally:
        context.close()


def serious(page: Page, impacts: Sequence[str] = ("serious", "critical")) -> list[str]:
    """Issues that axe-core calls serious or critical, or those of other impacts, with the elements."""
    found = Axe().run(page).response["violations"]
    worst = [one for one in found if one["impact"] in impacts]
    return [
        f"{one['id']}: {node['target']} {node.get('failureSummary', '')}" for one in worst for node in one["nodes"][:3]
    ]


def clicks(page: Page, where: str, event: str = "click", far: bool = False, times: int = 20) -> list[float]:
    return page.evaluate(_CLICKS, {"where": where, "event": event, "far": far, "times": times})


def measured(one: Browser, name: str, path: Path, times: int, pictures: Path | None) -> str:
    paints, drawn, pressed, opened, afar, worked = [], [], [], [], [], []
    errors, asked, issues = [], [], []
    for _ in range(times):
        with loaded(one, path) as seen:
            page = seen.page
            paints.append(page.evaluate(_PAINT))
            drawn.append(page.evaluate("performance.getEntriesByName('ready')[0].startTime"))
            if page.locator("#tab-whole").count():
                page.click("#tab-whole")
            pressed += clicks(page, ".box.node")
            opened += clicks(page, ".box.block:not(.open)", "dblclick", times=8)
            pressed += clicks(page, ".nodes .line")
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable", {"timeDomain": "threadTicks"})
            before = _busy(session)
            afar += (jumps := clicks(page, ".nodes .line", far=True))
            worked += [(_busy(session) - before) / len(jumps)] if jumps else []
            errors += seen.errors
            errors += page.evaluate(_MADE_BY_NAMES)
            asked += seen.asked
    for scheme in SCHEMES:
        for width in WIDTHS:
            with loaded(one, path, width, scheme) as seen:
                issues += serious(seen.page)
                if pictures:
                    _photograph(seen.page, pictures / f"{name}-{scheme}-{width}")
    figures = (f"{_of(statistics.median, values):>6}" for values in (paints, drawn))
    spans = (f"{_of(statistics.median, values):>6} {_of(max, values):>6}" for values in (pressed, opened, afar))
    cpu = _of(statistics.median, worked)
    line = f"{name:22} {path.stat().st_size:>10,} {' '.join(figures)} {' '.join(spans)} {cpu:>6}"
    wrong = [f"    {text[:300]}" for text in (*issues, *errors, *asked)]
    return "\n".join([f"{line} {len(issues):>4} {len(errors):>6} {len(asked):>5}", *wrong])


def _busy(session: CDPSession) -> float:
    """Milliseconds of processor time that the page's own thread has taken."""
    told = session.send("Performance.getMetrics")["metrics"]
    return 1000 * next(one["value"] for one in told if one["name"] == "TaskDuration")


def _of(choose: Callable[[Sequence[float]], float], values: Sequence[float]) -> str:
    return f"{choose(values):.0f}" if values else "-"


def _photograph(page: Page, stem: Path) -> None:
    page.screenshot(path=f"{stem}.png")
    if page.locator("#tab-whole").count():
        page.click("#tab-whole")
    for section in ("graph", "layers", "curve", "trials", "jobs"):
        if page.locator(f"#{section}").count():
            page.locator(f"#{section}").screenshot(path=f"{stem}-{section}.png")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--chromium", default=shutil.which("chromium") or "chromium")
    given = parser.parse_args()
    if given.pictures:
        given.pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, browser(given.chromium) as one:
        named = {f"{path.parent.name}/{path.name}"[-22:]: path.resolve() for path in given.pages}
        for kind in given.kinds.split(",") if not named else ():
            named[kind] = Path(scratch) / f"{kind}.html"
            named[kind].write_text(page_text(KINDS[kind]()), encoding="utf-8")
        sys.stdout.write(f"{HEAD}\n")
        for name, path in named.items():
            sys.stdout.write(f"{measured(one, name.replace('/', '-'), path, given.times, given.pictures)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
