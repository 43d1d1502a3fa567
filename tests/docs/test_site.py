"""The docs as a site: built without a network, and asking nothing of any other host.

Built strictly: mkdocs refuses pages that no menu has, and links and anchors that lead nowhere.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.harness import ROOT

pytestmark = pytest.mark.slow  # `make docs` builds it strictly, and so does CI
_DEAD = "http://127.0.0.1:9"


class _Page(HTMLParser):
    """What a page links to, and what it loads by itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") not in ("canonical", "prev", "next") and "href" in given:
            self.loads.append(given["href"])
        elif "src" in given:
            self.loads.append(given["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site strictly where no other machine can be reached."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    alone = ["unshare", "--map-root-user", "--net"]
    cut_off = (
        shutil.which("unshare") and not subprocess.run([*alone, "true"], capture_output=True, check=False).returncode
    )
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), _DEAD)
    done = subprocess.run(
        [*(alone if cut_off else []), sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, env={**os.environ, **proxies, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, _Page]:
    return {path: _Page(path.read_text()) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}


def _targets(page: Path, links: list[str], site: Path) -> Iterator[tuple[str, Path]]:
    for link in links:
        parts = urlsplit(link)
        if not parts.scheme and not parts.netloc:
            path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            yield link, path / "index.html" if path == site else path


def test_each_picture_is_in_a_page(site: Path, pages: dict[Path, _Page]) -> None:
    shown = {target for path, page in pages.items() for _, target in _targets(path, page.links + page.loads, site)}
    assert {path.name for path in set(site.joinpath("pictures").iterdir()) - shown} == set()


def test_nothing_is_loaded_from_another_host(site: Path, pages: dict[Path, _Page]) -> None:
    for path, page in pages.items():
        foreign = [link for link in page.loads if urlsplit(link).scheme not in ("", "data") or link.startswith("//")]
        assert not foreign, f"{path.name}: {foreign}"
        missing = [link for link, target in _targets(path, page.loads, site) if not target.exists()]
        assert not missing, f"{path.name}: {missing}"
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.findall(r"url\(\s*[\"']?(?:https?:)?//[^)]*\)|@import[^;]*", styles)


def test_it_works_from_a_disk(site: Path, chromium: str) -> None:
    """Search included; no request leaves the machine, and nothing goes wrong on the way."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only where there is a browser

    switches = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=[*switches, "--disable-sync", "--no-first-run"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        asked: list[str] = []
        wrong: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto((site / "index.html").as_uri())
        page.keyboard.press("/")
        page.keyboard.type("tolerance")
        page.wait_for_selector(".md-search-result__item a", timeout=20_000)
        browser.close()
    assert not wrong
    assert {urlsplit(url).scheme for url in asked} <= {"file", "data", "blob"}
