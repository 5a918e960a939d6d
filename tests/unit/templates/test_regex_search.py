import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccm_agent.templates import regex_search
from ccm_agent.templates.regex import compile_pattern
from ccm_agent.templates.regex_parser import PatternError
from ccm_agent.templates.regex_search import Searcher, SearchError, compile_searcher


def found(pattern: str, text: str) -> str | None:
    span = Searcher(pattern).find(text)
    return None if span is None else text[span[0] : span[1]]


@pytest.mark.parametrize(
    ("pattern", "text", "want"),
    [
        pytest.param("a|ab", "ab", "a", id="the first alternative wins, not the longest"),
        pytest.param("a+", "baac", "aa", id="greedy takes all"),
        pytest.param("a+?", "baac", "a", id="lazy takes one"),
        pytest.param("(?U)a+", "baac", "a", id="U swaps greedy and lazy"),
        pytest.param("(?i)É", "é", "é", id="case is folded beyond ASCII"),
        pytest.param(r"\bb", "ab b", "b", id="a word's edge"),
        pytest.param("b*", "aab", "", id="an empty match is leftmost"),
        pytest.param("x", "aab", None, id="no match"),
        pytest.param("a$", "a\n", None, id="$ is the end of the text"),
        pytest.param("(?m)a$", "a\nb", "a", id="m makes it the end of a line"),
    ],
)
def test_the_leftmost_match_is_found(pattern: str, text: str, want: str | None) -> None:
    assert found(pattern, text) == want


def test_groups_say_what_they_took() -> None:
    searcher = Searcher(r"(\w+)-(?P<number>\d+)?")

    assert searcher.find("x ab-12 c-") == (2, 7, 2, 4, 5, 7)
    assert searcher.find("c-") == (0, 2, 0, 1, -1, -1)
    assert searcher.names == {"number": 2}


def test_an_empty_match_right_behind_a_match_is_none() -> None:
    assert list(Searcher("b*").find_all("abc")) == [(0, 0), (1, 2), (3, 3)]


@pytest.mark.parametrize(
    ("pattern", "text", "count", "parts"),
    [
        (",", "a,b,c", -1, ["a", "b", "c"]),
        (",", "a,b,c", 2, ["a", "b,c"]),
        (",", "", -1, [""]),
        ("", "ab", -1, ["a", "b"]),
        (",", ",a,", -1, ["", "a", ""]),
    ],
)
def test_text_is_split_between_matches(pattern: str, text: str, count: int, parts: list[str]) -> None:
    assert Searcher(pattern).split(text, count) == parts


def test_every_match_is_replaced() -> None:
    text = "pl pool"

    assert Searcher("p(o*)l").replace(text, lambda span: f"<{text[span[2] : span[3]]}>", 100) == "<> <oo>"


def test_a_pattern_that_backtracking_would_not_end_is_quick() -> None:
    assert found("(a+)+$", "a" * 5_000 + "b") is None


def test_work_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regex_search, "WORK_MAX", 20_000)

    with pytest.raises(SearchError, match="takes too long"):
        list(Searcher("(?:a?){300}b").find_all("a" * 1_000_000))


def test_a_result_that_is_too_long_is_refused() -> None:
    with pytest.raises(SearchError, match="too long"):
        Searcher("a").replace("a" * 100, lambda _span: "x" * 100, 1_000)


@settings(max_examples=300, deadline=None)
@given(st.text("ab|()*+?[]^$.\\dw{1,2}-", max_size=12), st.text("ab1 -\n", max_size=12))
def test_searching_and_matching_agree(pattern: str, text: str) -> None:
    try:
        matches = compile_pattern(pattern).matches(text)
    except PatternError:
        with pytest.raises(PatternError):
            compile_searcher(pattern)
        return

    span = compile_searcher(pattern).find(text)

    assert (span is not None) == matches
    assert span is None or 0 <= span[0] <= span[1] <= len(text)
