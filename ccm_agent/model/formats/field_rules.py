"""
Rules of single properties, which are part of the property's declaration.

    content: Annotated[str | None, Deferred, PublishDigest, Meta(description="…")] = None

A marker is one of the classes below. `Alias` and `ExtensionValues` take arguments. msgspec ignores markers, so
they do not change decoding and JSON Schemas. `field_rules` reads the markers of a Struct once and returns them
by rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, get_args

from msgspec import Struct
from msgspec.structs import fields


class FieldMarker:
    """The base class of all markers."""


class Untemplated(FieldMarker):
    """The value is used as written, without rendering templates."""


class Deferred(FieldMarker):
    """
    Templates in the value are rendered just before the resource is applied, after `control`, not when the
    manifest is loaded.
    """


class TemplatedKeys(FieldMarker):
    """Keys of this mapping are rendered as templates, in addition to the values."""


class NeededByLookAhead(FieldMarker):
    """
    A deferred field that `look_ahead` reads. While the field contains a template, the resource is not read
    ahead.
    """


class Quoted(FieldMarker):
    """A text property that refuses a number, because an unquoted `mode: 0644` is read as 420."""


class Sensitive(FieldMarker):
    """The value, or each value of a mapping or list, is masked in all output."""


class Url(FieldMarker):
    """The value may be a URL. Its user name, password and tokens are masked."""


class PublishDigest(FieldMarker):
    """
    Only the digest and size of the value are sent over the bus, for example of `content`. For a mapping,
    they are those of its JSON form.
    """


class PublishNames(FieldMarker):
    """Only the names in this list of `NAME=value` are sent over the bus, for example for `environment`."""


class RunsCommand(FieldMarker):
    """The value contains commands that the resource runs. The node's policy decides about them."""


class UnsignedFlag(FieldMarker):
    """
    A switch that accepts software without a signature. The node's policy treats it as the type `unsigned`.
    """


class LimitsResource(FieldMarker):
    """
    The value is the time limit of the whole resource. A type that redeclares the field may change this meaning.
    """


class Extension(FieldMarker):
    """Choria CCM does not have this property; `ccm lint --strict-ccm` reports it."""


class ExtensionValues(FieldMarker):
    """
    Choria CCM has the property, but does not support these values; `ccm lint --strict-ccm` reports them.

    Args:
        values: The values.
    """

    def __init__(self, *values: str) -> None:
        self.values = frozenset(values)


class Alias(FieldMarker):
    """
    Other spellings of the property, such as `refresh_only` for `refreshonly`.

    Args:
        names: The other spellings.
    """

    def __init__(self, *names: str) -> None:
        self.names = names


class FieldRules(Struct, frozen=True, kw_only=True):
    """
    The rules of a Struct's fields: the names of the fields with each marker.

    Attributes:
        aliases: Field names by their other spellings.
        extension_values: Values that Choria CCM does not support, by field.
    """

    untemplated: frozenset[str]
    deferred: frozenset[str]
    templated_keys: frozenset[str]
    needed_by_look_ahead: frozenset[str]
    quoted: frozenset[str]
    sensitive: frozenset[str]
    urls: frozenset[str]
    publish_digest: frozenset[str]
    publish_names: frozenset[str]
    commands: frozenset[str]
    unsigned: frozenset[str]
    limits_resource: frozenset[str]
    extensions: frozenset[str]
    extension_values: Mapping[str, frozenset[str]]
    aliases: Mapping[str, str]


@cache
def field_rules(properties: type[Struct]) -> FieldRules:
    """
    Return the rules of a Struct's fields, including inherited fields. A subclass that declares a field again
    replaces its markers.

    Raises:
        TypeError: A field with a marker is renamed. Rules require the same name in manifests, in the Struct and in events.
    """
    marked = {one.name: tuple(_markers(one.type)) for one in fields(properties)}
    for one in fields(properties):
        if marked[one.name] and one.name != one.encode_name:
            raise TypeError(f"{properties.__name__}.{one.name} has field rules, so it cannot be renamed")

    def having(kind: type[FieldMarker]) -> frozenset[str]:
        return frozenset(name for name, markers in marked.items() if any(_is(one, kind) for one in markers))

    return FieldRules(
        untemplated=having(Untemplated),
        deferred=having(Deferred),
        templated_keys=having(TemplatedKeys),
        needed_by_look_ahead=having(NeededByLookAhead),
        quoted=having(Quoted),
        sensitive=having(Sensitive),
        urls=having(Url),
        publish_digest=having(PublishDigest),
        publish_names=having(PublishNames),
        commands=having(RunsCommand),
        unsigned=having(UnsignedFlag),
        limits_resource=having(LimitsResource),
        extensions=having(Extension),
        extension_values={
            name: one.values
            for name, markers in marked.items()
            for one in markers
            if isinstance(one, ExtensionValues)
        },
        aliases={
            other: name
            for name, markers in marked.items()
            for one in markers
            if isinstance(one, Alias)
            for other in one.names
        },
    )


def _markers(annotation: Any) -> Iterator[Any]:
    """
    Yield all markers in an annotation.

    A marker inside, as in `Annotated[str, Sensitive] | None`, applies to the whole field. Ignoring it could publish a secret.
    """
    for one in getattr(annotation, "__metadata__", ()):
        if isinstance(one, FieldMarker) or (isinstance(one, type) and issubclass(one, FieldMarker)):
            yield one
    for inner in get_args(annotation):
        yield from _markers(inner)


def _is(marker: Any, kind: type[FieldMarker]) -> bool:
    return marker is kind or isinstance(marker, kind)
