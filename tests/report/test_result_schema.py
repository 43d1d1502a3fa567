"""result_schema.json: it says of result.json what is in it; no key is missing. Golden runs hold their results to it."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import runner.report
from runner.judgment import Status
from runner.report.summary import FORMAT, Checks, Seconds, Summary, result_json
from tests.report.test_result import full

SCHEMA = json.loads((Path(runner.report.__file__).parent / "result_schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def objects(schema: Any, place: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield all parts of a schema, with their places."""
    if isinstance(schema, dict):
        yield place, schema
        for name, part in schema.items():
            yield from objects(part, f"{place}.{name}")
    elif isinstance(schema, list):
        for part in schema:
            yield from objects(part, place)


def test_it_is_a_schema_of_nobodys_host() -> None:
    VALIDATOR.check_schema(SCHEMA)
    assert SCHEMA["$id"] == f"urn:winnow:result:{FORMAT}"
    assert SCHEMA["properties"]["format"] == {"const": FORMAT} | {
        "description": SCHEMA["properties"]["format"]["description"]
    }


def test_it_has_the_keys_of_a_summary_in_their_order() -> None:
    assert list(SCHEMA["properties"]) == list(result_json(Summary("found", 0, "reduce"))) == SCHEMA["required"]


def test_every_key_at_the_top_is_described() -> None:
    for name, part in SCHEMA["properties"].items():
        assert any(one.get("description") for _, one in objects(part)), name


@pytest.mark.parametrize(("name", "type_"), [("checks", Checks), ("seconds", Seconds)])
def test_a_section_of_its_own_class_has_its_fields(name: str, type_: type) -> None:
    assert list(SCHEMA["properties"][name]["properties"]) == [one.name for one in dataclasses.fields(type_)]


def test_it_knows_every_status() -> None:
    assert SCHEMA["properties"]["status"]["enum"] == [one.value for one in Status]


def test_what_has_no_answer_is_valid() -> None:
    for status in Status:
        VALIDATOR.validate(result_json(Summary(status, status.exit_code, "reduce")))


def test_what_is_broken_is_not() -> None:
    result = result_json(full())
    VALIDATOR.validate(result)
    for key in result:
        broken = copy.deepcopy(result)
        del broken[key]
        assert not VALIDATOR.is_valid(broken), key
    for key in ("status", "nodes", "culprits", "checks", "seconds", "signature"):
        assert not VALIDATOR.is_valid({**result, key: 7}), key
