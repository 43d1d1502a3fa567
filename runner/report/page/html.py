"""A page as one file of HTML that needs no network: what can be read without scripts stands in it as text.

The page's values travel in it as compressed JSON, of which its script draws graphs and charts, so that no name can end
an element. Text in the HTML is escaped here and nowhere else. The page's own policy allows its one script and its one
style sheet, by their hashes, and no request at all.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Literal, get_args
from urllib.parse import quote

from runner.exit_codes import Status
from runner.files import write_text
from runner.report.document import MANY, Block, Bullets, Code, Section, Table, cut
from runner.report.markup import on_a_line, printed, unmarked
from runner.report.page.data import Page, PageJob, Row

_ASSETS = Path(__file__).parent / "assets"
_SCRIPTS = (
    "dagre/dagre.min.js",
    *("elements.js", "model_graph.js", "graph_layout.js", "graph_gestures.js", "graph_view.js"),
    *("virtual_list.js", "node_list.js", "node_details.js", "chart.js", "trials.js", "graph_section.js", "page.js"),
)
_Key = Literal["number", "status", "answer", "trust", "asked", "run", "reused", "seconds", "overrides"]
_JOBS: Sequence[_Key] = get_args(_Key)


WHAT_NOW = "What to do now"
"""The title of the section that says it."""
LONG = 80
"""Characters of a fact that takes the room of two."""
MOST_ROWS = 2000
"""Of a table: a browser shows them at once."""
_STATUSES = frozenset(map(str, Status))


def write_page(folder: Path, page: Page) -> None:
    """Write ``report.html`` into a folder. Raises OSError where it cannot be written."""
    write_text(folder / "report.html", page_text(page))


def page_text(page: Page) -> str:
    """Return a page as HTML."""
    style = _asset("page.css")
    # without what names a file that is not here
    lines = [line for name in _SCRIPTS for line in _asset(name).splitlines() if "# sourceMappingURL" not in line]
    script = "\n".join(lines) + "\n"
    path = "Outcomes over iterations" if "repeat" in page.strategy else "Path of the search"
    jobs = "Jobs" if page.kind == "sweep" else "Steps" if page.strategy == "triage" else "Answers"
    first = [one for one in page.sections if one.title == WHAT_NOW]
    sections = [
        *_sections(first, "now"),
        _jobs(jobs, page.jobs),
        _drawn("graph", "Graph", page.reduced or page.whole),
        _drawn("layers", "Error of each layer", [one for one in page.layers if one["error"] is not None]),
        _drawn("curve", "Error left, by nodes raised", page.curve),
        _drawn("alone", "What it costs to keep each layer high", page.alone),
        _drawn("trials", path, page.trials),
        *_sections([one for one in page.sections if one.title != WHAT_NOW]),
        _commands(page.commands),
        _facts(page),
    ]
    labels = (("status", words(page.status)), ("strategy", page.strategy))
    told = [(kind, said) for kind, said in labels if said] + [("label", one) for one in page.labels]
    return Template(_asset("page.html")).substitute(
        {key: _text(getattr(page, key)) for key in ("title", "verdict", "version", "made")},
        labels="".join(f'<li class="{kind}">{_text(said)}</li>' for kind, said in told),
        answer=_answer(page),
        sections="".join(sections),
        data=_packed(page),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


@cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _packed(page: Page) -> str:
    # no script reads the sections, which are long and stand in the page as text
    values = json.dumps({**vars(page), "sections": []}, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(values.encode(), compresslevel=6, mtime=0)).decode()


def _text(value: object, breaks: bool = False) -> str:
    """Return escaped text in which characters without a shape, or that turn what follows around, are seen as such."""
    kept = "\n\t" if breaks else ""
    return escape("".join(one if one.isprintable() or one in kept else ascii(one)[1:-1] for one in str(value)))


def words(status: object) -> str:
    """Return a status as people write it."""
    return str(status).replace("_", " ")


def _answer(page: Page) -> str:
    """Return what stands below the verdict."""
    cause = f'<p class="cause">{_text(page.cause)}</p>' if page.cause else ""
    warnings = "".join(f"<li>{_text(warning)}</li>" for warning in page.warnings)
    noted = f'<div class="warnings"><h3>Warnings</h3><ul>{warnings}</ul></div>' if warnings else ""
    drawn = any(getattr(page, name) for name in ("reduced", "whole", "layers", "curve", "alone", "trials"))
    without = "<noscript><p>The graphs and the search are drawn by this page's own script.</p></noscript>"
    return f"{cause}{noted}{without if drawn else ''}"


def _facts(page: Page) -> str:
    """Return the facts of the run, which a reader opens to see."""
    facts = ""
    for name, value in page.facts:
        wide = ' class="wide"' if len(value) > LONG else ""
        facts += f"<div{wide}><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>"
    if not facts:
        return ""
    folded = f"<details><summary>{len(page.facts)} facts</summary><dl>{facts}</dl></details>\n"
    return _section("facts", "The run", folded)


def _drawn(name: str, title: str, data: object) -> str:
    """Return the place of what a script draws, which is not seen without one."""
    if not data:
        return ""
    return f'<section id="{name}" aria-labelledby="{name}-title" hidden><h2 id="{name}-title">{title}</h2></section>\n'


def _section(name: str, title: str, body: str, kind: str = "") -> str:
    head = f'<h2 id="{name}-title">{_text(title)}</h2>'
    return f'<section id="{name}" class="{kind}" aria-labelledby="{name}-title">{head}\n{body}</section>\n'


def _table(title: str, one: Table) -> str:
    """Return a table; no room for columns in which nothing stands."""
    headed = any(one.head)
    wide = [at for at in range(len(one.head)) if not headed or any(row[at] for row in one.rows)]
    rows = [[_text(cut(row[at]) if at < one.names else _cell(row[at])) for at in wide] for row in one.rows]
    shown = _html_table(title, [one.head[at] for at in wide] if headed else [], rows)
    return _folded(f"{len(rows)} rows" if len(rows) > MANY else "", shown)


def _cell(cell: str) -> str:
    """Return a cell that is no name on one line; of what is a status, the words."""
    shown = on_a_line(cut(cell))
    return words(shown) if shown in _STATUSES else shown


def _html_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> str:
    """Return a table of cells that are HTML already; of one that is too long its first rows."""
    cells = "".join(f'<th scope="col">{_text(cell)}</th>' if cell else "<td></td>" for cell in head)
    heads = f"<thead><tr>{cells}</tr></thead>" if head else ""
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n" for row in rows[:MOST_ROWS])
    more = f"<p>The first {MOST_ROWS} of {len(rows)} rows are shown.</p>\n" if len(rows) > MOST_ROWS else ""
    return (
        f'<div class="scroll" role="group" tabindex="0" aria-label="{_text(title)}, table">'
        f'<table class="{kind}">{heads}<tbody>{body}</tbody></table></div>\n{more}'
    )


def _folded(name: str, body: str) -> str:
    """Return what a reader opens to see by its ``name``; "": it is in sight."""
    return f"<details><summary>{name}</summary>{body}</details>\n" if name else body


def _sections(sections: Sequence[Section], name: str = "section") -> Iterator[str]:
    """Yield sections, called by ``name``. Two narrow ones stand side by side."""
    narrow = [all(len(one.head) <= 2 for one in held.blocks if isinstance(one, Table)) for held in sections]
    beside = False
    for at, held in enumerate(sections):
        half = narrow[at] and (beside or narrow[at + 1 : at + 2] == [True])
        beside = half and not beside
        title = unmarked(held.title)
        body = "".join(_block(one, title) for one in held.blocks)
        yield _section(f"{name}-{at}", title, body, "half" if half else "")


def _block(one: Block, title: str) -> str:
    """Return a part of the section with this ``title``. Pictures are left out: a page draws its own."""
    if isinstance(one, str):
        return f"<p>{_text(unmarked(one))}</p>"
    if isinstance(one, Bullets):
        return f"<ul>{''.join(f'<li>{_text(unmarked(item))}</li>' for item in one.items[:MOST_ROWS])}</ul>"
    if isinstance(one, Code):
        lines = _text(printed(one.lines).strip("\n"), breaks=True)
        shown = f'<pre tabindex="0" aria-label="{_text(title)}: code"><code>{lines}</code></pre>'
        return _folded(one.folded, f'<div class="code">{shown}</div>\n')
    return _table(title, one) if isinstance(one, Table) else ""


def _commands(commands: Sequence[Row]) -> str:
    items = "".join(
        f'<li><p>{_text(what)}</p><pre tabindex="0" aria-label="{_text(what)}: command">'
        f"<code>{_text(command, breaks=True)}</code></pre></li>\n"
        for what, command in commands
    )
    return _section("commands", "Commands", f'<ul class="commands">{items}</ul>') if commands else ""


def _jobs(title: str, jobs: Sequence[PageJob]) -> str:
    if not jobs:
        return ""
    told = [key for key in _JOBS if any(job[key] for job in jobs)]
    first = "job" if title == "Jobs" else "folder"
    head = [first if key == "number" else key for key in told]
    return _section(
        "jobs", title, _html_table(title, head, [[_job_cell(job, key) for key in told] for job in jobs], "jobs")
    )


def _job_cell(job: PageJob, key: _Key) -> str:
    """Return what a table of jobs has of one in a column, as HTML."""
    if key == "number":
        return _link(job)
    if key == "status":
        return f'<span class="outcome" data-code="{int(job["exit_code"])}">{_text(words(job["status"]))}</span>'
    if job[key] is None:
        return ""
    if key == "seconds":
        return f"{job['seconds']:.1f}"
    return _text(" ".join(job["overrides"]) if key == "overrides" else job[key])


def _link(job: PageJob) -> str:
    """Return a job's number, as a link to its page if it has one: below this page's folder, whatever its name."""
    number = _text(job["number"])
    return f'<a href="./{quote(os.fsencode(job["page"]))}">{number}</a>' if job["page"] else number
