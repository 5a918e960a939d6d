"""The search for a secret value: it finds each form that a value may have."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from pathlib import Path

import pytest

from tests.support.secret_search import Needle

VALUE = "Kf9wQ2vLx7_plain~?"


@pytest.mark.parametrize("before", ["", "a", "ab", "abc"])
def test_a_value_is_found_as_it_is_encoded_and_compressed(before: str) -> None:
    raw, needle = f"{before}{VALUE} and more".encode(), Needle(VALUE)

    for data in (raw, raw.hex().encode(), base64.b64encode(raw), base64.urlsafe_b64encode(raw)):
        assert needle.is_in(data)
        assert needle.is_in(b"\0x\x9c" + gzip.compress(data))
        assert needle.is_in(b"block" + zlib.compress(data) + b"rest")
        assert needle.is_in(json.dumps({"body": data.decode()}))


def test_another_value_is_not_found(tmp_path: Path) -> None:
    needle = Needle(VALUE)
    (tmp_path / "with").write_bytes(gzip.compress(VALUE.encode()))
    (tmp_path / "without").write_text("Kf9wQ2vLx7_plaim~?")

    assert not needle.is_in(gzip.compress(b"Kf9wQ2vLx7_plaim~?"))
    assert needle.files(tmp_path) == [f"{tmp_path.name}/with"]
