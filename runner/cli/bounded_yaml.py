"""YAML of bounded size: aliases of aliases that unfold into billions of nodes, and nesting without end, are refused."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import yaml

from runner.exit_codes import UsageError

_LARGEST_FILE = 1 << 20
_DEEPEST = 50
_MOST_NODES = 50_000


class BoundedLoader(yaml.SafeLoader):
    """A SafeLoader that counts what it composes, each alias as all that it stands for."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._depth = self._count = 0
        self._weights: dict[int, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose the next node. Raises ComposerError beyond the bounds."""
        start: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        alias, before = isinstance(start, yaml.AliasEvent), self._count
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _refused(f"nested deeper than {_DEEPEST} levels", start)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if alias and id(node) not in self._weights:
            raise _refused("an alias within what it stands for", start)
        self._count += self._weights[id(node)] if alias else 1
        if self._count > _MOST_NODES:
            raise _refused(f"more than {_MOST_NODES} values, with what its aliases stand for", start)
        if not alias:
            self._weights[id(node)] = self._count - before
        return node


def read_yaml(path: Path, loader: type[BoundedLoader] = BoundedLoader) -> Any:
    """Return what the YAML file holds.

    Raises UsageError for one that cannot be read or is too large; it names file and line where this is no YAML.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # a pipe would be waited for
            raise UsageError(f"{path}: this is no file. Give the path of a YAML file.")
        if found.st_size > _LARGEST_FILE:
            raise UsageError(f"{path}: {found.st_size} bytes; a configuration has at most {_LARGEST_FILE}.")
        return yaml.load(path.read_text(encoding="utf-8-sig"), loader)  # noqa: S506 - a SafeLoader
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({error}).") from error
    except yaml.YAMLError as error:
        raise invalid(path, error) from error
    except (ValueError, OverflowError) as error:  # a date or a number that is none
        raise UsageError(f"{path}: not valid YAML ({error}).") from error


def invalid(file: Path | str, error: yaml.YAMLError) -> UsageError:
    """Return the error that names file and line."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line = f", line {mark.line + 1}" if mark is not None else ""
    what = " ".join(str(getattr(error, "problem", None) or error).split())
    return UsageError(f"{file}{line}: not valid YAML ({what}).")


def _refused(what: str, event: yaml.Event) -> yaml.composer.ComposerError:
    return yaml.composer.ComposerError(None, None, what, event.start_mark)  # type: ignore[arg-type]
