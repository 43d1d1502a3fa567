"""Pages made while the site is built: keys, result.json, changes, lists of decisions; links that leave docs/."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from runner.cli.help import Key, keys, options

ROOT = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)\s]*)\)")
_GROUPS = {
    "": "On their own",
    "strategy": "strategy: what is searched for, and how",
    "checker": "checker: how a model is judged",
    "target": "target: what is under test",
    "reference": "reference: what is trusted",
    "inputs": "inputs: what the model is fed",
    "artifacts": "artifacts: which candidates are kept",
    "workers": "workers: how many checks run at once, and on which GPUs",
}
_KEYS = """# Keys

All {} keys, as `KEY=VALUE` on the command line or in a YAML file ([configurations](configurations.md)). `winnow --help`
and
`winnow --help checker=command` print the same. A key that only some options of its group have names them.
"""
_RESULT = """# result.json

What a run leaves for programs, as a JSON schema: `runner/report/result_schema.json`, in the repository and the package.
"""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List all decisions in the navigation."""
    assert config.nav is not None
    config.nav[-1]["Decisions"] += [f"adr/{path.name}" for path in _decisions()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that nobody writes by hand."""
    schema = json.loads((ROOT / "runner" / "report" / "result_schema.json").read_text())
    made = {
        "keys.md": key_page(keys()),
        "result.md": result_page(schema),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(),
    }
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Name files of the repository that are no pages, where a link would lead nowhere; list all decisions."""

    def named(match: re.Match[str]) -> str:
        text, target = match.groups()
        path = target.partition("#")[0].lstrip("./")
        return match[0] if path.endswith(".md") and not (ROOT / path).is_file() else f"{text} (`{path}`)"

    listed = f"{markdown}\n{_decision_list()}" if page.file.src_uri == "adr/README.md" else markdown
    return _LINK.sub(named, listed)


def key_page(every: tuple[Key, ...]) -> str:
    """Return the reference of all keys."""
    parts = [_KEYS.format(len({key.name for key in every}))]
    by_group: dict[str, list[Key]] = {}
    for key in every:
        by_group.setdefault(key.name.partition(".")[0] if "." in key.name else "", []).append(key)
    for group, held in by_group.items():
        parts.append(f"## {_GROUPS.get(group, group)}\n")
        parts += _option_table(group)
        for name, same in groupby(sorted(held, key=lambda key: key.name), key=lambda key: key.name):
            parts.append(f"### {name}\n")
            for key in same:
                parts += [*_facts(key), f"{_escaped(key.text)}\n"]
    return "\n".join(parts)


def _option_table(group: str) -> list[str]:
    rows = [
        f"| `{group}={one.name}` | {_escaped(one.text)} | {f'`winnow {one.example}`' if one.example else ''} |"
        for one in options()
        if one.group == group
    ]
    return ["| option | what it is | for instance |", "|---|---|---|", *rows, ""] if rows else []


def _facts(key: Key) -> Iterator[str]:
    limits = [
        f"{word} {value:g}" for word, value in (("at least", key.least), ("at most", key.most)) if value is not None
    ]
    values = set(key.defaults.values())
    if len(values) == 1:
        default = f"default `{values.pop()}`"
    else:
        default = "default " + ", ".join(f"`{value}` ({option})" for option, value in key.defaults.items())
    kind = " \\| ".join(f"`{choice}`" for choice in key.choices) or _escaped(key.type)
    every = {one.name for one in options() if one.group == key.group}
    of = [f"of {', '.join(key.options)}"] if key.options and set(key.options) != every else []
    yield " · ".join([kind, default, *limits, *of]) + "\n"


def result_page(schema: Mapping[str, Any]) -> str:
    """Return what result.json holds, from its JSON schema."""
    parts = [_RESULT, *_properties(schema)]
    for name, definition in schema.get("$defs", {}).items():
        parts += [
            f"## {name}\n",
            *([f"{_escaped(definition['description'])}\n"] if "description" in definition else []),
        ]
        parts += _properties(definition)
    return "\n".join(parts)


def _properties(schema: Mapping[str, Any]) -> list[str]:
    rows = list(_rows(schema, ""))
    return ["| key | type | what it says |", "|---|---|---|", *rows, ""] if rows else [f"{_type(schema)}\n"]


def _rows(schema: Mapping[str, Any], prefix: str) -> Iterator[str]:
    required = schema.get("required", ())
    for name, one in schema.get("properties", {}).items():
        optional = "" if name in required else " (optional)"
        yield f"| `{prefix}{name}`{optional} | {_type(one)} | {_escaped(one.get('description', ''))} |"
        inner = one.get("items", one)
        yield from _rows(inner, f"{prefix}{name}{'' if inner is one else '[]'}.")


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return " \\| ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " \\| ".join(_type(one) for one in schema[word])
    kinds = schema.get("type", "any")
    text = " \\| ".join(kinds) if isinstance(kinds, list) else str(kinds)
    return f"list of {_type(schema['items'])}" if text == "array" and isinstance(schema.get("items"), dict) else text


def _decisions() -> list[Path]:
    return sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))


def _decision_list() -> str:
    titles = [(path.name, path.read_text().partition("\n")[0].lstrip("# ")) for path in _decisions()]
    return "## All that stand\n\n" + "\n".join(f"- [{title}]({name})" for name, title in titles) + "\n"


def _escaped(text: str) -> str:
    """Return text that Markdown shows as it is, within a table too."""
    return re.sub(r"([|<*_\[\]])", r"\\\1", text)
