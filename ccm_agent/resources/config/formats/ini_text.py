"""Changes keys of an ini file: lines `key = value` in sections. All other lines are unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ccm_agent.model.errors import FileError
from ccm_agent.resources.config.keys import KeyChange

_SECTION = re.compile(r"\s*+\[(?P<name>[^\]]++)\]")
_KEY = re.compile(r"\s*+(?P<key>[^=:\s#;\[][^=:]*+)(?P<rest>[=:].*+)?", re.DOTALL)
_BARE = re.compile(r"[A-Za-z0-9_.!-]++\s*+")
"""A key without a value."""
_REST = re.compile(r"(?P<mark>[=:]\s*+)(?P<value>.*+)", re.DOTALL)


def change_ini(text: str, changes: list[KeyChange]) -> str:
    """Return the text with the changes. Raises FileError if a change is not possible."""
    ending = "\r\n" if "\r\n" in text else "\n"
    lines = text.split(ending)
    is_ended = lines[-1] == ""
    if is_ended:
        lines.pop()
    for change in changes:
        _change(lines, change)
    return ending.join(lines) + (ending if is_ended and lines else "")


def read_ini(text: str) -> dict[tuple[str, ...], str | None]:
    """
    Return the value of each key, by its path; None for a key without a value. Raises FileError if a line is neither a section, a
    key, a comment nor a continuation.

    `change_ini` refuses keys that occur twice or have several lines, and this function returns them, too.
    """
    section = ""
    found: dict[tuple[str, ...], str | None] = {}
    for number, line in enumerate(text.split("\r\n" if "\r\n" in text else "\n")):
        if match := _SECTION.match(line):
            section = match["name"].strip()
            continue
        if not line.strip() or line.lstrip()[0] in "#;":
            continue
        key, rest = _key_of(line), _KEY.match(line)
        if rest is not None and rest["rest"]:
            value = _REST.match(rest["rest"])
            path = (section, key) if section else (key,)
            found[path] = value["value"].strip() if value else ""
        elif _BARE.fullmatch(line):
            found[(section, key) if section else (key,)] = None
        elif not (line[0] in " \t" and found):
            raise FileError(
                f"line {number + 1} is neither a section nor `key = value`, so it is not an ini file"
            )
    return found


def _change(lines: list[str], change: KeyChange) -> None:
    section, key = (
        ("", change.path[0]) if len(change.path) == 1 else (change.path[0], ".".join(change.path[1:]))
    )
    areas = list(_areas(lines, section))
    found = [number for area in areas for number in area if _key_of(lines[number]) == key]
    if len(found) > 1:
        places = " and ".join(str(number + 1) for number in found[:2])
        raise FileError(f"the key `{change.shown}` occurs more than once (lines {places})")
    if found:
        _replace(lines, found[0], change)
    elif not change.is_removed:
        if len(areas) > 1:
            raise FileError(f"the section `{section}` occurs more than once")
        _insert(lines, section, key, areas, _text(change))


def _replace(lines: list[str], number: int, change: KeyChange) -> None:
    follows = lines[number + 1] if number + 1 < len(lines) else ""
    if (
        follows[:1] in (" ", "\t")
        and follows.strip()
        and follows.strip()[0] not in "#;"
        and not _has_value(follows)
    ):
        raise FileError(
            f"the value of `{change.shown}` (line {number + 1}) has several lines; only single-line values can be changed"
        )
    if change.is_removed:
        del lines[number]
        return
    match = _KEY.match(lines[number])
    assert match is not None
    wanted, rest = _text(change), _REST.match(match["rest"] or "")
    if wanted is None:
        if rest is not None:
            lines[number] = lines[number][: match.start("rest")].rstrip()
    elif rest is None:
        lines[number] = f"{lines[number].rstrip()}{_mark(lines)}{wanted}"
    elif rest["value"].rstrip() != wanted:
        lines[number] = lines[number][: match.start("rest")] + rest["mark"] + wanted


def _has_value(line: str) -> bool:
    match = _KEY.match(line)
    return match is not None and match["rest"] is not None


def _insert(lines: list[str], section: str, key: str, areas: list[range], wanted: str | None) -> None:
    line = key if wanted is None else f"{key}{_mark(lines)}{wanted}"
    if not areas:
        lines += [*([""] if lines and lines[-1].strip() else []), f"[{section}]", line]
        return
    place = areas[0].stop
    while place > areas[0].start and not lines[place - 1].strip():
        place -= 1
    lines.insert(place, line)


def _areas(lines: list[str], section: str) -> Iterator[range]:
    """Yield the line range of each section with this name; "" is the range before the first section."""
    begin, name = 0, ""
    for number, line in enumerate(lines):
        if match := _SECTION.match(line):
            if name == section:
                yield range(begin, number)
            begin, name = number + 1, match["name"].strip()
    if name == section:
        yield range(begin, len(lines))


def _key_of(line: str) -> str:
    match = _KEY.match(line)
    return match["key"].rstrip() if match else ""


def _mark(lines: list[str]) -> str:
    """Return the separator between keys and values, as in the first line that has both."""
    for line in lines:
        match = _KEY.match(line)
        if match and match["rest"] and (rest := _REST.match(match["rest"])) and rest["value"]:
            before = match["key"][len(match["key"].rstrip()) :]
            return before + rest["mark"]
    return " = "


def _text(change: KeyChange) -> str | None:
    """Return the value as text. None for a key without a value."""
    value: Any = change.value
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise FileError(
            f"the value of `{change.shown}` is a list or a mapping, which an ini file does not support"
        )
    text = str(value)
    if text != text.strip() or any(one in text for one in "\n\r\0"):
        raise FileError(
            f"the value of `{change.shown}` has surrounding spaces or several lines, which an ini file does not support"
        )
    return text
