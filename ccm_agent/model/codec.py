"""
Decode JSON and YAML to values and Structs, and encode them.

All documents that people write are decoded here. Every error therefore includes the file, the line and a fix. `decode_*` return
plain values (None, bool, int, float, str, list, dict with text keys); `*_as` return Structs.
"""

from __future__ import annotations

import math
import re
import threading
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ccm_agent.model.errors import DocumentError, MisfitError, Place
from ccm_agent.model.formats.nesting import is_too_deep
from ccm_agent.model.formats.yaml_reader import read_yaml

if TYPE_CHECKING:
    from ccm_agent.model.formats.yaml_comments import KeyComment

T = TypeVar("T")

_CONVERTING = threading.RLock()
"""msgspec may crash when two threads convert to a type for the first time."""

Path = list[str | int] | tuple[str | int, ...]
"""Keys and indexes from a document's root to a value in it."""


def decode_document(data: bytes | str, source: str = "") -> object:
    """Decode a JSON or YAML document. A document that begins with `{` or `[` is JSON."""
    text = as_text(data, source)
    return decode_json(text, source) if is_json(text) else decode_yaml(text, source)


def decode_manifest(data: bytes | str, source: str = "") -> object:
    """
    Decode a manifest or a part of one. Unlike `decode_document`, this also accepts YAML's flow style, which
    begins like JSON.

    Raises:
        DocumentError: The text is neither JSON nor YAML; the message explains why it is not JSON.
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
    """Whether a document is decoded as JSON."""
    return text.lstrip()[:1] in ("{", "[")


def decode_yaml(data: bytes | str, source: str = "") -> object:
    """
    Decode the first YAML document; None if there is none.

    `model.formats.scalars` contains the rules for scalars. Blocking: decode a large document in a thread.

    Raises:
        DocumentError: Not YAML, a duplicate key, a key that is not text …, with file, line and column.
    """
    return read_yaml(as_text(data, source), source)


def decode_json(data: bytes | str, source: str = "") -> object:
    """
    Decode a JSON document. The last of duplicate keys is used.

    An integer that does not fit into 64 bits becomes text, as in YAML. Other programs could not represent it,
    and rounding would change it.

    Raises:
        DocumentError: Not JSON, with file, line and column.
    """
    text = as_text(data, source)
    try:
        value: object = msgspec.json.decode(text)
    except msgspec.DecodeError as err:
        from ccm_agent.model.formats.validation_messages import json_error

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
    Decode a JSON or YAML document that a person wrote to a Struct.

    Raises:
        DocumentError: A value is invalid. The error contains file, line and `$.path`. For an unknown key it also
            contains the most similar known key.
    """
    text = as_text(data, source)
    return convert_as(decode_document(text, source), kind, source, text)


def convert_as(value: object, kind: type[T], source: str = "", text: str | None = None, at: Path = ()) -> T:
    """
    Convert decoded values to a Struct.

    Args:
        value: The result of `decode_document`, or a part of that result.
        kind: The Struct, or any type that msgspec converts to.
        source: Name of the document, for errors.
        text: The whole text of the document. With it, errors include a line.
        at: The position of `value` in the document: keys and indexes from the root.

    Raises:
        MisfitError: A key is unknown, or a value is invalid.
    """
    try:
        with _CONVERTING:
            return msgspec.convert(value, kind)
    except msgspec.ValidationError as err:
        from ccm_agent.model.formats.validation_messages import misfit_error

        found = misfit_error(str(err), value, kind)
        whole = [*at, *found.path]
        place = locate(text, whole, source) if text is not None else Place(source, path=path_text(whole))
        raise MisfitError(
            found.message, place=place, path=found.path, unknown_key=found.unknown_key, known=found.known
        ) from err


def encode_json(value: object, indent: int = 0, sort_keys: bool = False) -> bytes:
    """
    Encode values or Structs as JSON, without a final newline; set `indent` for readable output.

    Raises:
        DocumentError: A number without a JSON form (NaN, an infinity), or a value of an unsupported type.
    """
    try:
        data = msgspec.json.encode(value, order="sorted" if sort_keys else None)
    except (TypeError, OverflowError, msgspec.MsgspecError) as err:
        raise DocumentError(f"cannot be written as JSON: {err}") from err
    if b"null" in data and _has_nameless_number(msgspec.to_builtins(value)):
        raise DocumentError("cannot be written as JSON: a number in it is NaN or infinite")
    return msgspec.json.format(data, indent=indent) if indent else data


def encode_yaml(value: object) -> str:
    """Encode values or Structs as YAML: block style, sorted keys, final newline; `decode_yaml` returns the same values."""
    from ccm_agent.model.formats.yaml_writer import write_yaml

    return write_yaml(msgspec.to_builtins(value))


def key_comments(text: str, source: str = "") -> list[KeyComment]:
    """
    Return the comments of a YAML document that belong to keys, in order, each line separately.

    `decode_yaml` must have accepted the document.
    """
    from ccm_agent.model.formats import yaml_comments

    return yaml_comments.key_comments(text, source)


def _has_nameless_number(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(_has_nameless_number(one) for one in value.values())
    return isinstance(value, (list, tuple)) and any(_has_nameless_number(one) for one in value)


def locate(text: str, path: Path, source: str = "") -> Place:
    """
    Find the position of a value in a document: the key of a mapping's entry, or the start of a list's item.

    Parses the document again, so use it only for errors. For a missing value, it returns the place of the
    innermost existing parent. For an unreadable text, it returns a place without a line. Never raises.

    Args:
        text: The whole document, JSON or YAML.
        path: Keys and indexes from the root.
        source: Name of the document.
    """
    from ccm_agent.model.formats.yaml_marks import find

    line, column = find(text, path)
    return Place(source, line, column, path_text(path))


def path_text(path: Path) -> str:
    """Format a path, such as `$.ccm.resources[0].file["/etc/motd"]`."""
    text = "$"
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if re.fullmatch(r"[\w-]+", part) else f'["{part}"]'
    return text


def as_text(data: bytes | str, source: str = "") -> str:
    """
    Decode the text of a document, without a byte order mark.

    Raises:
        DocumentError: Not UTF-8.
    """
    if isinstance(data, str):
        try:
            data.encode()
        except UnicodeEncodeError as err:
            place = Place(source, data.count("\n", 0, err.start) + 1)
            raise DocumentError("the text contains half a surrogate pair", place=place) from err
        return data.removeprefix("\ufeff")
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as err:
        line = data.count(b"\n", 0, err.start) + 1
        message = f"byte 0x{data[err.start]:02x} is not UTF-8: save the file as UTF-8"
        raise DocumentError(message, place=Place(source, line)) from err
