"""
Bytes to values and Structs, and back: JSON and YAML.

Everything that a person wrote comes in through here, so that every error says which file, which line and what to do.
`decode_*` give plain values (None, bool, int, float, str, list, dict with text keys); `*_as` give Structs.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ccm_agent.model.errors import DocumentError, MisfitError, Place
from ccm_agent.model.nesting import is_too_deep

if TYPE_CHECKING:
    from ccm_agent.model.yaml_comments import KeyComment

T = TypeVar("T")

Path = list[str | int] | tuple[str | int, ...]
"""Keys and indexes from a document's root to a value in it."""


def decode_document(data: bytes | str, source: str = "") -> object:
    """The values of a JSON or YAML document. Its content decides: what begins with `{` or `[` is JSON."""
    text = as_text(data, source)
    return decode_json(text, source) if is_json(text) else decode_yaml(text, source)


def decode_manifest(data: bytes | str, source: str = "") -> object:
    """
    The values of a manifest, or of a part of one: as `decode_document`, but what begins as JSON may also be YAML's flow style.

    Raises:
        DocumentError: Neither; it says why the document is not JSON.
    """
    text = as_text(data, source)
    if not is_json(text):
        return decode_yaml(text, source)
    try:
        return decode_json(text, source)
    except DocumentError as err:
        try:
            return decode_yaml(text, source)
        except DocumentError:
            raise err from None


def is_json(text: str) -> bool:
    """Whether a document is to be read as JSON."""
    return text.lstrip()[:1] in ("{", "[")


def decode_yaml(data: bytes | str, source: str = "") -> object:
    """
    The values of the first YAML document; None when there is none.

    Read as `model.scalars` says. Blocking: a large document belongs into a thread.

    Raises:
        DocumentError: Not YAML, a duplicate key, a key that is not text …, with file, line and column.
    """
    from ccm_agent.model.yaml_reader import read_yaml

    return read_yaml(as_text(data, source), source)


def decode_json(data: bytes | str, source: str = "") -> object:
    """
    The values of a JSON document. Of a duplicate key the last one counts.

    A whole number that does not fit 64 bits is text, as in YAML: other programs could not represent it, and rounding would
    change it.

    Raises:
        DocumentError: Not JSON, with file, line and column.
    """
    text = as_text(data, source)
    try:
        value: object = msgspec.json.decode(text)
    except msgspec.DecodeError as err:
        from ccm_agent.model.validation_messages import json_error

        raise json_error(text, source, err) from err
    except RecursionError as err:
        raise DocumentError("nested too deeply", place=Place(source)) from err
    if is_too_deep(text.encode()):
        raise DocumentError("nested too deeply", place=Place(source))
    return _fit_numbers(value) if re.search(r"\d{19}", text) else value


def _fit_numbers(value: object) -> object:
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return str(value)
    if isinstance(value, dict):
        return {key: _fit_numbers(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_fit_numbers(one) for one in value]
    return value


def decode_as(data: bytes | str, kind: type[T], source: str = "") -> T:
    """
    A Struct from a JSON or YAML document that a person wrote.

    Raises:
        DocumentError: With file, line and `$.path` of what does not fit; for an unknown key with the nearest right one.
    """
    text = as_text(data, source)
    return convert_as(decode_document(text, source), kind, source, text)


def convert_as(value: object, kind: type[T], source: str = "", text: str | None = None, at: Path = ()) -> T:
    """
    A Struct from values that were decoded before.

    Args:
        value: What `decode_document` gave, or a part of it.
        kind: The Struct, or any type that msgspec converts to.
        source: Name of the document, for errors.
        text: The whole text that the values came from; with it errors have a line.
        at: Where in the document `value` stands: keys and indexes from the root.

    Raises:
        MisfitError: A key is unknown, or a value does not fit.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as err:
        from ccm_agent.model.validation_messages import misfit_error

        found = misfit_error(str(err), value, kind)
        whole = [*at, *found.path]
        place = locate(text, whole, source) if text is not None else Place(source, path=path_text(whole))
        raise MisfitError(
            found.message, place=place, path=found.path, unknown_key=found.unknown_key, known=found.known
        ) from err


def encode_json(value: object, indent: int = 0, sort_keys: bool = False) -> bytes:
    """
    JSON of values or Structs, without a final newline; `indent` > 0 is for people's eyes.

    Raises:
        DocumentError: A number that JSON has no word for (NaN, an infinity), or a value of a type that it does not know.
    """
    try:
        data = msgspec.json.encode(value, order="sorted" if sort_keys else None)
    except (TypeError, OverflowError, msgspec.MsgspecError) as err:
        raise DocumentError(f"this cannot be written as JSON: {err}") from err
    if b"null" in data and _has_nameless_number(msgspec.to_builtins(value)):
        raise DocumentError("this cannot be written as JSON: a number in it is NaN or infinite")
    return msgspec.json.format(data, indent=indent) if indent else data


def encode_yaml(value: object) -> str:
    """YAML of values or Structs: block style, keys sorted, ending in a newline; `decode_yaml` reads back the same."""
    from ccm_agent.model.yaml_writer import write_yaml

    return write_yaml(msgspec.to_builtins(value))


def key_comments(text: str, source: str = "") -> list[KeyComment]:
    """
    The comments of a YAML document that belong to keys, in order, each line by itself.

    For documents that `decode_yaml` has read before.
    """
    from ccm_agent.model import yaml_comments

    return yaml_comments.key_comments(text, source)


def _has_nameless_number(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(_has_nameless_number(one) for one in value.values())
    return isinstance(value, (list, tuple)) and any(_has_nameless_number(one) for one in value)


def locate(text: str, path: Path, source: str = "") -> Place:
    """
    Where in a document a value stands: of a mapping's entry the place of its key, of a list's item where it begins.

    Reads the document once more, so it is for errors only. What is not found gives the place of the nearest thing around it,
    and a text that cannot be read no line at all; it never raises.

    Args:
        text: The whole document, JSON or YAML.
        path: Keys and indexes from the root.
        source: Name of the document.
    """
    from ccm_agent.model.yaml_marks import find

    line, column = find(text, path)
    return Place(source, line, column, path_text(path))


def path_text(path: Path) -> str:
    """`$.ccm.resources[0].file["/etc/motd"]` from its parts."""
    text = "$"
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if re.fullmatch(r"[\w-]+", part) else f'["{part}"]'
    return text


def as_text(data: bytes | str, source: str = "") -> str:
    """
    The text of a document, without a byte order mark.

    Raises:
        DocumentError: Not UTF-8.
    """
    if isinstance(data, str):
        try:
            data.encode()
        except UnicodeEncodeError as err:
            place = Place(source, data.count("\n", 0, err.start) + 1)
            raise DocumentError("half a surrogate pair stands in the text", place=place) from err
        return data.removeprefix("\ufeff")
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as err:
        line = data.count(b"\n", 0, err.start) + 1
        message = f"byte 0x{data[err.start]:02x} is not UTF-8: save the file with that encoding"
        raise DocumentError(message, place=Place(source, line)) from err
