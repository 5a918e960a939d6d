"""Changes keys of a TOML text with tomlkit, which keeps comments, order and formatting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ccm_agent.model.errors import FileError
from ccm_agent.resources.config.keys import KeyChange, is_same, nested


def change_toml(text: str, changes: list[KeyChange]) -> str:
    """Return the text with the changes. Raises FileError if a change is not possible."""

    def change(document: Any) -> str:
        import tomlkit

        for one in changes:
            _change(document, one)
        return tomlkit.dumps(document)

    return str(_with_document(text, change))


def read_toml(text: str) -> Any:
    """Return the values of a text. Raises FileError if it is not TOML."""
    return _with_document(text, lambda document: document.unwrap())


def _with_document(text: str, use: Callable[[Any], Any]) -> Any:
    try:
        import tomlkit
        from tomlkit.exceptions import TOMLKitError
    except ImportError as err:
        raise FileError(
            "toml requires the Python package tomlkit; install it with `pip install 'ccm-fleet[config]'`"
        ) from err
    try:
        return use(tomlkit.parse(text))
    except RecursionError as err:
        raise FileError("it is nested too deeply") from err
    except (TOMLKitError, ValueError, TypeError) as err:
        raise FileError(f"it is not TOML, or cannot be changed: {err}") from err


def _change(document: Any, change: KeyChange) -> None:
    place = document
    if change.value is None and not change.is_removed:
        raise FileError(f"the value of `{change.shown}` is null, which TOML does not support")
    for number, name in enumerate(change.path[:-1]):
        if isinstance(place, list):
            if not name.isdecimal() or int(name) >= len(place):
                raise FileError(
                    f"the key `{change.shown}`: `{name}` is not an index of a list of length {len(place)}"
                )
            place = place[int(name)]
        elif not isinstance(place, dict):
            raise FileError(f"the key `{change.shown}`: the value before `{name}` is not a table")
        elif name not in place:
            if not change.is_removed:
                place[name] = nested(change.path[number + 1 :], change.value)
            return
        else:
            place = place[name]
    last = change.path[-1]
    if not isinstance(place, dict):
        raise FileError(f"the key `{change.shown}`: the value before `{last}` is not a table")
    if change.is_removed:
        place.pop(last, None)
    elif last not in place or not is_same(_plain(place[last]), change.value):
        place[last] = change.value


def _plain(value: Any) -> Any:
    return value.unwrap() if hasattr(value, "unwrap") else value
