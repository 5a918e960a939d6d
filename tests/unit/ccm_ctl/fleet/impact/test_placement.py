"""On which nodes instances are."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.bus.subjects import parse_registration
from ccm_agent.registration.entries import StreamEntry
from ccm_ctl.fleet.impact.placement import (
    ADDRESSES_LIMIT,
    ServiceInstance,
    ServiceName,
    find_addresses,
    place_instances,
)
from tests.support.registrations import a_stored, an_entry

WEB = ServiceName("prod", "http", "web")


def test_the_addresses_of_interfaces_and_assigned_ones_are_the_nodes_own() -> None:
    facts = {
        "network": {
            "addresses": [{"address": "10.0.0.1", "ipv4": True}],
            "interfaces": [
                {"name": "lo", "addrs": [{"addr": "127.0.0.1/8"}, {"addr": "::1/128"}]},
                {"name": "eth1", "addrs": [{"addr": "2001:db8:0::5/64"}]},
            ],
            "default_ipv4": "10.0.0.1",
            "public": "203.0.113.7",
            "others": ["203.0.113.8"],
            "routes": {"gateway": "10.0.0.254"},
        },
        "dns": "10.0.0.53",
    }

    assert find_addresses(facts) == {"10.0.0.1", "2001:db8::5", "203.0.113.7", "203.0.113.8"}


@pytest.mark.parametrize(
    "network",
    [
        pytest.param(None, id="none"),
        pytest.param("10.0.0.1", id="text"),
        pytest.param({"addresses": "x", "interfaces": [7, {"addrs": {}}]}, id="other shapes"),
        pytest.param({"public": "1" * 1_000_000, "a": "0.0.0.0", "b": "\x1b[2J"}, id="no addresses"),
    ],
)
def test_facts_of_other_shapes_have_no_address(network: object) -> None:
    assert find_addresses({"network": network}) == set()


def test_a_node_that_reports_any_number_of_addresses_is_bounded() -> None:
    many = [f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}" for number in range(100_000)]

    assert len(find_addresses({"network": {"many": many}})) == ADDRESSES_LIMIT


def test_an_entry_is_on_the_nodes_that_report_its_address() -> None:
    entries = [
        a_stored(an_entry(1)),
        a_stored(an_entry(2, priority=20)),
        a_stored(an_entry(3), reason="MaxAge"),
        a_stored(an_entry(4)),
        a_stored(an_entry(5), reason="Remove"),
    ]
    addresses = {"web1": {"10.0.0.1"}, "web2": {"10.0.0.2"}, "web3": {"10.0.0.3"}, "copy": {"10.0.0.1"}}

    found = place_instances(entries, addresses, {"copy", "web3"})

    assert found == {
        WEB: [
            ServiceInstance(nodes=("web1", "copy"), is_healthy=True, priority=10, address="10.0.0.1"),
            ServiceInstance(nodes=("web2",), is_healthy=False, priority=20, address="10.0.0.2"),
            ServiceInstance(nodes=("web3",), is_healthy=False, priority=0, address="10.0.0.3"),
            ServiceInstance(nodes=(), is_healthy=True, priority=10, address="10.0.0.4"),
        ]
    }


ADDRESSES = ["10.0.0.1", "10.0.0.2", "2001:db8::5", "2001:DB8:0::5", "203.0.113.7"]
NODES = ["web1", "web2", "web3"]


@st.composite
def registries(draw: st.DrawFn) -> list[StreamEntry]:
    """Entries of two services, and of those that ended; several at one address, also written in two ways."""
    return [
        a_stored(
            an_entry(address=address, service=draw(st.sampled_from(["web", "db"])), priority=number + 1),
            reason=draw(st.sampled_from(["", "", "MaxAge"])) if ":" not in address else "",
        )
        for number, address in enumerate(draw(st.lists(st.sampled_from(ADDRESSES), max_size=8)))
    ]


@given(
    entries=registries(),
    addresses=st.dictionaries(st.sampled_from(NODES), st.sets(st.sampled_from(ADDRESSES[:3]))),
    present=st.sets(st.sampled_from(NODES)),
)
def test_entries_at_one_address_are_placed_as_each_of_them_alone(
    entries: list[StreamEntry], addresses: dict[str, set[str]], present: set[str]
) -> None:
    """The addresses are looked up once each, so this looks up every entry again."""
    expected: dict[ServiceName, list[ServiceInstance]] = {}
    for one in entries:
        cluster, protocol, service, address = parse_registration(one.subject)
        address = one.entry.address if one.entry else address
        nodes = tuple(node for node, own in addresses.items() if str(ip_address(address)) in own)
        is_up = not nodes or not present.isdisjoint(nodes)
        expected.setdefault(ServiceName(cluster, protocol, service), []).append(
            ServiceInstance(
                nodes=nodes,
                is_healthy=one.entry is not None and is_up,
                priority=one.entry.priority if one.entry else 0,
                address=address,
            )
        )

    assert place_instances(entries, addresses, present) == expected
