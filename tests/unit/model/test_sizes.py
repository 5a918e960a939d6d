"""Sizes in words."""

from __future__ import annotations

import pytest

from ccm_agent.model.errors import DocumentError
from ccm_agent.model.formats.sizes import parse_size


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("1048576", 1 << 20),
        ("12B", 12),
        ("1K", 1024),
        ("1kB", 1000),
        ("500MiB", 500 << 20),
        ("2 GiB", 2 << 30),
        ("1.5m", 3 << 19),
        ("1TB", 10**12),
    ],
)
def test_a_size_is_a_number_and_a_unit(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    "text", ["", "MiB", "-1", "1PiB", "1 iB", "1e9", "1,5M", "１M", "1M\n1M", "9" * 99, "."]
)
def test_anything_else_is_not_a_size(text: str) -> None:
    with pytest.raises(DocumentError, match="is not a size: write a number and a unit"):
        parse_size(text)
