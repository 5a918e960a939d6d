"""Formatting changes the layout of YAML and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.model.codec import decode_yaml
from ccm_agent.model.errors import DocumentError
from ccm_agent.model.formats.yaml_format import format_yaml

TOP = Path(__file__).parents[3]


def formatted(text: str) -> str:
    new = format_yaml(text, "m.yaml")
    assert format_yaml(new) == new
    return new


@pytest.mark.parametrize(
    ("text", "new"),
    [
        pytest.param(
            "a:\n- b\n-   c: 1\n    d: 2\n", "a:\n  - b\n  - c: 1\n    d: 2\n", id="lists below their key"
        ),
        pytest.param("a:\n      b:\n         c: 1\n", "a:\n  b:\n    c: 1\n", id="deep indentation"),
        pytest.param("a:    1   \nb:\t2\n", "a: 1\nb: 2\n", id="gaps and ends of lines"),
        pytest.param("\n\na: 1\n\n\n\nb: 2\n\n", "a: 1\n\nb: 2\n", id="empty lines"),
        pytest.param("a: 1\r\nb: 2", "a: 1\nb: 2\n", id="line ends"),
        pytest.param("- - a\n  -   b\n", "- - a\n  - b\n", id="a list in a list"),
        pytest.param("-\n    a: 1\n", "-\n  a: 1\n", id="a mapping below its dash"),
        pytest.param("a: &x\n    b: 1\nc:   *x\n", "a: &x\n  b: 1\nc: *x\n", id="anchors"),
        pytest.param(
            "a: |\n      x\n        y\n\n\n\nb: 1\n", "a: |\n  x\n    y\n\nb: 1\n", id="a block of text"
        ),
        pytest.param(
            "a:\n- |+\n x\n\n\n", "a:\n  - |+\n    x\n\n\n", id="a block that keeps its empty lines"
        ),
        pytest.param(
            "a:\n    b: |2\n          x\n        y\n",
            "a:\n  b: |2\n        x\n      y\n",
            id="a block with its indentation",
        ),
        pytest.param('a:\n    b: "x \n       y"\n', 'a:\n  b: "x \n     y"\n', id="a long text in quotes"),
        pytest.param(
            "a:\n    b: {c: 1,\n        d:   2}\n", "a:\n  b: {c: 1,\n      d:   2}\n", id="a flow collection"
        ),
        pytest.param("a:   1\n---\nb:\n- 1\n", "a: 1\n---\nb:\n  - 1\n", id="several documents"),
        pytest.param('{"a":   1}\n', '{"a":   1}\n', id="JSON"),
        pytest.param("   \n# only\n", "# only\n", id="only a comment"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_the_layout_is_one(text: str, new: str) -> None:
    assert formatted(text) == new


def test_comments_stay_with_their_keys() -> None:
    text = """\
# the whole
a:   # the value
# below a key
- b: 1
  # the end of the item
  # still
# the end of a
c:
      # before d
      d: [1,
        # in the list
        2]
      # the end of c
   # between
e: |
  # text
# the end
"""

    assert (
        formatted(text)
        == """\
# the whole
a:   # the value
  # below a key
  - b: 1
    # the end of the item
    # still
# the end of a
c:
  # before d
  d: [1,
    # in the list
    2]
  # the end of c
# between
e: |
  # text
# the end
"""
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("? a\n: b\n", "m.yaml:1:1: a key with `?` cannot be formatted"),
        ("a: [1\n", "m.yaml:1:4: the list that opens with `[` is not closed, or a comma is missing"),
    ],
)
def test_a_document_that_cannot_be_formatted_is_an_error(text: str, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        format_yaml(text, "m.yaml")

    assert str(caught.value) == message


@pytest.mark.parametrize("path", sorted(TOP.glob("deploy/examples/**/*.yaml")), ids=lambda path: path.name)
def test_manifests_of_the_project_are_formatted(path: Path) -> None:
    assert formatted(path.read_text()) == path.read_text()


TEXTS = st.text("ab #:-\n'\"{}|>é", max_size=12)
VALUES = st.recursive(
    st.one_of(TEXTS, st.integers(-99, 99), st.booleans(), st.none()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc- #", min_size=1, max_size=4), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


@given(VALUES, st.integers(2, 6), st.booleans(), st.sampled_from([None, "|", ">", '"']), st.data())
def test_any_document_means_the_same_and_keeps_its_comments(
    value: Any, indent: int, in_list: bool, style: str | None, data: st.DataObject
) -> None:
    text = yaml.safe_dump(
        {"a": value, "b": [value]} if in_list else value,
        indent=indent,
        default_style=style,
        allow_unicode=True,
        width=20,
    )
    comments = data.draw(st.integers(0, 3))
    text = "# x\n" * comments + text + "# end\n" * comments if "..." not in text else text

    new = format_yaml(text)

    assert decode_yaml(new) == decode_yaml(text)
    assert new.count("#") == text.count("#")
    assert format_yaml(new) == new
