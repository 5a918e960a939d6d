"""Patterns that are compiled at their first use."""

from __future__ import annotations

import re

import pytest

from ccm_agent.model.formats.patterns import lazy_pattern


def test_it_matches_as_a_compiled_pattern_does() -> None:
    pattern = lazy_pattern(r"^(?P<key>[a-z]+)=", re.MULTILINE | re.IGNORECASE)
    text = "a=1\nB=2"

    assert [found["key"] for found in pattern.finditer(text)] == ["a", "B"]
    assert pattern.sub("x", text) == "x1\nx2"
    assert (pattern.pattern, pattern.flags) == (r"^(?P<key>[a-z]+)=", re.compile("", re.M | re.I).flags)


def test_it_is_compiled_at_the_first_use() -> None:
    pattern = lazy_pattern("(")

    with pytest.raises(re.error):
        pattern.match("")
