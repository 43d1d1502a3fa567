"""Write any text as a Hydra value that means just this text.

Two grammars read a value: Hydra's overrides (quotes, commas, brackets, functions) and then OmegaConf's interpolation
(``${..}``). A file name may hold all that either of them gives a meaning to.
"""

from __future__ import annotations

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException

from runner.schema.option_files import escape_interpolation


def parse(override: str) -> Override | None:
    """Return what Hydra makes of ``key=value``, or None where its grammar refuses it."""
    try:
        return OverridesParser.create().parse_override(override)
    except HydraException:
        return None


def means_itself(key: str, text: str) -> bool:
    """Whether ``key=text`` already gives just the string ``text``."""
    if "${" in text:
        return False
    override = parse(f"{key}={text}")
    return override is not None and not override.is_sweep_override() and override.value() == text


def quote(text: str) -> str:
    """Return ``text`` as a quoted value that Hydra and OmegaConf read back as ``text``."""
    return QuotedString(text=escape_interpolation(text), quote=Quote.single).with_quotes()
