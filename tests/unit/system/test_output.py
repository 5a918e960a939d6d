import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.system import output
from ccm_agent.system.output import Lines, Tail

chunks = st.lists(st.binary(max_size=20))


@given(chunks, st.integers(0, 30))
def test_the_last_bytes_are_kept_and_the_rest_is_counted(parts: list[bytes], limit: int) -> None:
    tail = Tail(limit)

    for part in parts:
        tail.add(part)

    whole = b"".join(parts)
    assert tail.value() == whole[max(0, len(whole) - limit) :]
    assert tail.dropped_bytes == len(whole) - len(tail.value())


@given(st.lists(st.sampled_from([b"a", b"bc", b"\n", b"d\ne", b"\n\n", b"f\r\n"])))
def test_lines_do_not_depend_on_how_they_were_read(parts: list[bytes]) -> None:
    seen: list[str] = []
    lines = Lines(seen.extend)

    for part in parts:
        lines.add(part)
    lines.close()

    whole = b"".join(parts).decode()
    *ended, rest = whole.split("\n")
    assert seen == [line.removesuffix("\r") for line in ended] + ([rest] if rest else [])


def test_bytes_that_are_not_text_do_not_stop_a_line() -> None:
    seen: list[str] = []
    lines = Lines(seen.extend)

    lines.add(b"a\xffb\n")

    assert seen == ["a\N{REPLACEMENT CHARACTER}b"]


def test_a_line_without_end_is_handed_on_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "LINE_LIMIT_BYTES", 5)
    seen: list[str] = []
    lines = Lines(seen.extend)

    for part in (b"abc", b"def", b"g", b"h\n"):
        lines.add(part)

    assert seen == ["abcdef", "gh"]
