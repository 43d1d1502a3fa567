"""Settings are values: made once, equal by what they hold, and shown so that they can be read back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.schema.installed_choices import SCHEMAS
from runner.schema.root import JournalSettings, SanitizeSettings


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
