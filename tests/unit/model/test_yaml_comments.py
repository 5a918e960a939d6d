"""Which comment belongs to which key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.model.codec import decode_yaml, key_comments
from ccm_agent.model.errors import DocumentError


@pytest.mark.parametrize(
    ("text", "owners"),
    [
        pytest.param("a: 1 # x\nb: 2\n", {"x": "a"}, id="beside its value"),
        pytest.param("a: # x\n  b: 1\n", {"x": "a"}, id="beside a key that holds more"),
        pytest.param("a: 1\n# x\n\n# y\nb: 2\n", {"x": "b", "y": "b"}, id="above a key, blank lines or not"),
        pytest.param("a:\n# x\n  b: 1\n", {"x": "a.b"}, id="above the first key of a mapping"),
        pytest.param("m:\n  a: 1\n  b: 2\n  # x\nn: 1\n", {"x": "m.b"}, id="below the last key, as far in"),
        pytest.param("m:\n  a: 1\n# x\nn: 1\n", {"x": "n"}, id="below the last key, further out"),
        pytest.param("m:\n  a: 1\n # x\n", {"x": "m"}, id="below everything, between two depths"),
        pytest.param(
            "t: | # x\n  text\n  # text too\n# y\nb: 1\n", {"x": "t", "y": "b"}, id="around a block text"
        ),
        pytest.param("l:\n- 1 # no\n# x\nb: 1\n", {"x": "b"}, id="below a list at the key's own indentation"),
        pytest.param(
            "l:\n  - 1\n  # no\n# x\nb: 1\n",
            {"x": "b"},
            id="a comment of a list item does not belong to a key",
        ),
        pytest.param("l:\n  - a: 1 # no\n    # no\n    b: 2\n", {}, id="nor does a key's inside a list"),
        pytest.param("m: {\n  # no\n  a: 1\n} # x\n", {"x": "m"}, id="nor one inside braces"),
        pytest.param("a: 'x # y' # z\nb: x#y\n", {"z": "a"}, id="what is inside text is no comment"),
        pytest.param("a: &v 1 # x\nb: *v # y\n", {"x": "a", "y": "b"}, id="beside anchor and alias"),
        pytest.param("a: 1\n---\n# no\nb: 1\n", {}, id="a later document has none"),
        pytest.param("a: 1\r\n# x\r\nb: 2\r\n", {"x": "b"}, id="with carriage returns"),
        pytest.param(
            'k:\n  "%a": 1 # %x\n  "b\\u2028c": 2 # y\n',
            {"%x": "k.%a", "y": "k.b\u2028c"},
            id="odd characters in a key",
        ),
        pytest.param("# only\n", {}, id="without a document"),
        pytest.param("0x10: 1 # x\n", {"x": "16"}, id="keys are the ones that the reader gives"),
    ],
)
def test_a_comment_belongs_to_the_key_beside_or_below_it(text: str, owners: dict[str, str]) -> None:
    found = key_comments(text)

    assert {one.text: ".".join(one.path) for one in found} == owners


def test_a_comment_has_its_line() -> None:
    assert [(one.text, one.line) for one in key_comments("# p\na: 1\n\n# q\n# r\nb: 2 # s\n")] == [
        ("p", 1),
        ("q", 4),
        ("r", 5),
        ("s", 6),
    ]


def test_a_text_that_is_nested_too_deeply_is_an_error() -> None:
    with pytest.raises(DocumentError, match="nested too deeply"):
        key_comments("a: " + "[" * 5000 + "]" * 5000)


@given(st.text(alphabet=" \n:-[]{},#|'\"ab", max_size=40))
def test_readable_documents_can_be_searched_for_comments(text: str) -> None:
    try:
        decode_yaml(text)
    except DocumentError:
        return

    assert all(one.path and text.split("\n")[one.line - 1].count("#") for one in key_comments(text))
