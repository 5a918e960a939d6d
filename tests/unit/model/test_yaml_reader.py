"""YAML text to values, and what is said about text that is none."""

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.model.codec import decode_yaml
from ccm_agent.model.errors import DocumentError
from ccm_agent.model.formats.yaml_reader import MAX_ALIASED, MAX_DEPTH


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("a: yes\nb: 0644\n", {"a": "yes", "b": 420}, id="scalars as the reference reads them"),
        pytest.param("1: a\ntrue: b\n~: c\n", {"1": "a", "true": "b", "null": "c"}, id="keys are text"),
        pytest.param("16: a\n0x10: b\n", {"16": "b"}, id="one number in two spellings is not a duplicate"),
        pytest.param("a: 1\n---\nb: 2\n", {"a": 1}, id="the first document counts"),
        pytest.param("a: &x 1\n---\nb: *x\n", {"a": 1}, id="anchors hold for later documents"),
        pytest.param("", None, id="no document"),
        pytest.param("- |\n one\n- >\n two\n three\n", ["one\n", "two three\n"], id="block texts"),
        pytest.param(
            "a: {x:y, b: c:d}\n", {"a": {"x": "y", "b": "c:d"}}, id="a colon parts key and value in braces"
        ),
        pytest.param("a: {x:y\n}\n", {"a": {"x": "y"}}, id="so it does before a line's end"),
        pytest.param("{x :1, y:'2', z:\"3\"}\n", {"x": 1, "y": "2", "z": "3"}, id="and before quotes"),
        pytest.param("{http://x}\n", {"http://x": None}, id="but not in an address"),
        pytest.param("{'x:y'}\n", {"x:y": None}, id="nor in quotes"),
        pytest.param("a: &x [1]\nb: *x\n", {"a": [1], "b": [1]}, id="an alias"),
        pytest.param("a: &a\n  b: *a\n", {"a": {"b": None}}, id="an alias inside its own anchor"),
        pytest.param("&k a: 1\nb: *k\n", {"a": 1, "b": "a"}, id="an anchor on a key"),
        pytest.param("a: !python/object:os.system x\n", {"a": "x"}, id="unknown tags mean nothing"),
        pytest.param("\ufeffa: 1\n", {"a": 1}, id="a byte order mark is not a part of the first key"),
        pytest.param(
            '"\\x1b": "\\x85\\u2028"\n',
            {"\x1b": "\x85\u2028"},
            id="escapes of characters that are not allowed",
        ),
        pytest.param("a: 'x\ty'\n", {"a": "x\ty"}, id="a tab within text"),
        pytest.param("a: |-\n  x \n  y  \nb: 'z '\n", {"a": "x \ny", "b": "z "}, id="spaces at a text's end"),
    ],
)
def test_a_document_is_read(text: str, value: object) -> None:
    assert decode_yaml(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("<<: *x\n  k: mine", {"k": "mine"}, id="a key after it wins"),
        pytest.param("k: mine\n  <<: *x", {"k": 1}, id="a key before it loses"),
        pytest.param("<<: [*x, {l: 2}]", {"k": 1, "l": 2}, id="a list of mappings"),
        pytest.param("'<<': *x", {"<<": {"k": 1}}, id="in quotes it is a key like any other"),
    ],
)
def test_a_merge_key_applies_at_its_position(text: str, value: object) -> None:
    read = decode_yaml(f"a: &x {{k: 1}}\nb:\n  {text}\n")

    assert read == {"a": {"k": 1}, "b": value}


def test_a_change_to_an_aliased_value_leaves_the_other_alone() -> None:
    read = decode_yaml("a: &x {l: [1]}\nb: *x\n")
    assert isinstance(read, dict)

    read["b"]["l"].append(2)

    assert read["a"] == {"l": [1]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(
            "a:\n\tb: 1\n", "f.yaml:2:1: a tab cannot be used for indentation: use spaces", id="tab"
        ),
        pytest.param(
            "a: 1\nb:\n  c: 1\n  d: 2\n  'c': 3\n",
            "f.yaml:5:3: the key `c` is a duplicate; it is first used at line 3, column 3",
            id="duplicate key",
        ),
        pytest.param(
            "a: 'x\nb: 1\n", "f.yaml:1:4: the quotes that open here are not closed", id="quotes not closed"
        ),
        pytest.param(
            "a:\n\t\n  b: 1\n", "f.yaml:2:1: a tab cannot be used for indentation: use spaces", id="tab alone"
        ),
        pytest.param(
            "-\ta: 1\n  b: 2\n",
            "f.yaml:1:2: a tab is not allowed here: use spaces",
            id="item",
        ),
        pytest.param("a: @x\n", "f.yaml:1:4: text cannot begin with `@`: put it in quotes", id="reserved"),
        pytest.param(
            "a: {{ lookup('x') }}\n",
            "f.yaml:1:5: a key must be text; text that begins with `{{` or `{` needs quotes",
            id="expression without quotes",
        ),
        pytest.param(
            "a: ${ x ? 'y' : 'z' }\n",
            "f.yaml:1:15: `: ` is not allowed here: put the value in quotes, or fix the indentation; "
            "put a value that contains an expression in quotes",
            id="ternary without quotes",
        ),
        pytest.param(
            "a: 1\n b: 2\n",
            "f.yaml:2:3: `: ` is not allowed here: put the value in quotes, or fix the indentation",
            id="indentation too deep",
        ),
        pytest.param(
            "a:\n- b\nc: [1,\nd: 2\n",
            "f.yaml:3:4: the list that opens with `[` is not closed, or a comma is missing",
            id="bracket not closed",
        ),
        pytest.param(
            "a: 1\n---\nb: 1\nb: 2\n",
            "f.yaml:4:1: the key `b` is a duplicate; it is first used at line 3, column 1",
            id="duplicate key in a later document",
        ),
        pytest.param(
            "a: 1\n---\nb: *x\n",
            "f.yaml:3:4: there is no anchor `&x` before this alias",
            id="unknown alias in a later document",
        ),
        pytest.param(
            "a: 1\n---\nb: ]\n",
            "f.yaml:3:4: a value is expected here; text that begins with this character needs quotes",
            id="broken later document",
        ),
        pytest.param("a: *x\n", "f.yaml:1:4: there is no anchor `&x` before this alias", id="unknown alias"),
        pytest.param(
            "b:\n  <<: 1\n",
            "f.yaml:2:7: `<<` requires a mapping, or a list of mappings",
            id="merge of a number",
        ),
        pytest.param(
            "a: !!str [1]\n", "f.yaml:1:4: the tag !!str needs a single value, not a list", id="tag"
        ),
        pytest.param(
            "a: !!int x\n",
            "f.yaml:1:4: the tag does not fit: 'x' is not a whole number of at most 64 bits",
            id="tag that does not fit",
        ),
        pytest.param(
            "a: \x00\n",
            "f.yaml:1:4: this is not a text file: it contains a NUL character; is it UTF-16?",
            id="NUL",
        ),
        pytest.param(
            "l:\n  - %d\n", "f.yaml:2:5: text cannot begin with `%`: put it in quotes", id="percent sign"
        ),
        pytest.param(
            "a: [::1]\n",
            "f.yaml:1:5: a value is expected here; text that begins with this character needs quotes",
            id="colon in front",
        ),
        pytest.param(
            "{a: 1, x:}\n", "f.yaml:1:9: a `:` inside of `{ }` needs a space after it", id="colon behind"
        ),
        pytest.param(
            "a: ?\n", "f.yaml:1:4: `?` is not allowed here: put the value in quotes", id="question mark"
        ),
        pytest.param(
            "a: 1\n...\nb: 2\n",
            "f.yaml:3:1: the document has ended before this: fix the indentation, or begin another document with `---`",
            id="after the end",
        ),
        pytest.param(
            'a: "\\ud83d\\ude00"\n',
            "f.yaml:1:7: this escape is not a character; write the character itself, not a pair of \\u escapes",
            id="surrogate pair",
        ),
        pytest.param(
            "a: 1\nb: é\x1b[1m\n",
            'f.yaml:2:5: the character U+001B is not allowed: write it as "\\x1b", in double quotes',
            id="control character",
        ),
        pytest.param(
            "a: b # x\u2028c: d\n",
            'f.yaml:1:9: the character U+2028 is not allowed: write it as "\\u2028", in double quotes',
            id="Unicode's line break",
        ),
        pytest.param(
            "a: |\n\tx\n", "f.yaml:2:1: a tab cannot be used for indentation: use spaces", id="tab in block"
        ),
        pytest.param("a: '\ud800'\n", "f.yaml:1: the text contains half a surrogate pair", id="half a pair"),
    ],
)
def test_an_error_names_place_and_remedy(text: str, said: str) -> None:
    with pytest.raises(DocumentError) as caught:
        decode_yaml(text, "f.yaml")

    assert str(caught.value) == said


def test_bytes_that_are_not_utf_8_are_refused_with_their_line() -> None:
    with pytest.raises(DocumentError) as caught:
        decode_yaml(b"a: 1\nb: \xff\n", "f.yaml")

    assert str(caught.value) == "f.yaml:2: byte 0xff is not UTF-8: save the file as UTF-8"


def test_nesting_has_an_end() -> None:
    assert decode_yaml("[" * MAX_DEPTH + "]" * MAX_DEPTH) is not None
    with pytest.raises(DocumentError, match="nested deeper"):
        decode_yaml("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))


def test_aliases_of_a_long_text_do_not_grow_without_end() -> None:
    text = f'a: &a "{"x" * 1_000_000}"\nb: &b [{", ".join(["*a"] * 60)}]\n'

    assert len(decode_yaml(text, "f.yaml")["b"]) == 60  # type: ignore[index]
    with pytest.raises(DocumentError, match=f"aliases add more than {MAX_ALIASED:,} values"):
        decode_yaml(f"{text}c: *b\n", "f.yaml")


@pytest.mark.parametrize(("lists", "fits"), [(99, True), (100, False), (1300, False)])
def test_aliases_of_aliases_nest_no_deeper_than_anything_else(lists: int, fits: bool) -> None:
    """The mapping around them is a level too."""
    text = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, lists))

    if fits:
        assert len(decode_yaml(text, "f.yaml")) == lists  # type: ignore[arg-type]
        return
    with pytest.raises(DocumentError, match=f"f.yaml:.*: nested deeper than {MAX_DEPTH} levels by aliases"):
        decode_yaml(text, "f.yaml")


def test_aliases_of_aliases_do_not_grow_without_end() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]

    with pytest.raises(DocumentError, match=f"aliases add more than {MAX_ALIASED:,} values"):
        decode_yaml("\n".join(lines))


def test_garbage_collection_is_left_as_it_was() -> None:
    decode_yaml("a: 1")
    with pytest.raises(DocumentError):
        decode_yaml("a: [")

    assert gc.isenabled()


@given(st.text(alphabet=" \t\n:-?[]{},&*!|>'\"%@`#ab<0~\\.ü\u2028", max_size=40))
def test_no_text_leaves_the_error_tree(text: str) -> None:
    try:
        value = decode_yaml(text, "f.yaml")
    except DocumentError:
        return

    assert value is None or isinstance(value, (str, int, float, bool, list, dict))


def test_an_alias_without_a_value_in_braces_does_not_crash() -> None:
    assert decode_yaml("a: &x k\nb: {*x }\n") == {"a": "k", "b": {"k": None}}
