"""What is written with escapes is read, and its place in the text that was given is known."""

from __future__ import annotations

import html
import json
import shlex
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.model.formats.escapes import views

ENCODERS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON with letters": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "JSON in JSON": lambda text: json.dumps(json.dumps(text)[1:-1])[1:-1],
    "a URL": lambda text: quote(text, safe=""),
    "a path of a URL": quote,
    "a form": quote_plus,
    "a URL in JSON": lambda text: json.dumps(quote_plus(text))[1:-1],
    "a shell's word": shlex.quote,
    "a shell's trace": lambda text: "'" + text.replace("'", "'\\''") + "'",
    "HTML": html.escape,
    "Python": repr,
    "YAML": lambda text: "'" + text.replace("'", "''") + "'",
    "CSV": lambda text: '"' + text.replace('"', '""') + '"',
}

TEXTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00\r\n\x85\u2028\u2029\t\x0b\x0c"),
    min_size=1,
    max_size=20,
)


def found(text: str, sought: str) -> list[str]:
    """The parts of a text in which something stands, as they are written there."""
    parts = []
    for view in views(text):
        at = view.text.find(sought)
        while at >= 0:
            begin, end = view.span(at, at + len(sought))
            parts.append(text[begin:end])
            at = view.text.find(sought, at + 1)
    return parts


@pytest.mark.parametrize("name", ENCODERS)
@given(
    text=TEXTS, before=st.sampled_from(["", "x=", "{", "a b: "]), after=st.sampled_from(["", "\n", "}", ";"])
)
def test_a_text_is_found_however_it_is_written(name: str, text: str, before: str, after: str) -> None:
    written = ENCODERS[name](text)

    parts = found(f"{before}{written}{after}", text)

    assert any(part in written for part in parts)


@pytest.mark.parametrize(
    ("written", "sought", "part"),
    [
        (r"x \"pa\\ss\" y", 'pa\\ss', r"pa\\ss"),
        (r"\ud83d\ude00!", "\U0001f600", r"\ud83d\ude00"),
        ("a=%C3%A9t%c3%A9&b", "été", "%C3%A9t%c3%A9"),
        ("a=%25C3%25A9", "é", "%25C3%25A9"),
        ("it'\"'\"'s", "it's", "it'\"'\"'s"),
        ("p&#x27;q&amp;r", "p'q&r", "p&#x27;q&amp;r"),
        ("aGVs\n  bG8=", "aGVsbG8=", "aGVs\n  bG8="),
        (r"caf\303\251", "caf\xc3\xa9", r"caf\303\251"),
    ],
)  # fmt: skip
def test_the_part_that_is_found_is_the_part_that_was_written(written: str, sought: str, part: str) -> None:
    assert part in found(written, sought)


def test_a_text_without_escapes_is_read_once() -> None:
    assert [view.text for view in views("nothing to see here")] == ["nothing to see here"]


def test_an_unknown_character_number_is_not_an_error() -> None:
    assert found("&#9999999; &#xFFFFFF;x", "x") != []


@given(st.text("\\u0'\"%&#x;+\na4f", max_size=60))
def test_no_text_breaks_reading(text: str) -> None:
    for view in views(text):
        for at in range(len(view.text)):
            begin, end = view.span(at, at + 1)
            assert 0 <= begin < end <= len(text)
