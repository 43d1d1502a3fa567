"""Settings are values: made once, equal by what they hold, and shown so that they can be read back."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest

from runner.schema.installed_choices import SCHEMAS
from runner.schema.root import JournalSettings, SanitizeSettings, Settings

EVERY = [Settings, *(schema for group in SCHEMAS.values() for schema in group.values())]


@pytest.mark.parametrize("schema", EVERY, ids=lambda schema: schema.__name__)
def test_no_field_of_settings_changes(schema: Any) -> None:
    made = schema()
    for item in fields(schema):
        before = getattr(made, item.name)
        with pytest.raises(FrozenInstanceError, match=item.name):
            setattr(made, item.name, before)
        with pytest.raises(FrozenInstanceError, match=item.name):
            delattr(made, item.name)
        assert getattr(made, item.name) is before
    with pytest.raises(FrozenInstanceError, match="unknown"):
        made.unknown = 1
    with pytest.raises(TypeError):
        schema(1)  # by keyword only


def test_settings_are_equal_by_kind_and_content() -> None:
    made = SanitizeSettings(fold=True)
    assert made == SanitizeSettings(fold=True) == replace(SanitizeSettings(), fold=True)
    assert made != SanitizeSettings() and made != JournalSettings()
    assert {made, SanitizeSettings(fold=True)} == {made}
    assert len({made, SanitizeSettings()}) == 2
    target, reference = SCHEMAS["target"]["onnxruntime"], SCHEMAS["reference"]["onnxruntime"]
    assert target() != reference(), "what is derived from another kind is not that kind"
    with pytest.raises(TypeError, match="unhashable"):
        hash(JournalSettings(reuse=["run"]))


def test_settings_are_shown_as_they_are_made() -> None:
    made = JournalSettings(reuse=["a"])
    assert repr(made) == "JournalSettings(reuse=['a'], share=True)"
    assert eval(repr(made)) == made
