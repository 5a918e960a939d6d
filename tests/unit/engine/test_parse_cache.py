from typing import Any, cast

import pytest

from ccm_agent.engine.parse_cache import ParseCache
from ccm_agent.model import codec
from ccm_agent.model.errors import DocumentError

TEXT = "a: [1, 2.5, yes, null, 0o17, 2026-11-21, 12345678901234567890123]\nb: &b {c: x}\nd: *b\n"


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were really parsed."""
    found: list[str] = []
    real = codec.decode_manifest

    def decode(text: str, source: str = "") -> object:
        found.append(text)
        return real(text, source)

    monkeypatch.setattr(codec, "decode_manifest", decode)
    return found


def test_a_text_is_parsed_once_and_gives_the_same_values_each_time(parsed: list[str]) -> None:
    documents = ParseCache()

    first, second = documents.read(TEXT, "a.yaml"), documents.read(TEXT, "b.yaml")

    assert repr(first) == repr(second)
    assert parsed == [TEXT]


def test_callers_get_their_own_copy_of_the_values(parsed: list[str]) -> None:
    documents = ParseCache()
    first = cast("Any", documents.read(TEXT, "a.yaml"))
    first["b"]["c"] = "other"
    first["a"].clear()

    assert documents.read(TEXT, "a.yaml") == codec.decode_document(TEXT, "a.yaml")


def test_an_unreadable_document_is_an_error_each_time(parsed: list[str]) -> None:
    documents = ParseCache()
    for source in ("a.yaml", "b.yaml"):
        with pytest.raises(DocumentError, match=source):
            documents.read("a: [", source)
    assert len(parsed) == 2


def test_the_least_recently_used_entry_is_dropped_first(parsed: list[str]) -> None:
    texts = [f"{name}: {'x' * 1000}" for name in "abc"]
    documents = ParseCache(limit_bytes=5000)
    for text in (texts[0], texts[1], texts[0], texts[2]):
        documents.read(text, "")
    parsed.clear()

    documents.read(texts[0], "")
    documents.read(texts[1], "")

    assert parsed == [texts[1]]
