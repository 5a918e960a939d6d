"""What somebody else wrote."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ccm_agent.model.foreign import Moment, decode_foreign


class Told(msgspec.Struct):
    """A thing with a time."""

    time: Moment | None = None


@pytest.mark.parametrize("kind", [Told, dict[str, Any]])
def test_depth_is_an_error_like_any_other(kind: type) -> None:
    body = b'{"new":' + b"[" * 2000 + b"]" * 2000 + b"}"

    with pytest.raises(msgspec.DecodeError, match="nested too deeply"):
        decode_foreign(body, kind)


def test_a_time_without_a_zone_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError, match="timezone"):
        decode_foreign(b'{"time":"2030-01-01T00:00:00"}', Told)
