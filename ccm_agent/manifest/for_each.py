"""`for_each`: one entry of a manifest that becomes a resource for each element of a list."""

from __future__ import annotations

import re
from typing import Any

from ccm_agent.manifest.expressions import Expressions, render_typed
from ccm_agent.model.errors import ExpressionError, InputError, ManifestError, Place
from ccm_agent.resources.contract import ResolvedResource

MOST_RESOURCES = 10_000
"""The maximum number of resources that `for_each` creates in one manifest."""

_LABEL = re.compile(r"[\w./:@-]{1,60}")
_LABEL_KEYS = ("name", "key", "id")


class Expansion:
    """
    The elements of one `for_each`, and the resources that were created from them.

    Args:
        written: The value in the manifest.
        expressions: Renders the value.
        made: The number of resources that earlier `for_each` entries created.

    Raises:
        InputError: The value is not a list or mapping, or has too many elements.
    """

    def __init__(self, written: Any, expressions: Expressions, made: int) -> None:
        self.items = _items(render_typed(written, expressions))
        self._number = 0
        self._names: set[str] = set()
        if made + len(self.items) > MOST_RESOURCES:
            raise ManifestError(
                f"`for_each` creates {made + len(self.items)} resources in this manifest, but at most "
                f"{MOST_RESOURCES} are allowed"
            )

    def check(self, declared: ResolvedResource) -> None:
        """
        Check the resource of the next element.

        Raises:
            ManifestError: An earlier element produced the same name or alias.
        """
        for field in ("name", "alias"):
            value = getattr(declared.wanted, field)
            if value and value in self._names:
                raise ManifestError(
                    f"the {declared.kind.name} has the same {field} as an earlier one: use `item` in it"
                )
        self._names |= {declared.wanted.name, declared.wanted.alias}
        self._number += 1

    def named(self, err: InputError, place: Place) -> InputError:
        """Return the error of the current element, with its position, its name (if any) and its place."""
        label = _label(self.items[self._number])
        which = f"element {self._number + 1}{f' ({label})' if label else ''} of `for_each`"
        message = f"{which}: {err.message}"
        where = err.place if err.place is not None and err.place.line else place
        if isinstance(err, ExpressionError):
            return type(err)(message, expression=err.expression, offset=err.offset, place=where)
        return type(err)(message, place=where)


def _items(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [{"key": key, "value": one} for key, one in value.items()]
    if isinstance(value, list):
        return value
    found = "nothing" if value is None else "text" if isinstance(value, str) else f"`{type(value).__name__}`"
    raise ManifestError(
        f"`for_each` must return a list or a mapping, not {found}; if it may be missing, give `lookup` the default `[]`"
    )


def _label(item: Any) -> str:
    """Return the name of an element in errors; "" if it has no short name."""
    if isinstance(item, dict):
        item = next((item[key] for key in _LABEL_KEYS if key in item), "")
    text = str(item) if isinstance(item, str | int) else ""
    return text if _LABEL.fullmatch(text) else ""
