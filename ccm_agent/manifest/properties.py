"""
Convert raw values of a manifest to a type's properties.

A value that already has the right type costs nothing more than msgspec's conversion. Other values are coerced as Choria CCM
does (a number where text is expected); a value that cannot be coerced is an error with its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ccm_agent.manifest.document import Path
from ccm_agent.model import codec
from ccm_agent.model.errors import Place, PropertyError
from ccm_agent.model.resource import CommonProperties
from ccm_agent.model.scalars import key_text, parse_number
from ccm_agent.resources.contract import AnyType


def make_properties(
    kind: AnyType, raw: Mapping[str, Any], source: str = "", text: str | None = None, path: Path = ()
) -> CommonProperties:
    """
    The properties that raw values give, not yet checked by the type.

    Args:
        kind: The type.
        raw: The values, `name` among them.
        source, text, path: The document that they stand in and the way to them, for the place of errors.

    Raises:
        DocumentError: A key is unknown or a value does not fit.
        PropertyError: A number would be misread here; its place has a path from the resource, `$.mode`.
    """
    try:
        properties: CommonProperties = msgspec.convert(raw, kind.properties)
    except msgspec.ValidationError:
        properties = codec.convert_as(_bent(kind, raw), kind.properties, source, text, path)
    return properties


def may_be_none(kind: AnyType, written: str) -> bool:
    """Whether a property may be None."""
    inspect = msgspec.inspect
    wanted = _fields(kind.properties).get(kind.rules.aliases.get(written, written))
    if isinstance(wanted, inspect.Metadata):
        wanted = wanted.type
    return isinstance(wanted, inspect.UnionType) and wanted.includes_none


def _bent(kind: AnyType, raw: Mapping[str, Any]) -> dict[str, Any]:
    fields, rules = _fields(kind.properties), kind.rules
    bent: dict[str, Any] = {}
    for written, value in raw.items():
        key = rules.aliases.get(written, written)
        if key != written and key in raw:
            message = f"`{written}` is another spelling of `{key}`, which stands here too; remove one of them"
            raise PropertyError(message, place=Place(path=f"$.{written}"))
        if value is None:
            continue  # a key without a value counts as absent
        if key in rules.quoted and isinstance(value, (int, float)) and not isinstance(value, bool):
            raise PropertyError(_unquoted(key, value), place=Place(path=f"$.{written}"))
        bent[key] = _bend(value, fields[key]) if key in fields else value
    return bent


def _unquoted(key: str, value: float) -> str:
    return f"`{key}` must be quoted, as in {key}: {_as_typed(value)}; unquoted it is the number {key_text(value)}"


def _as_typed(value: float) -> str:
    """
    Guess the mode as it was typed: YAML reads 0644 as the number 420, and 644 as itself.

    The plain ones of three digits (444, 600 …) would make no sensible mode if they had been octal.
    """
    digits = str(value)
    if (
        len(digits) == 3
        and set(digits) <= set("01234567")
        and (float(value) > 0o777 or set(digits) <= set("0467"))
    ):
        return f'"0{digits}"'
    return f'"{value:04o}"' if isinstance(value, int) and 0 <= value <= 0o7777 else '"0644"'


_known_fields: dict[Any, dict[str, msgspec.inspect.Type]] = {}


def _fields(struct: Any) -> dict[str, msgspec.inspect.Type]:
    found = _known_fields.get(struct)
    if found is None:
        info = msgspec.inspect.type_info(struct)
        assert isinstance(info, msgspec.inspect.StructType)
        found = {field.encode_name: field.type for field in info.fields}
        _known_fields[struct] = found
    return found


def _bend(value: Any, wanted: msgspec.inspect.Type) -> Any:
    """Coerce a value as Choria CCM does; a value that cannot be coerced stays as it is."""
    inspect = msgspec.inspect
    if isinstance(wanted, inspect.Metadata):
        return _bend(value, wanted.type)
    if isinstance(wanted, inspect.UnionType):
        inner = [one for one in wanted.types if not isinstance(one, inspect.NoneType)]
        return _bend(value, inner[0]) if len(inner) == 1 else value
    if isinstance(wanted, inspect.StrType):
        return key_text(value) if isinstance(value, (bool, int, float)) else value
    if isinstance(wanted, inspect.IntType):
        return _bend_number(value)
    if isinstance(wanted, inspect.ListType) and isinstance(value, list):
        return [_bend(one, wanted.item_type) for one in value if one is not None]
    if isinstance(wanted, inspect.DictType) and isinstance(value, dict):
        return {key: _bend(one, wanted.value_type) for key, one in value.items()}
    if isinstance(wanted, inspect.StructType) and isinstance(value, dict):
        fields = _fields(wanted.cls)
        return {
            key: _bend(one, fields[key]) if key in fields else one
            for key, one in value.items()
            if one is not None
        }
    return value


def _bend_number(value: Any) -> Any:
    if isinstance(value, str) and value.strip():
        number = parse_number(value.strip())
        value = value if number is None else number
    return int(value) if isinstance(value, float) and value.is_integer() else value
