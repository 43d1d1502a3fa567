"""What pages quote is there: keys of the schema, messages of the program, the rows of the last screen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from runner.cli.help import keys
from tests.harness import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: names of files look like keys: result.json, inputs.npz
_FILES = ("json", "jsonl", "md", "npz", "onnx", "py", "yaml")
#: of installed packages; what a key was called before; a typo that is meant; attributes in Python
_OTHERS = re.compile(r"hydra\.|checker\.comand|result\.(culprits|cause)\b")


def _source(*folders: str) -> str:
    """Return what modules hold, in small letters, with texts of several lines as one."""
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return re.sub(r'"\s*f?"', "", "\n".join(path.read_text() for path in paths)).lower()


def _cells(page: str, head: str) -> Iterator[str]:
    """Yield the first cells of the tables that begin with ``head``."""
    within = False
    for line in (ROOT / "docs" / page).read_text().splitlines():
        first = line.split(" | ")[0].removeprefix("| ")
        if within and line.startswith("|") and not line.startswith("|---"):
            yield first
        within = line.startswith("|") and (within or first == head)


def test_each_key_that_a_page_names_is_a_key() -> None:
    known = {key.name for key in keys()}
    groups = "|".join(sorted({name.partition(".")[0] for name in known if "." in name}))
    named = re.compile(rf"(?<![\w./-])({groups})((?:\.[a-z_]+)+)(?![\w(])")
    unknown = []
    for page in PAGES:
        text = page.read_text()
        for found in named.finditer(text):
            key, last = found[0], found[0].rpartition(".")[2]
            parents = {key[:at] for at in range(len(key)) if key[at] == "."}
            if key not in known and last not in _FILES and not parents & known and not _OTHERS.match(key):
                unknown.append(f"{page.name}:{text.count(chr(10), 0, found.start()) + 1}: {key}")
    assert not unknown


def test_each_message_that_troubleshooting_quotes_is_one_of_the_program() -> None:
    said = _source("runner", "strategies")
    quoted = [text for cell in _cells("troubleshooting.md", "what is said") for text in re.findall("`([^`]+)`", cell)]
    missing = [text for text in quoted for part in text.lower().split("...") if part.strip() not in said]
    assert len(quoted) > 15
    assert not missing


def test_each_row_of_the_last_screen_is_explained() -> None:
    path = ROOT / "runner" / "cli" / "last_screen.py"
    named = re.findall(r"(?:Row|_rows_of)\(\"(\w+)\"|\(\"(\w+)\", names_of\(", path.read_text())
    rows = {"".join(one) for one in named} | {"open"}
    cells = _cells("what-a-run-leaves.md", "row")
    explained = {text for cell in cells for text in re.findall("`([^`:]+)`", cell)}
    assert rows == explained


def test_the_readme_links_to_what_is_there() -> None:
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", (ROOT / "README.md").read_text()):
        assert urlsplit(link).scheme or (ROOT / link).exists(), link
