"""Regular expressions in RE2's syntax."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates import regex
from ccm_agent.templates.regex import PatternError, Spans, compile_pattern


def found(pattern: str, text: str) -> str | None:
    return next((text[slice(*spans[0])] for spans in compile_pattern(pattern).find_all(text)), None)


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
        (r"^\Q\C\E$", r"\C", True),
        (r"^\\C$", r"\C", True),
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
        ("a\0b", "xa\0b", True),
        ("^.$", "\udcff", True),
        ("^[^a]{2}$", "\udcff\ud800", True),
        (r"^\x{FFFD}$", "\udcff", True),
        (r"\B", "aéa", False),
        (r"a\Bb", "éab", True),
    ],
)
def test_patterns(pattern: str, text: str, matches: bool) -> None:
    assert compile_pattern(pattern).matches(text) is matches


@pytest.mark.parametrize(
    ("pattern", "wrong"),
    [
        ("a(", "missing )"),
        ("a)", "unexpected )"),
        ("x[a", "missing ]: `[a` at character 2"),
        ("[z-a]", "invalid character class range: `z-a` at character 2"),
        ("|*a", "no argument for repetition operator: `*` at character 2"),
        ("a**", "bad repetition operator: `**` at character 2; put the inner repetition in parentheses"),
        (
            "a{1001}",
            "invalid repetition size: `{1001}` at character 2; at most 1000 times, the smaller number first",
        ),
        (
            "a{3,2}",
            "invalid repetition size: `{3,2}` at character 2; at most 1000 times, the smaller number first",
        ),
        ("(?:x{999}y{999}z{999}){1,999}".replace("999", "9") * 20_000, "it is too large; repeat less"),
        (
            "a(?=b)",
            "invalid perl operator: `(?=` at character 2; RE2 has no lookaround, comments or atomic groups",
        ),
        (r"(a)\1", r"invalid escape sequence: `\1` at character 4; RE2 has no backreferences"),
        (r"a\C", r"invalid escape sequence: `\C` at character 2"),
        (r"\\\C", r"invalid escape sequence: `\C` at character 3"),
        ("a\\", "trailing \\"),
        (r"é\p{Klingon}", r"invalid character class range: `\p{Klingon}` at character 2"),
        ("[[:foo:]]", "invalid character class range: `[:foo:]` at character 2"),
        ("\udcff", "it is not UTF-8"),
    ],
)
def test_a_malformed_pattern_is_refused_with_reason_and_place(pattern: str, wrong: str) -> None:
    with pytest.raises(PatternError) as caught:
        compile_pattern(pattern)

    assert str(caught.value) == wrong


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(x+x+)+y", "^(([a-z])+.)+[A-Z]([a-z])+$"]
)
def test_a_pattern_that_keeps_a_backtracking_matcher_busy_is_quick(pattern: str) -> None:
    compiled = compile_pattern(pattern)

    assert compiled.matches("a" * 1_000_000 + "!") is False
    assert list(compiled.find_all("a" * 100_000 + "!")) == []


@pytest.mark.parametrize(
    ("pattern", "text", "want"),
    [
        pytest.param("a|ab", "ab", "a", id="the first alternative wins, not the longest"),
        pytest.param("a+", "baac", "aa", id="greedy takes all"),
        pytest.param("a+?", "baac", "a", id="lazy takes one"),
        pytest.param("(?U)a+", "baac", "a", id="U swaps greedy and lazy"),
        pytest.param("(?i)É", "é", "é", id="case is folded beyond ASCII"),
        pytest.param(r"\bb", "ab b", "b", id="a word boundary"),
        pytest.param("b*", "aab", "", id="an empty match is leftmost"),
        pytest.param("x", "aab", None, id="no match"),
        pytest.param("a$", "a\n", None, id="$ is the end of the text"),
        pytest.param("(?m)a$", "a\nb", "a", id="m makes it the end of a line"),
        pytest.param(r"\pL.", "\udcffé\udcfe", "é\udcfe", id="a byte that is not UTF-8 comes back"),
    ],
)
def test_the_leftmost_match_is_found(pattern: str, text: str, want: str | None) -> None:
    assert found(pattern, text) == want


def test_spans_say_where_each_group_is() -> None:
    pattern = compile_pattern(r"(\w+)-(?P<number>\d+)?")

    assert list(pattern.find_all("é ab-12 c-")) == [
        [(2, 7), (2, 4), (5, 7)],
        [(8, 10), (8, 9), (-1, -1)],
    ]
    assert pattern.names == {"number": 2}


@pytest.mark.parametrize(
    ("pattern", "text", "spans"),
    [
        ("b*", "abc", [(0, 0), (1, 2), (3, 3)]),
        ("", "é\udcff", [(0, 0), (1, 1), (2, 2)]),
        ("a*?", "aa", [(0, 0), (1, 1), (2, 2)]),
        ("^a", "aa", [(0, 1)]),
    ],
)
def test_an_empty_match_directly_behind_a_match_does_not_count(pattern: str, text: str, spans: Spans) -> None:
    assert [match[0] for match in compile_pattern(pattern).find_all(text)] == spans


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        ("^a", [0, 2, 5]),
        ("b$", [1, 2, 5]),
        ("^$", [3]),
        (r"\s", [4]),
        ("[^a]", [1, 2, 4, 5]),
        (r"a\W", []),
        ("(?s)a.b", [5]),
        ("(?i)A", [0, 2, 5]),
        (r"\Aa\z", [0]),
        ("(?-s)é|a.b", [4, 5]),
        ("", [0, 1, 2, 3, 4, 5]),
        ("\n", []),
    ],
)
def test_a_pattern_matches_each_line_by_itself(pattern: str, lines: list[int]) -> None:
    text = ["a", "b", "ab", "", "é é", "acb"]

    assert compile_pattern(pattern).matching_lines("\n".join(text)) == lines
    assert [number for number, line in enumerate(text) if compile_pattern(pattern).matches(line)] == lines


def test_lines_of_a_long_text_are_numbered() -> None:
    text = "\n".join(f"line {number}" for number in range(50_000))

    assert compile_pattern("^line (0|9999|49999)$").matching_lines(text) == [0, 9999, 49999]


def test_a_search_of_lines_that_could_take_minutes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TemplateError, match="takes too long"):
        compile_pattern("(?:a?){1000}(?:b?){1000}[^ab]").matching_lines("ab" * 1_000_000)

    monkeypatch.setattr(regex, "SEARCH_S", 0.0)
    with pytest.raises(TemplateError, match="takes too long"):
        compile_pattern("a").matching_lines("a\n" * 100_000)


def test_a_search_that_could_take_minutes_is_refused() -> None:
    pattern = compile_pattern("(?:a?){1000}(?:b?){1000}[^ab]")

    assert pattern.matches("ab" * 1_000) is False
    with pytest.raises(TemplateError, match="the pattern takes too long on this text"):
        pattern.matches("ab" * 1_000_000)
    with pytest.raises(TemplateError, match="the pattern takes too long on this text"):
        list(pattern.find_all("ab" * 1_000_000))


def test_a_repeated_unicode_class_counts_by_characters() -> None:
    assert compile_pattern(r"^\pL{1,255}$").matches("é" * 20_000) is False


def test_many_matches_take_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regex, "SEARCH_S", 0.0)

    with pytest.raises(TemplateError, match="takes too long"):
        list(compile_pattern("a.*z|a").find_all("a" * 1_000))


def test_the_library_is_imported_with_the_first_pattern() -> None:
    script = (
        "import sys; from ccm_agent.templates.regex import compile_pattern; assert 're2' not in sys.modules; "
        "compile_pattern('a'); assert 're2' in sys.modules"
    )

    subprocess.run([sys.executable, "-c", script], check=True)


# Parts that RE2 and Python's re read alike.
PARTS = [
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


@given(st.lists(st.sampled_from(PARTS), max_size=6).map("".join), st.text("ab1é", max_size=8))
def test_patterns_that_python_knows_match_as_there(pattern: str, text: str) -> None:
    match = re.search(pattern, text)

    assert compile_pattern(pattern).matches(text) is (match is not None)
    assert found(pattern, text) == (match and match[0])


@given(st.text(alphabet="ab()[]{}*+?|^$.\\-:,<>PiQE012pLxC=! é", max_size=20), st.text(max_size=20))
def test_any_text_is_a_pattern_or_refused(pattern: str, text: str) -> None:
    try:
        compiled = compile_pattern(pattern)
    except PatternError:
        return
    spans = list(compiled.find_all(text))
    assert compiled.matches(text) is bool(spans)
    assert all(0 <= match[0][0] <= match[0][1] <= len(text) for match in spans)
