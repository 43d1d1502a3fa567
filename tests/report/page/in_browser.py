"""A page in a Chromium without a window: what it asks for, its errors, and what axe-core calls serious."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

WIDTHS = {"desktop": (1440, 900), "phone": (390, 844)}
SCHEMES = ("light", "dark")
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
)


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
