"""The table of streams, as data."""

from __future__ import annotations

import pytest

from ccm_agent.bus.access.audit import AUDITED, audit_configs
from ccm_agent.bus.access.permissions import node_permissions
from ccm_agent.bus.layout import LayoutOptions, plan, registration_config
from ccm_agent.bus.signatures.signing import HEADER_LIMIT
from ccm_agent.bus.subjects import subject_matches
from ccm_agent.model.wire import EVENT_LIMIT_BYTES


def streams(layout: LayoutOptions | None = None, *, with_schedules: bool = True) -> dict:
    """Configurations by stream name."""
    return {
        wanted.config["name"]: wanted.config
        for wanted in plan(layout or LayoutOptions(), with_schedules=with_schedules)
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


def test_buckets_that_agents_read_notice_with_headers_only() -> None:
    pokes = {name: config["republish"] for name, config in streams().items() if name.startswith("KV_")}

    assert pokes == {
        f"KV_{bucket}": {
            "src": f"$KV.{bucket}.>",
            "dest": f"choria.ccm.poke.{bucket}.>",
            "headers_only": True,
        }
        for bucket in ("CCM_FACTS", "CCM_DATA", "CCM_ASSIGNMENTS", "CCM_TRUST")
    } | {
        "KV_CCM_NODES": None,
        "KV_CCM_RUNS": None,
        "KV_CCM_NODE_DATA": None,
        "KV_CCM_SECRETS": None,
        "KV_CCM_SLOTS": None,
        "KV_CCM_JOINS": None,
    }


def test_nothing_that_nodes_write_is_republished() -> None:
    written = [line for line in node_permissions("web1", ["10.0.0.1"]).publish if not line.startswith("$JS")]
    theirs = {
        name
        for name, config in streams().items()
        for subject in config["subjects"]
        for line in written
        if subject_matches(subject, line.replace("*", "x"))
    }

    assert theirs == {"KV_CCM_NODES", "KV_CCM_SLOTS", "CCM_EVENTS", "REGISTRATION"}
    assert [name for name in theirs if streams()[name].get("republish")] == []


@pytest.mark.parametrize(
    ("secure", "rolling"), [(True, set()), (False, {"KV_CCM_DATA", "OBJ_CCM_MANIFESTS", "REGISTRATION"})]
)
def test_one_message_erases_no_stream_but_where_other_programs_need_it(
    secure: bool, rolling: set[str]
) -> None:
    made = streams(LayoutOptions(secure=secure))

    assert {name for name, config in made.items() if config.get("allow_rollup_hdrs")} == rolling


def test_keys_that_nodes_write_have_a_size_limit() -> None:
    sizes = {name: config.get("max_msg_size") for name, config in streams(LayoutOptions(secure=True)).items()}

    assert (sizes["CCM_EVENTS"], sizes["REGISTRATION"], sizes["KV_CCM_NODES"]) == (80 << 10, 8 << 10, 1 << 20)
    assert sizes["CCM_EVENTS"] > EVENT_LIMIT_BYTES + 2 * HEADER_LIMIT


def test_an_author_alone_does_not_fill_an_audit_stream() -> None:
    """A node has a subject for each kind of event, an operator has one."""
    for config in audit_configs(60, 2):
        assert (config["max_msgs_per_subject"], config["max_bytes"], config["discard"]) == (
            10_000,
            1 << 30,
            "old",
        )
        assert (
            len(AUDITED) * config["max_msgs_per_subject"] * config["max_msg_size"] < config["max_bytes"] / 4
        )


def test_a_store_notices_for_its_descriptions_alone() -> None:
    assert streams()["OBJ_CCM_MANIFESTS"]["republish"] == {
        "src": "$O.CCM_MANIFESTS.M.>",
        "dest": "choria.ccm.poke.CCM_MANIFESTS.>",
        "headers_only": True,
    }


def test_a_due_request_is_sent_unchanged() -> None:
    schedules = streams()["CCM_SCHEDULES"]

    assert schedules["republish"] == {"src": "choria.ccm.due.>", "dest": "io.choria.ccm.v1.>"}
    assert schedules["subjects"] == ["choria.ccm.schedule.>", "choria.ccm.due.>"]


def test_windows_can_be_shortened() -> None:
    events = streams(LayoutOptions(duplicate_window_s=2, events_bytes=1 << 20))["CCM_EVENTS"]

    assert (events["duplicate_window"], events["max_bytes"]) == (2 * 10**9, 1 << 20)


def test_schedules_can_be_left_out() -> None:
    assert "CCM_SCHEDULES" not in streams(with_schedules=False)


@pytest.mark.parametrize(("secure", "size", "discard"), [(False, 1 << 20, "old"), (True, 8 << 10, "new")])
def test_registrations_fill_no_disk(secure: bool, size: int, discard: str) -> None:
    made = registration_config("REGISTRATION", 60, secure=secure)

    assert (made["max_bytes"], made["max_msg_size"], made["discard"]) == (256 << 20, size, discard)
