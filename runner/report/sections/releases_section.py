"""The section of a report that says in which releases of a package the failure is there."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from runner.report.markup import block, section, table, text


def releases_section(releases: Mapping[str, Any] | None) -> str:
    """Return the section; "" where no releases were asked."""
    if not releases:
        return ""
    rows = [(one["version"], one["outcome"], one["reason"]) for one in releases["asked"]]
    parts = [table((str(releases["package"]), "", ""), rows)]
    if releases["not_asked"]:
        parts.append(text(f"Not asked: {', '.join(releases['not_asked'])}."))
    if good := releases["good_after"] or releases["good_before"]:
        parts += [
            "A release without it:",
            block(shlex.join(["pip", "install", f"{releases['package']}=={good}"]), "sh"),
        ]
    return section("Releases", "\n\n".join(parts))
