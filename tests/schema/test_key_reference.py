"""The reference of keys is complete: counted against the settings classes of every option."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

import pytest
import yaml

from runner.cli.help import GROUPS, keys, options, sections
from runner.schema import installed_choices
from runner.schema.installed_choices import SCHEMAS, Added, option_files
from runner.schema.root import Settings
from runner.schema.settings import type_words

KEYS = keys()
IDENTITY = {"name", "subject"}
FINITE = {("checker.nan", "compare"), ("checker.inf", "compare")}


def test_every_key_of_every_option_is_there_once() -> None:
    expected = set()
    hints = get_type_hints(Settings)
    for item in fields(Settings):
        kind = hints[item.name]
        if item.name in SCHEMAS:
            for option, path in option_files(item.name).items():
                stated = yaml.safe_load(path.read_text())["defaults"][0]
                schema = SCHEMAS[item.name][stated.removesuffix("@_here_").rpartition("/")[2]]
                names = {one.name for one in fields(schema)} - IDENTITY
                expected |= {(f"{item.name}.{name}", option) for name in names}
        elif is_dataclass(kind):
            expected |= {(f"{item.name}.{one.name}", "") for one in fields(kind)}
        else:
            expected.add((item.name, ""))
    listed = [(key.name, option) for key in KEYS if key.group != "hydra" for option in key.options or ("",)]
    listed = [one for one in listed if not one[0].startswith("hydra.")]
    assert sorted(listed) == sorted(expected) and len(expected) > 300


def test_every_key_says_what_it_means_takes_and_is() -> None:
    assert not [key.name for key in KEYS if not key.text or not key.type]
    assert not [key.name for key in KEYS if set(key.defaults) != set(key.options or ("",))]
    assert not [option for option in options() if not option.text or not option.example]
    assert {key.group for key in KEYS} - {""} <= {*sections()} and all(sections().values())
    assert {"hydra.run.dir", "hydra.sweep.dir", "hydra.launcher.n_jobs"} <= {key.name for key in KEYS}


def test_what_is_said_of_a_key() -> None:
    timeout = next(key for key in KEYS if key.name == "checker.timeout")
    assert (timeout.group, timeout.type, timeout.least) == ("checker", "a number or null", 0.001)
    assert (timeout.defaults["command"], timeout.defaults["interactive"]) == ("600.0", "null")
    policy = next(key for key in KEYS if key.name == "cut.policy")
    assert policy.choices == ("auto", "input", "constant", "seeded") and policy.options == ()
    assert "\n" in policy.text, "lines that mean something each are kept apart"
    memory = next(key for key in KEYS if key.name == "cut.memory")
    assert "quarter of the free memory" in memory.text, "lines that were only full are one"
    model = next(key for key in KEYS if key.name == "model")
    assert model.type == "a path or null (model, read)"
    assert len({key.text for key in KEYS if key.name == "strategy.extra_checks"}) == 3


def test_choices_are_those_that_comments_tell() -> None:
    """A choice without a word in the comment makes no sense there, and is not told."""
    hints = {f"{group}.{name}": hint for group, named in SCHEMAS.items() for one in named.values()
             for name, hint in get_type_hints(one).items()}  # fmt: skip
    hints |= {f"cut.{name}": hint for name, hint in get_type_hints(get_type_hints(Settings)["cut"]).items()}
    untold = {
        (key.name, choice)
        for key in KEYS
        if key.choices
        for choice in type_words(hints[key.name]).split(" | ")
        if choice not in key.choices
    }
    # what is trusted is no quantized model, what is wanted not the precision that is trusted; finite compares nothing
    quantized = {("strategy.high", low) for low in ("quantized", "auto", "int4", "fp8", "accuracy_level_4")}
    assert untold == {*quantized, ("strategy.low", "float32"), *FINITE}


def test_options_of_packages_are_told_too_whatever_their_files_are_like(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in ("ours/__init__.py", "ours/conf/__init__.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("")
    (tmp_path / "ours/conf/checker").mkdir()
    (tmp_path / "ours/conf/checker/strict.yaml").write_text(
        "# python -m runner checker=strict\n# Compares to the last bit.\ndefaults: [compare, _self_]\n\n"
        "# no difference at all\nrtol: 0.0\n"
    )
    (tmp_path / "ours/conf/checker/broken.yaml").write_text("defaults: [\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(installed_choices, "added", lambda: Added(conf=["ours.conf"]))
    rtol = next(key for key in keys.__wrapped__() if key.name == "checker.rtol" and "strict" in key.options)
    assert (rtol.text, rtol.defaults["strict"], rtol.type) == ("no difference at all", "0.0", "anything")
    named = {one.name: one for one in options.__wrapped__() if one.group == "checker"}
    assert named["strict"].text == "Compares to the last bit." and "broken" in named
    assert {*GROUPS} == {*SCHEMAS, "experiment"}
