"""result_schema.json: it says of result.json what is in it, for every kind of run; no key is missing, none too much."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import onnx
import pytest
from onnx import TensorProto, helper

import runner.report
from runner.judgment import Status
from runner.report.summary import FORMAT, RESULT_NAME, Checks, Seconds, Summary, result_json
from tests.harness import by_command, check_script, winnow
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


def save(path: Path) -> None:
    """Write a model in which `bad` makes NaN."""
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], name="first"),
        helper.make_node("Neg", ["a"], ["b"], name="second"),
        helper.make_node("Log", ["b"], ["c"], name="bad"),
        helper.make_node("Neg", ["c"], ["y"], name="last"),
    ]
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", declared[:1], declared[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


RUNS = {
    "reduce": ("found", "checker=finite"),
    "flaky": ("found", "checker=finite", "checker.flaky=always"),
    "plan": ("planned", "checker=finite", "plan=true"),
    "nothing": ("nothing_to_find", "checker=runs"),
    "layerwise": ("found", "strategy=layerwise"),
    "inspect": ("found", "strategy=inspect"),
    "extract": ("found", "strategy=extract", "strategy.nodes=[bad]", "checker=finite"),
    "repeat": ("found", "strategy=repeat", "strategy.until=3", "checker=finite"),
    "passes": ("found", "strategy=passes", "strategy.switches=[fuse,fold]", "CHECK"),
    "workaround": ("nothing_to_find", "strategy=workaround", "strategy.nodes=[bad]", "checker=finite"),
    "triage": ("found", "strategy=triage"),
    "precision": ("nothing_to_find", "strategy=precision", "checker=compare"),
    "usage": ("usage", "checker=finite", "inputs=files", "inputs.path=absent.npz"),
}
FAST = ("reduce", "plan", "layerwise", "inspect", "usage")


@pytest.mark.parametrize(
    "name", [one if one in FAST else pytest.param(one, marks=pytest.mark.slow) for one in RUNS], ids=[*RUNS]
)
def test_what_a_run_writes_is_valid(name: str, tmp_path: Path) -> None:
    save(tmp_path / "net.onnx")
    status, *options = RUNS[name]
    check = by_command(check_script(tmp_path, "sys.exit('fold' in sys.argv)"), "{switches}")
    given = (*options[:-1], *check) if options[-1] == "CHECK" else options
    run = winnow("model=net.onnx", *given, folder=tmp_path / "run", cwd=tmp_path)
    assert run.result["status"] == status, run.output
    results = [tmp_path / "run" / RESULT_NAME, *(tmp_path / "run").glob(f"steps/*/{RESULT_NAME}")]
    for path in results:
        VALIDATOR.validate(json.loads(path.read_text()))
    if name == "triage":
        assert len(results) > 2
