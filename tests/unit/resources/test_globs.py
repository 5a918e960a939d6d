"""Globs, by the examples of Go's own tests and by what would be slow."""

import pytest

from ccm_agent.model.errors import PropertyError
from ccm_agent.resources.globs import compile_glob


# Source: go1.24 src/path/filepath/match_test.go, those without a slash.
@pytest.mark.parametrize(
    ("glob", "name", "matches"),
    [
        ("abc", "abc", True),
        ("*", "abc", True),
        ("*c", "abc", True),
        ("a*", "a", True),
        ("a*", "abc", True),
        ("a*b?c*x", "abxbbxdbxebxczzx", True),
        ("a*b?c*x", "abxbbxdbxebxczzy", False),
        ("ab[c]", "abc", True),
        ("ab[b-d]", "abc", True),
        ("ab[e-g]", "abc", False),
        ("ab[^c]", "abc", False),
        ("ab[^b-d]", "abc", False),
        ("ab[^e-g]", "abc", True),
        ("a\\*b", "a*b", True),
        ("a\\*b", "ab", False),
        ("a?b", "a☺b", True),
        ("a[^a]b", "a☺b", True),
        ("a???b", "a☺b", False),
        ("a[^a][^a][^a]b", "a☺b", False),
        ("[a-ζ]*", "α", True),
        ("*[a-ζ]", "A", False),
        ("[\\]a]", "]", True),
        ("[\\-]", "-", True),
        ("[x\\-]", "x", True),
        ("[x\\-]", "-", True),
        ("[x\\-]", "z", False),
        ("[\\-x]", "x", True),
        ("[\\-x]", "-", True),
        ("[\\-x]", "a", False),
        ("*x", "xxx", True),
        ("", "", True),
        ("", "a", False),
        ("[z-a]", "m", False),
        ("[^z-a]", "m", True),
        ("*.conf", ".conf", True),
        ("[ab]?.c", ".a.c", False),
        ("a*c", "a\nc", True),
        ("a.c", "abc", False),
        ("**a**", "bab", True),
    ],
)
def test_a_glob_matches_as_in_go(glob: str, name: str, matches: bool) -> None:
    assert bool(compile_glob(glob, "post").fullmatch(name)) is matches


@pytest.mark.parametrize(
    "glob", ["[", "[^", "[^bc", "a[", "[]a]", "[-]", "[x-]", "[-x]", "[a-b-c]", "a\\", "[a-"]
)
def test_an_invalid_glob_is_refused_for_any_name(glob: str) -> None:
    with pytest.raises(PropertyError, match="is not a glob"):
        compile_glob(glob, "post")


def test_a_glob_of_many_stars_is_answered_at_once() -> None:
    glob = "*a" * 60 + "b"

    assert compile_glob(glob, "post").fullmatch("a" * 255) is None
