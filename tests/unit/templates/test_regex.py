"""RE2's patterns."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.templates.regex import PatternError, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("o+b", "foobar", True),
        ("^b", "a\nb", False),
        ("(?m)^b", "a\nb", True),
        ("a$", "a\n", False),
        ("(?m)a$", "a\n", True),
        (r"c\z", "abc", True),
        ("a.b", "a\nb", False),
        ("(?s)a.b", "a\nb", True),
        ("[^a]", "\n", True),
        (r"\bb", "a b", True),
        (r"\Bb", "ab", True),
        (r"^\d\w\s$", "1a ", True),
        (r"\d", "٣", False),
        (r"^[\D]$", "x", True),
        (r"^\pL\p{Greek}\P{Lu}$", "aΩb", True),
        ("[[:alpha:]][[:^digit:]]", "ab", True),
        (r"^\Qa.b\E$", "a.b", True),
        ("(?i)straße", "STRAßE", True),
        ("(?i)k", "\u212a", True),
        ("(?i)[^k]", "K", False),
        ("a(?i)b(?-i)c", "aBc", True),
        ("a(?i:b)c", "aBC", False),
        ("^a{2,3}$", "aaaa", False),
        ("^a{2,}$", "aaaa", True),
        ("a{,2}", "a{,2}", True),
        ("^(a|ab)(c|bcd)$", "abcd", True),
        ("^(a*)*$", "aaab", False),
        ("^(|a)+$", "aaa", True),
        ("^[]a-]+$", "]-a", True),
        (r"^[\x{1F600}\101]+$", "\U0001f600A", True),
        ("", "", True),
        ("^.$", "\udcff", True),
    ],
)
def test_patterns(pattern: str, text: str, matches: bool) -> None:
    assert compile_pattern(pattern).matches(text) is matches


@pytest.mark.parametrize(
    ("pattern", "wrong"),
    [
        ("a(", "a ( has no ) behind it"),
        ("a)", "a ) has no ( before it"),
        ("[a", "a [ has no ] behind it"),
        ("[z-a]", "the range z-a runs backwards"),
        ("*a", "nothing before it to repeat"),
        ("a**", "two repetitions stand behind each other"),
        ("a{1001}", "at most 1000"),
        ("a{3,2}", "least before most"),
        ("((a{100}){100}){100}", "too large"),
        ("a(?=b)", "it has no lookaround"),
        (r"(a)\1", "it has no backreferences"),
        (r"\Z", "is no escape of RE2"),
        ("a\\", "ends with a backslash"),
        (r"\p{Klingon}", "no class of characters"),
        ("[[:foo:]]", "no class of characters"),
        (r"\x{110000}", "is no character"),
        ("(" * 200 + ")" * 200, "nested more than"),
    ],
)
def test_what_is_no_pattern_says_why(pattern: str, wrong: str) -> None:
    with pytest.raises(PatternError, match=re.escape(wrong)):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(x+x+)+y", "^(([a-z])+.)+[A-Z]([a-z])+$"]
)
def test_no_pattern_takes_for_ever(pattern: str) -> None:
    assert compile_pattern(pattern).matches("a" * 30_000 + "!") is False


# Pieces that RE2 and Python's re read alike.
PIECES = [
    "a",
    "b",
    ".",
    "[ab]",
    "[^a]",
    "(a|b)",
    "(?:ab)",
    "a*",
    "b+",
    "a?",
    "(ab){1,2}",
    "a{2}",
    r"\d",
    "|",
    "(a*b)*",
]


@given(st.lists(st.sampled_from(PIECES), max_size=6).map("".join), st.text("ab1", max_size=8))
def test_patterns_that_python_knows_match_as_there(pattern: str, text: str) -> None:
    assert compile_pattern(pattern).matches(text) is (re.search(pattern, text) is not None)


@given(st.text(alphabet="ab()[]{}*+?|^$.\\-:,<>PiQE012pLx=! ", max_size=20), st.text(max_size=20))
def test_any_text_is_a_pattern_or_refused(pattern: str, text: str) -> None:
    try:
        compiled = compile_pattern(pattern)
    except PatternError:
        return
    compiled.matches(text)
