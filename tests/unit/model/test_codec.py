"""Documents to values and Structs, with errors that a person can act on."""

import contextlib
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.model import codec
from ccm_agent.model.errors import DocumentError, MisfitError, Place
from ccm_agent.model.suggestions import did_you_mean, nearest


class Thing(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    content: str = ""
    mode: str = ""
    count: int | None = None


class Site(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str
    things: list[dict[str, Thing]] = []


SITE = """\
# a site
name: main
things:
  - /etc/a.conf:
      content: x
    "/etc/b [c]":
      contnet: y
"""


def test_content_decides_between_json_and_yaml() -> None:
    assert codec.decode_document(b' {"a": 1e3}') == {"a": 1000.0}
    assert codec.decode_document("a: 1e3") == {"a": "1e3"}
    with pytest.raises(DocumentError, match="not JSON"):
        codec.decode_document("{a: 1}")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param('{"a": "\\u00e9", "b": 1e3}', {"a": "é", "b": 1000.0}, id="JSON is JSON"),
        pytest.param("{a: [1e3, no], 'b': ~,}", {"a": ["1e3", "no"], "b": None}, id="flow style"),
        pytest.param('{"a": 1} # one', {"a": 1}, id="a comment behind it"),
        pytest.param("- a\n- b\n", ["a", "b"], id="block style"),
    ],
)
def test_a_document_that_begins_like_json_may_be_yaml(text: str, value: object) -> None:
    assert codec.decode_manifest(text) == value


def test_an_invalid_manifest_reports_the_json_error() -> None:
    with pytest.raises(DocumentError, match=r"^m\.json:1:11: not JSON: "):
        codec.decode_manifest('{"a": "b" "c": 1}', "m.json")


def test_a_document_becomes_a_struct() -> None:
    site = codec.decode_as("name: x\nthings:\n- a: {content: y}\n", Site)

    assert site == Site(name="x", things=[{"a": Thing(content="y")}])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(
            SITE,
            "s.yaml:7:7: unknown key `contnet`, did you mean `content`?",
            id="unknown key, with line and nearest key",
        ),
        pytest.param(
            "nam: x\nname: y\n", "s.yaml:1:1: unknown key `nam`, did you mean `name`?", id="at the top"
        ),
        pytest.param("name: x\nzzz: 1\n", "s.yaml:2:1: unknown key `zzz`", id="nothing is near"),
        pytest.param(
            "name: x\nthings:\n- a: {}\n- b: {mode: 0644}\n",
            "s.yaml:4:7: expected text, got a whole number",
            id="wrong type",
        ),
        pytest.param("things: []\n", "s.yaml:1:1: `name` is missing", id="missing key"),
        pytest.param("", "s.yaml: $: expected a mapping, got nothing", id="empty document"),
        pytest.param(
            '{"name": "x",\n "things": 5}',
            "s.yaml:2:2: expected a list, got a whole number",
            id="JSON has lines too",
        ),
        pytest.param('{"name": \n tru}', "s.yaml:2:6: not JSON: invalid character", id="broken JSON"),
        pytest.param(
            '{"name":\n[',
            "s.yaml:2:2: not JSON: it ends too early: a bracket, brace or quote is not closed",
            id="cut off",
        ),
    ],
)
def test_an_invalid_value_is_named_with_its_place(text: str, said: str) -> None:
    with pytest.raises(DocumentError) as caught:
        codec.decode_as(text, Site, "s.yaml")

    assert str(caught.value) == said


def test_a_part_of_a_document_is_placed_in_the_whole() -> None:
    value: Any = codec.decode_yaml(SITE)

    with pytest.raises(DocumentError) as caught:
        codec.convert_as(
            value["things"][0]["/etc/b [c]"], Thing, "s.yaml", SITE, at=("things", 0, "/etc/b [c]")
        )

    assert caught.value.place == Place("s.yaml", 7, 7, '$.things[0]["/etc/b [c]"].contnet')


def test_without_the_text_an_error_has_a_path_but_no_line() -> None:
    with pytest.raises(DocumentError) as caught:
        codec.convert_as({"count": "x"}, Thing, "s.yaml")

    assert caught.value.place == Place("s.yaml", path="$.count")


@pytest.mark.parametrize(
    ("path", "line", "column"),
    [
        pytest.param((), 2, 1, id="the root"),
        pytest.param(("things", 0), 4, 5, id="an item"),
        pytest.param(("things", 0, "/etc/a.conf", "content"), 5, 7, id="a key with dots above it"),
        pytest.param(("things", 0, "/etc/a.conf", "nope"), 4, 5, id="what is not there is placed around it"),
        pytest.param(("things", 7), 3, 1, id="an index that is not there"),
    ],
)
def test_a_path_is_found_in_the_text(path: tuple[str | int, ...], line: int, column: int) -> None:
    place = codec.locate(SITE, path, "s.yaml")

    assert (place.line, place.column) == (line, column)


def test_a_text_that_cannot_be_read_has_no_place() -> None:
    assert codec.locate("a: [", ("a",), "s.yaml") == Place("s.yaml", path="$.a")
    assert codec.locate("", ("a",), "s.yaml") == Place("s.yaml", path="$.a")


class Rules(msgspec.Struct, kw_only=True):
    """Values and keys to choose from."""

    mode: Literal["off", "plan"] = "off"
    rights: dict[Literal["act", "read"], list[str]] = {}
    count: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rights: {act: []}\nmode: paln\n", "s.yaml:2:1: `paln` is not allowed here: use `off` or `plan`"),
        ("mode: off\ncount: 0\n", "s.yaml:2:1: must be at least 1"),
        ("mode: off\ncount: 10\n", "s.yaml:2:1: must be at most 9"),
        ("mode: off\nrights:\n  write: []\n", "s.yaml:2:1: `write` is not allowed here: use `act` or `read`"),
    ],
    ids=["a value", "too small", "too large", "a key"],
)
def test_a_value_that_is_not_allowed_is_an_error_with_what_is(text: str, said: str) -> None:
    with pytest.raises(MisfitError) as caught:
        codec.decode_as(text, Rules, "s.yaml")

    assert str(caught.value) == said


def test_the_nearest_word_is_offered() -> None:
    known = ["content", "mode", "owner"]

    assert did_you_mean("contnet", known) == ", did you mean `content`?"
    assert did_you_mean("Mode", known) == ", did you mean `mode`?"
    assert did_you_mean("xyzzy", known) == ""
    assert nearest("ownr", known) == "owner"


def test_integers_beyond_64_bits_are_text_in_json_and_yaml() -> None:
    assert codec.decode_json("[18446744073709551615, 18446744073709551616, 1.5]") == [
        18446744073709551615,
        "18446744073709551616",
        1.5,
    ]


@pytest.mark.parametrize("depth", [101, 700])
def test_json_that_only_a_parser_can_hold_is_an_error_too(depth: int) -> None:
    """The number, which fits no 64 bits, has all of it walked by recursion."""
    with pytest.raises(DocumentError, match=r"facts\.json: nested too deeply"):
        codec.decode_json("[" * depth + "1" * 20 + "]" * depth, "facts.json")


def test_json_nested_without_end_is_an_error_and_no_crash() -> None:
    with pytest.raises(DocumentError, match="nested too deeply"):
        codec.decode_json("[" * 100_000)


def test_json_for_people_is_indented_and_sorted() -> None:
    assert codec.encode_json({"b": [1], "a": "é"}, indent=2, sort_keys=True).decode() == (
        '{\n  "a": "é",\n  "b": [\n    1\n  ]\n}'
    )


@pytest.mark.parametrize("value", [float("nan"), {"a": [float("-inf")]}, object()])
def test_values_without_a_json_form_are_refused(value: object) -> None:
    with pytest.raises(DocumentError, match="cannot be written as JSON"):
        codec.encode_json(value)


def test_yaml_for_people_is_in_blocks_and_sorted() -> None:
    value = {"b": ["x", 1.0, None], "a": {"t": "one\ntwo\n", "q": "0644", "y": "yes", "e": ""}}

    assert codec.encode_yaml(value) == (
        'a:\n  e: ""\n  q: "0644"\n  t: |\n    one\n    two\n  "y": "yes"\nb:\n- x\n- 1.0\n- null\n'
    )
    assert codec.encode_yaml("info") == "info\n"
    assert codec.encode_yaml("info...") == "info...\n"


@pytest.mark.parametrize(
    "text",
    [
        "a: b",
        "a - b",
        "a:",
        "a#b",
        "#a",
        "C:\\x",
        "{{ a }}",
        "[a",
        "@a",
        "'a",
        ",a",
        "on",
        "N",
        "-",
        "2026-11-21",
        "10:30",
    ],
)
def test_a_text_that_could_be_taken_for_something_else_is_quoted_as_choria_ccm_does(text: str) -> None:
    quoted = text.replace("\\", "\\\\")

    assert codec.encode_yaml({text: text}) == f'"{quoted}": "{quoted}"\n'


@pytest.mark.parametrize(
    "text", ["a:b", "a-b", "-a", "it's", 'a "b"', "a=b", "v1.2", "1.2.3", "http://x/y", "$HOME", "~/x"]
)
def test_an_unambiguous_text_is_written_plain(text: str) -> None:
    assert codec.encode_yaml({text: text}) == f"{text}: {text}\n"


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    | st.from_regex(r"[-+.0-9eExob_]{1,8}", fullmatch=True),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(_VALUES)
def test_written_yaml_is_read_back_unchanged(value: object) -> None:
    assert codec.decode_yaml(codec.encode_yaml(value)) == value


@given(st.text(max_size=60))
def test_no_text_makes_the_readers_leave_their_error(text: str) -> None:
    for decode in (codec.decode_document, codec.decode_json, codec.decode_yaml):
        try:
            decode(text, "f")
        except DocumentError:
            codec.locate(text, ("a", 0), "f")


@given(st.binary(max_size=60))
def test_no_bytes_make_the_readers_leave_their_error(data: bytes) -> None:
    with contextlib.suppress(DocumentError):
        codec.decode_document(data, "f")
