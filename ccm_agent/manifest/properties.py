"""
Convert raw values of a manifest to a type's properties.

A value that already has the correct type costs only msgspec's conversion. Other values are coerced as in Choria
CCM (for example a number where text is expected). A value that cannot be coerced is an error with its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ccm_agent.manifest.document import Path
from ccm_agent.model import codec
from ccm_agent.model.errors import Place, PropertyError
from ccm_agent.model.formats.patterns import lazy_pattern
from ccm_agent.model.formats.scalars import explain_unquoted, key_text, parse_number
from ccm_agent.model.resource import CommonProperties
from ccm_agent.resources.contract import AnyType

_MODE = lazy_pattern("[0-7]{3,4}")


def read_unquoted(kind: AnyType, raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """
    Return the properties, with numbers that Choria CCM reads as modes replaced by their digits.

    YAML reads `mode: 0644` as the number 420, and Choria CCM uses the digits 420. Other numbers are kept and
    refused later. Numbers of a type without checks for them are refused as well.
    """
    if kind.check_when_applied is None:
        return raw
    read = {
        key: str(value)
        for key in kind.rules.quoted
        if isinstance(value := raw.get(key), int)
        and not isinstance(value, bool)
        and _MODE.fullmatch(str(value))
    }
    return {**raw, **read} if read else raw


def make_properties(
    kind: AnyType, raw: Mapping[str, Any], source: str = "", text: str | None = None, path: Path = ()
) -> CommonProperties:
    """
    Convert raw values to properties, not yet checked by the type.

    Args:
        kind: The type.
        raw: The values, including `name`.
        source, text, path: The document that contains the values and the path to them, for the place of errors.

    Raises:
        DocumentError: A key is unknown or a value has the wrong type.
        PropertyError: A number would be misinterpreted. Its place has a path from the resource, `$.mode`.
    """
    try:
        properties: CommonProperties = msgspec.convert(raw, kind.properties)
    except msgspec.ValidationError:
        properties = codec.convert_as(_bent(kind, raw), kind.properties, source, text, path)
    return properties


def may_be_none(kind: AnyType, written: str) -> bool:
    """Whether a property may be None."""
    return any(isinstance(one, msgspec.inspect.NoneType) for one in _choices(kind, written))


def keeps_type(kind: AnyType, written: str) -> bool:
    """
    Whether a property that is a single expression keeps the type of its value, such as a list from data.

    In the types of Choria CCM, and in properties that all types share, the expression returns text, and only a
    number is parsed from it. It also returns text if the property accepts any value.
    """
    if not kind.is_extension or written in CommonProperties.__struct_fields__:
        return False
    choices, inspect = _choices(kind, written), msgspec.inspect
    return bool(choices) and not any(isinstance(one, (inspect.StrType, inspect.AnyType)) for one in choices)


def takes_expression(kind: AnyType, written: str) -> bool:
    """
    Whether a property that is not text can be a single expression. The type of its value is kept, or a number
    is parsed from the text.
    """
    is_number = any(isinstance(one, msgspec.inspect.IntType) for one in _choices(kind, written))
    return is_number or keeps_type(kind, written)


def _choices(kind: AnyType, written: str) -> list[msgspec.inspect.Type]:
    """Return the possible types of a property; empty if unknown."""
    wanted = _fields(kind.properties).get(kind.rules.aliases.get(written, written))
    if wanted is None:
        return []
    bare = _bare(wanted)
    return [_bare(one) for one in bare.types] if isinstance(bare, msgspec.inspect.UnionType) else [bare]


def _bare(wanted: msgspec.inspect.Type) -> msgspec.inspect.Type:
    return wanted.type if isinstance(wanted, msgspec.inspect.Metadata) else wanted


def _bent(kind: AnyType, raw: Mapping[str, Any]) -> dict[str, Any]:
    fields, rules = _fields(kind.properties), kind.rules
    bent: dict[str, Any] = {}
    for written, value in raw.items():
        key = rules.aliases.get(written, written)
        if key != written and key in raw:
            message = f"`{written}` is an alias of `{key}`, which is also set; remove one of them"
            raise PropertyError(message, place=Place(path=f"$.{written}"))
        if value is None:
            continue  # a key without a value is treated as absent
        if key in rules.quoted and isinstance(value, (int, float)) and not isinstance(value, bool):
            raise PropertyError(explain_unquoted(key, value), place=Place(path=f"$.{written}"))
        bent[key] = _bend(value, fields[key]) if key in fields else value
    return bent


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
    """Coerce a value as Choria CCM does. A value that cannot be coerced is returned unchanged."""
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
