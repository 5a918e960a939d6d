"""Texts that hold bytes that are no UTF-8."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from ccm_agent.model.formats.json_text import encode_message, json_safe
from ccm_agent.model.wire import Disabled

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_invalid_utf_8_becomes_a_question_mark() -> None:
    assert json_safe(b"/media/caf\xe9 \xc3\xa9".decode(errors="surrogateescape")) == "/media/caf? é"


def test_any_text_can_be_reported() -> None:
    told = Disabled(since=NOW, why="a \udcff", by="é")
    facts = {"mounts": [("/\udcff", 1)], "\udcfe": None}

    assert msgspec.json.decode(encode_message(told), type=Disabled) == Disabled(since=NOW, why="a ?", by="é")
    assert encode_message(facts, order="sorted") == b'{"?":null,"mounts":[["/?",1]]}'


def test_valid_text_is_reported_unchanged() -> None:
    told = Disabled(since=NOW, why="é ✓")

    assert encode_message(told) == msgspec.json.encode(told)
