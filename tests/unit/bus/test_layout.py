"""The table of streams, as data."""

from __future__ import annotations

import pytest

from ccm_agent.bus.layout import Layout, plan, registration_config
from ccm_agent.bus.subjects import subject_matches


def streams(layout: Layout | None = None, *, with_schedules: bool = True) -> dict:
    """Configurations by stream name."""
    return {
        wanted.config["name"]: wanted.config
        for wanted in plan(layout or Layout(), with_schedules=with_schedules)
    }


def test_every_stream_can_be_read_without_a_consumer() -> None:
    assert all(config["allow_direct"] for config in streams().values())


def test_no_subject_belongs_to_two_streams() -> None:
    taken = [subject for config in streams().values() for subject in config["subjects"]]

    clashes = [
        (one, other)
        for one in taken
        for other in taken
        if one != other and subject_matches(one, other.replace(">", "x").replace("*", "x"))
    ]

    assert clashes == []


def test_every_bucket_pokes_with_headers_only() -> None:
    pokes = {name: config["republish"] for name, config in streams().items() if name.startswith("KV_")}

    assert len(pokes) == 5
    assert all(
        poke
        == {
            "src": f"$KV.{name[3:]}.>",
            "dest": f"choria.ccm.poke.{name[3:]}.>",
            "headers_only": True,
        }
        for name, poke in pokes.items()
    )


def test_a_store_pokes_for_its_descriptions_alone() -> None:
    assert streams()["OBJ_CCM_MANIFESTS"]["republish"] == {
        "src": "$O.CCM_MANIFESTS.M.>",
        "dest": "choria.ccm.poke.CCM_MANIFESTS.>",
        "headers_only": True,
    }


def test_what_is_due_goes_out_as_the_request_that_it_is() -> None:
    schedules = streams()["CCM_SCHEDULES"]

    assert schedules["republish"] == {"src": "choria.ccm.due.>", "dest": "io.choria.ccm.v1.>"}
    assert schedules["subjects"] == ["choria.ccm.schedule.>", "choria.ccm.due.>"]


def test_nodes_may_not_roll_up() -> None:
    assert streams()["KV_CCM_NODES"]["allow_rollup_hdrs"] is False
    assert "subject_delete_marker_ttl" not in streams()["KV_CCM_NODES"]


def test_windows_can_be_shortened() -> None:
    events = streams(Layout(duplicate_window_s=2, events_bytes=1 << 20))["CCM_EVENTS"]

    assert (events["duplicate_window"], events["max_bytes"]) == (2 * 10**9, 1 << 20)


def test_schedules_can_be_left_out() -> None:
    assert "CCM_SCHEDULES" not in streams(with_schedules=False)


@pytest.mark.parametrize("secure", [False, True])
def test_registrations_fill_no_disk(secure: bool) -> None:
    made = registration_config("REGISTRATION", 60, secure=secure)

    assert (made["max_bytes"], made["max_msg_size"], made["discard"]) == (256 << 20, 1 << 20, "old")
