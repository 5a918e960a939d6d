"""The header by which an event names its place in its node's chain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.bus.chain import (
    LINK_LENGTH,
    NONE,
    Anchor,
    ChainPosition,
    anchor_of,
    anchor_text,
    link_of,
    new_chain_id,
    parse_place,
)
from ccm_agent.model.errors import ProtocolError

ID = new_chain_id()
LINK = link_of("subject", "header", b"body")


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(ChainPosition(chain=ID, number=1), id="the first event of a node"),
        pytest.param(ChainPosition(chain=ID, number=2, previous=LINK), id="an event of no run"),
        pytest.param(ChainPosition(chain=ID, number=2, previous=LINK, before=LINK), id="an event of a run"),
        pytest.param(
            ChainPosition(chain=ID, number=1, previous=anchor_text(new_chain_id(), 7, LINK), before=LINK),
            id="the first event of a further chain",
        ),
    ],
)
def test_a_place_is_read_back_from_its_header(place: ChainPosition) -> None:
    assert parse_place(place.header) == place


@pytest.mark.parametrize(
    "header",
    [
        pytest.param("", id="empty"),
        pytest.param(f"{ID}.0.{NONE}.{NONE}", id="number 0"),
        pytest.param(f"{ID}.01.{NONE}.{NONE}", id="a leading zero"),
        pytest.param(f"{ID}.2.{NONE}.{NONE}", id="a second event that follows nothing"),
        pytest.param(f"{ID}.1.{LINK}.{NONE}", id="a first event that follows another"),
        pytest.param(f"{ID}.2.{ID}~1~{LINK}.{NONE}", id="an anchor in a second event"),
        pytest.param(f"{ID}.1.{ID}~0~{LINK}.{NONE}", id="an anchor at number 0"),
        pytest.param(f"{ID}.{10**15}.{LINK}.{NONE}", id="a number that is out of range"),
        pytest.param(f"{ID}.2.{LINK}", id="a part is missing"),
        pytest.param(f"{ID}.2.{LINK}.{NONE}.{NONE}", id="a part too many"),
        pytest.param(f"{ID[1:]}.2.{LINK}.{NONE}", id="a short id"),
        pytest.param(f"{ID}.2.{LINK[1:]}.{NONE}", id="a short link"),
        pytest.param(f"{ID}.2.{LINK}.{NONE}\n", id="a line end"),
        pytest.param(f"{ID}.٢.{LINK}.{NONE}", id="a digit that is not ASCII"),
        pytest.param("x" * 100_000, id="long"),
    ],
)
def test_a_header_that_no_node_writes_is_refused(header: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_place(header)

    assert len(str(caught.value)) < 400


@given(st.text(max_size=200))
def test_any_text_is_a_place_that_is_written_the_same_way_or_is_refused(header: str) -> None:
    try:
        place = parse_place(header)
    except ProtocolError:
        return

    assert place.header == header


def test_an_anchor_is_read_back() -> None:
    place = ChainPosition(chain=ID, number=1, previous=anchor_text(ID, 41, LINK))

    assert anchor_of(place) == Anchor(chain=ID, number=41, link=LINK)
    assert anchor_of(ChainPosition(chain=ID, number=1)) is None
    assert anchor_text(ID, 0, NONE) == NONE


def test_a_link_is_another_for_another_subject_place_or_body() -> None:
    links = {
        link_of("subject", "header", b"body"),
        link_of("subjecT", "header", b"body"),
        link_of("subject", "headeR", b"body"),
        link_of("subject", "header", b"bodY"),
        link_of("subject\nheader", "", b"body"),
    }

    assert len(links) == 5
    assert {len(link) for link in links} == {LINK_LENGTH}
