"""Decoding of JSON that other programs wrote."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest

from ccm_agent.model.formats.untrusted_json import Moment, decode_foreign


class Told(msgspec.Struct):
    """A thing with a time."""

    time: Moment | None = None


@pytest.mark.parametrize("kind", [Told, dict[str, Any]])
def test_depth_is_an_error_like_any_other(kind: type) -> None:
    body = b'{"new":' + b"[" * 2000 + b"]" * 2000 + b"}"

    with pytest.raises(msgspec.DecodeError, match="nested too deeply"):
        decode_foreign(body, kind)


@pytest.mark.parametrize(
    ("body", "fits"),
    [
        pytest.param(b"[" * 100 + b"]" * 100, True, id="as deep as YAML may be"),
        pytest.param(b"[" * 101 + b"]" * 101, False, id="deeper, though the interpreter would read it"),
        pytest.param(b'{"a":' * 300 + b"1" + b"}" * 300, False, id="mappings"),
        pytest.param(b"[" + b"[{}]," * 300 + b"1]", True, id="wide"),
        pytest.param(b'["' + b"[{" * 300 + rb"\"[" + b'","]"]', True, id="brackets in texts"),
        pytest.param(b"[" * 101 + b'"' + b"]" * 101 + b'"' + b"]" * 101, False, id="and none to hide behind"),
    ],
)
def test_the_deepest_supported_nesting_is_read(body: bytes, fits: bool) -> None:
    """A reader of some hundred more would end in whoever goes through the values by recursion."""
    with contextlib.nullcontext() if fits else pytest.raises(msgspec.DecodeError, match="nested too deeply"):
        assert decode_foreign(body, Any) == msgspec.json.decode(body)


def test_a_time_without_a_zone_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError, match="timezone"):
        decode_foreign(b'{"time":"2030-01-01T00:00:00"}', Told)
