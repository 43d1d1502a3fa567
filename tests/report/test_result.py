"""result.json: the documented keys, strict JSON, atomic; and its schema, which golden runs hold their results to."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import runner.report
from runner.exit_codes import Status
from runner.report.result_parts import (
    Cause,
    CauseAnswer,
    CauseExperiment,
    KnownFailure,
    ShownCause,
    Statistics,
    Workaround,
)
from runner.report.summary import FORMAT, Checks, Seconds, Summary, read_result, result_json, summary_of, write_result
from strategies.search import Outcome


def full() -> Summary:
    return Summary(
        status="found",
        exit_code=0,
        strategy="reduce",
        nodes_before=340,
        nodes_after=2,
        culprits=("Add_1", "Relu|é\n"),
        minimality="proven 1-minimal",
        checks=Checks(search=12, trust=5, reused=1),
        outcomes={Outcome.FAIL: 4, "pass": 8},
        signature=KnownFailure("infer", "death MEMORY"),
        model="reduced.onnx",
        seconds=Seconds(12.34567, 10.0, 1.0),
        peak_rss_mb={"job": 101.26},
        statistics=Statistics(pass_rate=float("nan"), pass_rate_95=(float("inf"), 1.0)),
    )


def read(folder: Path) -> dict[str, Any]:
    found = json.loads((folder / "result.json").read_text())
    assert isinstance(found, dict)
    return found


def test_what_is_written_is_strict_json_and_read_back(tmp_path: Path) -> None:
    write_result(full(), tmp_path)

    def refuse(word: str) -> None:
        raise AssertionError(word)

    text = (tmp_path / "result.json").read_text()
    assert json.loads(text, parse_constant=refuse)["statistics"] == {"pass_rate": None, "pass_rate_95": [None, 1.0]}
    assert read(tmp_path) == result_json(full())
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_no_result_reads_as_none(tmp_path: Path) -> None:
    assert read_result(tmp_path) is None
    assert read_result(tmp_path / "absent") is None
    for text in ("", "{", "[1]"):
        (tmp_path / "result.json").write_text(text)
        assert read_result(tmp_path) is None


def test_a_write_that_fails_leaves_the_old_result_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_result(full(), tmp_path)

    def fail(self: Path, target: Path) -> Path:
        raise OSError("no")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="no"):
        write_result(Summary("other", 1, "reduce"), tmp_path)
    monkeypatch.undo()
    assert read(tmp_path) == result_json(full())
    assert len(list(tmp_path.iterdir())) == 1


def test_what_was_written_is_read_back_as_it_was(tmp_path: Path) -> None:
    answer = CauseAnswer(("a",), is_cause=True, instances=(("a",), ("b",)), good_outputs=CauseExperiment("pass"))
    cause = Cause("proven", whole=CauseExperiment("fail", 2.5), answers=(answer,), inside=ShownCause("untested", "why"))
    first = Summary("found", 0, "reduce", culprits=("a",), nodes_after=1, cause=cause)
    second = Summary("found", 0, "reduce", culprits=("b",), nodes_after=2)
    write_result(
        replace(first, answers=(first, second), workarounds=(Workaround("pass", "off", passes=True),)), tmp_path
    )
    found = read_result(tmp_path)
    assert found is not None and found.cause == cause and found.workarounds[0].passes
    assert [(one.culprits, one.nodes_after) for one in found.answers] == [(("a",), 1), (("b",), 2)]


def test_what_is_not_of_its_type_counts_as_not_there() -> None:
    """A damaged or a foreign file, and one of an earlier version."""
    for damaged in (None, 10**400, float("nan"), [[1]], [{}, 3.5]):
        found = summary_of(dict.fromkeys(result_json(full()), damaged))
        assert result_json(found).keys() == result_json(full()).keys(), damaged
        assert (found.status, found.exit_code, found.checks, found.cause) == ("", -1, Checks(), None), damaged
    cut = summary_of({"status": "found", "culprits": ["a", 3, None], "cause": {"status": "proven", "answers": [5, {}]}})
    assert cut.exit_code == -1 and cut.culprits == ("a",) and cut.cause is not None
    assert cut.cause.answers == (CauseAnswer(),) and cut.checks == Checks() and cut.seconds == Seconds()
    assert summary_of({"evidence": {"log": "/etc/passwd"}, "outputs": [1], "memory": "x"}) == Summary()


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
