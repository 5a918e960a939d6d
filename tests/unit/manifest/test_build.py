"""Both forms of resources, defaults, templates, and how values are bent."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ccm_agent.app_expressions import make_expressions
from ccm_agent.manifest.build import ResourceBuilder
from ccm_agent.manifest.expressions import render
from ccm_agent.model.codec import decode_yaml
from ccm_agent.model.errors import InputError, PropertyError
from ccm_agent.resources.contract import ResolvedResource
from tests.support.engine import Board, NoteProperties, Types, note_type


def expand(text: str, **data: Any) -> list[ResolvedResource]:
    raw = decode_yaml(text)
    assert isinstance(raw, list)
    expressions = make_expressions({"os": "linux"}, data, {}, "/")
    return ResourceBuilder(Types(note_type(Board())), expressions, text, "m.yaml").expand(raw, ())


def properties(text: str, **data: Any) -> list[Any]:
    return [one.wanted for one in expand(text, **data)]


def note(name: str, **fields: Any) -> NoteProperties:
    return NoteProperties(name=name, ensure="present", **fields)


def test_one_resource_with_its_name_among_its_properties() -> None:
    assert properties("- note: {name: a, text: x}") == [note("a", text="x")]


def test_several_resources_by_name_with_defaults_anywhere_in_their_list() -> None:
    text = "- note:\n  - a:\n  - b: {text: own}\n  - defaults: {text: d, words: {en: x}}\n- note: {name: c}\n"

    assert properties(text) == [
        note("a", text="d", words={"en": "x"}),
        note("b", text="own", words={"en": "x"}),
        note("c"),
    ]


def test_lists_and_mappings_of_defaults_are_replaced_but_control_is_merged() -> None:
    text = (
        "- note:\n"
        "  - defaults: {sizes: [1, 2], words: {a: b}, control: {if: 'true', unless: 'false'}}\n"
        "  - a: {sizes: [3], words: {c: d}, control: {unless: 'true'}}\n"
    )

    (wanted,) = properties(text)

    assert (wanted.sizes, wanted.words) == ([3], {"c": "d"})
    assert (wanted.control.if_, wanted.control.unless) == ("true", "true")


def test_a_key_without_a_value_leaves_the_default() -> None:
    text = (
        "- note:\n"
        "  - defaults: {text: d, sizes: [1], bold: true, require: ['note#z'], control: {if: 'true', unless: 'false'}}\n"
        "  - a: {text: null, sizes: , bold: ~, require: , control: {if: , unless: 'true'}}\n"
    )

    (wanted,) = properties(text)

    assert (wanted.text, wanted.sizes, wanted.bold, wanted.require) == ("d", [1], True, ["note#z"])
    assert (wanted.control.if_, wanted.control.unless) == ("true", "true")


def test_null_removes_the_default_of_an_optional_property() -> None:
    (wanted,) = properties("- note:\n  - defaults: {control: {if: 'false'}}\n  - a: {control: }\n")

    assert wanted.control is None


def test_a_key_of_a_mapping_whose_expression_gives_nothing_is_left_out() -> None:
    expressions = make_expressions({}, {"w": "x"}, {}, "/")
    written = {"a": "{{ Data.nope }}", "b": {"c": "{{ Data.nope }}", "d": "{{ Data.w }}"}, "e": None}

    assert render(written, expressions) == {"b": {"d": "x"}, "e": None}


def test_a_request_may_use_values_that_a_manifest_may_not() -> None:
    def refuse(wanted: Any) -> None:
        if wanted.text == "odd":
            raise PropertyError("this is odd")

    kind = msgspec.structs.replace(note_type(Board()), check_in_manifest=refuse)
    text = "- note: {name: a, text: odd}"

    def declare(document: str | None) -> Any:
        builder = ResourceBuilder(Types(kind), make_expressions({}, {}, {}, "/"), document, "m.yaml")
        return builder.expand([{"note": {"name": "a", "text": "odd"}}], ())[0].wanted

    assert declare(None) == note("a", text="odd")
    with pytest.raises(PropertyError, match="note#a: this is odd"):
        declare(text)


def test_several_types_in_one_entry_and_null_entries() -> None:
    assert [one.wanted.name for one in expand("- note: {name: a}\n-\n- note: [{b: }, {c: {}}]\n")] == [
        "a",
        "b",
        "c",
    ]


@pytest.mark.parametrize(
    ("value", "bent"),
    [
        pytest.param("text: 42", {"text": "42"}, id="a number for a text"),
        pytest.param("text: 1.10", {"text": "1.1"}, id="a float for a text"),
        pytest.param("text: true", {"text": "true"}, id="a boolean for a text"),
        pytest.param("sizes: ['3', 4]", {"sizes": [3, 4]}, id="a text for a number"),
        pytest.param("words: {en: 1}", {"words": {"en": "1"}}, id="values of a mapping"),
        pytest.param("txt: x", {"text": "x"}, id="another spelling"),
    ],
)
def test_values_are_bent_as_the_reference_bends_them(value: str, bent: dict[str, Any]) -> None:
    assert properties(f"- note: {{name: a, {value}}}") == [note("a", **bent)]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        pytest.param(
            "note: {name: a, bold: 'true'}", "expected true or false, got text", id="text for a boolean"
        ),
        pytest.param(
            'note: {name: a, bold: "{{ true }}"}', "expected true or false", id="template for a boolean"
        ),
        pytest.param("note: {name: a, require: x#y}", "expected a list, got text", id="text for a list"),
        pytest.param(
            "note: x", "`note` needs properties, or a list of names with properties", id="text for properties"
        ),
        pytest.param("note: []", "not nothing", id="empty list"),
        pytest.param("note:", "not nothing", id="null"),
        pytest.param(
            "note: [{name: a, text: x}]", "one name with its properties", id="explicit names in a list"
        ),
        pytest.param(
            "note: [{a: x}]", "`a` needs a mapping of properties", id="text for the properties of a name"
        ),
        pytest.param(
            "note: [{defaults: {}}, {a: }, {defaults: {}}]", "`defaults` appears twice", id="two defaults"
        ),
        pytest.param("note: {}", "`name` is missing", id="no name"),
        pytest.param("note: {name: ''}", "the name is empty", id="empty name"),
        pytest.param("note: {name: a, ensure: prsent}", "did you mean `present`?", id="typo in ensure"),
        pytest.param("note: {name: a, ensure: gone}", "must be `present` or `absent`", id="wrong ensure"),
        pytest.param("note: {name: a, require: [b]}", "`b` is not a valid reference", id="no reference"),
        pytest.param("note: {name: a, subscribe: [b]}", "`b` is not a valid reference", id="no subscription"),
        pytest.param("note: {name: a, text: x, txt: y}", "an alias of `text`", id="two spellings"),
        pytest.param(
            "note: {name: a, health_checks: [{}]}", "neither `command` nor `goss_rules`", id="empty check"
        ),
        pytest.param("[1]", "a resource must be a mapping", id="a list for a resource"),
    ],
)
def test_a_contradiction_is_refused_with_its_place(entry: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        expand(f"- note: {{name: right}}\n- {entry}\n")

    assert message in str(caught.value)
    assert str(caught.value).startswith("m.yaml:2:")


class TestTemplates:
    def test_in_names_values_lists_and_mappings(self) -> None:
        text = (
            "- note:\n"
            '  - "{{ Data.n }}":\n'
            '      text: "a {{ Facts.os }}"\n'
            '      words: {en: "{{ Data.n }}"}\n'
            '      subscribe: ["note#{{ Data.n }}"]\n'
        )

        assert properties(text, n="one") == [
            note("one", text="a linux", words={"en": "one"}, subscribe=["note#one"])
        ]

    def test_of_deferred_fields_wait(self) -> None:
        (one,) = expand('- note: {name: a, later: "{{ nope }}", text: x}')

        assert (one.pending, one.wanted.later) == (("later",), "{{ nope }}")  # type: ignore[attr-defined]

    def test_templates_in_literal_fields_are_text(self) -> None:
        assert properties('- note: {name: a, plain: "{{ 1 }}", require: ["note#{{ 1 }}"]}') == [
            note("a", plain="{{ 1 }}", require=["note#1"])
        ]

    def test_templates_are_rendered_once_so_data_is_not_code(self) -> None:
        assert properties('- note: {name: a, text: "{{ Data.x }}"}', x="{{ 1 + 1 }}") == [
            note("a", text="{{ 1 + 1 }}")
        ]

    @pytest.mark.parametrize(
        ("field", "value"),
        [("sizes", [1, 2]), ("bold", True), ("words", {"en": "{{ 1 + 1 }}"}), ("text", "7")],
    )
    def test_an_expression_keeps_its_type_in_types_of_this_project(self, field: str, value: Any) -> None:
        text = f'- note: {{name: a, {field}: "{{{{ Data.x }}}}"}}'
        expressions = make_expressions({}, {"x": 7 if field == "text" else value}, {}, "/")

        def declare(*, is_extension: bool) -> Any:
            kind = note_type(Board(), is_extension=is_extension)
            builder = ResourceBuilder(Types(kind), expressions, text, "m.yaml")
            return getattr(builder.expand(decode_yaml(text), ())[0].wanted, field)

        assert declare(is_extension=True) == value
        if field != "text":
            with pytest.raises(InputError, match="got text"):
                declare(is_extension=False)

    def test_hidden_in_json_escapes_are_found(self) -> None:
        assert properties('- {"note": {"name": "a", "text": "\\u007b{ 1 + 1 }}"}}') == [note("a", text="2")]


def test_the_place_of_a_value_that_comes_from_defaults_is_near_its_resource() -> None:
    with pytest.raises(InputError, match=r"^m\.yaml:3:5: .*note#a: expected true or false, got text"):
        expand("- note:\n  - defaults: {bold: 'yes'}\n  - a: {}\n")
