"""Rules of fields, read from the markers beside them."""

from __future__ import annotations

from typing import Annotated

import msgspec
import pytest
from msgspec import Meta, Struct

from ccm_agent.model.formats.field_rules import (
    Alias,
    Deferred,
    Extension,
    ExtensionValues,
    FieldRules,
    LimitsResource,
    NeededByLookAhead,
    PublishDigest,
    PublishNames,
    Quoted,
    RunsCommand,
    Sensitive,
    TemplatedKeys,
    UnsignedFlag,
    Untemplated,
    Url,
    field_rules,
)

NONE: frozenset[str] = frozenset()
NO_RULES = FieldRules(
    untemplated=NONE,
    deferred=NONE,
    templated_keys=NONE,
    needed_by_look_ahead=NONE,
    quoted=NONE,
    sensitive=NONE,
    urls=NONE,
    publish_digest=NONE,
    publish_names=NONE,
    commands=NONE,
    unsigned=NONE,
    limits_resource=NONE,
    extensions=NONE,
    extension_values={},
    aliases={},
)


class Plain(Struct, kw_only=True):
    text: Annotated[str, Meta(description="What it says.")] = ""
    number: int = 0


class Marked(Plain, kw_only=True):
    text: Annotated[str, Deferred, NeededByLookAhead, PublishDigest, Meta(description="What it says.")] = ""
    plain: Annotated[str, Untemplated] = ""
    words: Annotated[dict[str, str], TemplatedKeys] = {}
    mode: Annotated[str, Quoted] = ""
    pin: Annotated[str, Sensitive] = ""
    link: Annotated[str, Url] = ""
    variables: Annotated[list[str], PublishNames] = []
    command: Annotated[str, RunsCommand] = ""
    timeout: Annotated[str, LimitsResource] = ""
    unchecked: Annotated[bool, UnsignedFlag] = False
    bold: Annotated[bool, Extension] = False
    engine: Annotated[str, ExtensionValues("jinja", "mako")] = ""
    once: Annotated[bool, Alias("only_once", "one_time")] = False


def test_fields_without_markers_have_no_rules() -> None:
    assert field_rules(Plain) == NO_RULES


def test_each_marker_names_its_fields() -> None:
    assert field_rules(Marked) == FieldRules(
        untemplated=frozenset({"plain"}),
        deferred=frozenset({"text"}),
        templated_keys=frozenset({"words"}),
        needed_by_look_ahead=frozenset({"text"}),
        quoted=frozenset({"mode"}),
        sensitive=frozenset({"pin"}),
        urls=frozenset({"link"}),
        publish_digest=frozenset({"text"}),
        publish_names=frozenset({"variables"}),
        commands=frozenset({"command"}),
        unsigned=frozenset({"unchecked"}),
        limits_resource=frozenset({"timeout"}),
        extensions=frozenset({"bold"}),
        extension_values={"engine": frozenset({"jinja", "mako"})},
        aliases={"only_once": "once", "one_time": "once"},
    )


def test_a_marker_inside_a_type_counts_for_the_whole_field() -> None:
    class Inside(Struct):
        pin: Annotated[str, Sensitive] | None = None
        pins: list[Annotated[str, Sensitive()]] = []

    assert field_rules(Inside).sensitive == {"pin", "pins"}


def test_a_subclass_inherits_markers_and_replaces_those_of_fields_it_declares_again() -> None:
    class Again(Marked, kw_only=True):
        pin: Annotated[str, Deferred] = ""

    rules = field_rules(Again)

    assert (rules.sensitive, rules.deferred, rules.quoted) == (NONE, {"text", "pin"}, {"mode"})


def test_the_json_schema_does_not_know_markers() -> None:
    text = msgspec.json.schema(Marked)["$defs"]["Marked"]["properties"]["text"]

    assert text == msgspec.json.schema(Plain)["$defs"]["Plain"]["properties"]["text"]


def test_a_renamed_field_cannot_have_rules() -> None:
    class Renamed(Struct, rename={"if_": "if"}):
        if_: Annotated[str, Sensitive] = ""

    with pytest.raises(TypeError, match=r"Renamed\.if_ has field rules, so it cannot be renamed"):
        field_rules(Renamed)
