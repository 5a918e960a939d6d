from ipaddress import IPv4Address, IPv6Address

import pytest

from ccm_agent.facts.netlink import Address, Link
from ccm_agent.facts.network import gather, shape

LO = Link(1, "lo", 65536, "", 0x1_0049)
ETH0 = Link(4, "eth0", 1400, "02:fc:00:00:00:01", 0x1_1043)

ADDRESSES = [
    Address(1, IPv4Address("127.0.0.1"), 8),
    Address(4, IPv4Address("192.0.2.2"), 24),
    Address(1, IPv6Address("::1"), 128),
    Address(4, IPv6Address("fd00::2"), 64),
    Address(4, IPv6Address("fe80::fc:ff:fe00:1"), 64),
]


def test_the_family_has_ccms_shape() -> None:
    assert shape([LO, ETH0], ADDRESSES, "192.0.2.2", "fd00::2") == {
        "addresses": [
            {"interface": "eth0", "address": "192.0.2.2", "ipv4": True, "default": True},
            {"interface": "eth0", "address": "fd00::2", "ipv4": False, "default": True},
        ],
        "interfaces": [
            {
                "index": 1,
                "mtu": 65536,
                "name": "lo",
                "hardwareAddr": "",
                "flags": ["up", "loopback"],
                "addrs": [{"addr": "127.0.0.1/8"}, {"addr": "::1/128"}],
            },
            {
                "index": 4,
                "mtu": 1400,
                "name": "eth0",
                "hardwareAddr": "02:fc:00:00:00:01",
                "flags": ["up", "broadcast", "multicast"],
                "addrs": [
                    {"addr": "192.0.2.2/24"},
                    {"addr": "fd00::2/64"},
                    {"addr": "fe80::fc:ff:fe00:1/64"},
                ],
            },
        ],
        "default_ipv4": "192.0.2.2",
        "default_ipv6": "fd00::2",
    }


@pytest.mark.parametrize(("ipv4", "ipv6"), [("", ""), ("198.51.100.1", "2001:db8::1")])
def test_without_a_way_out_nothing_is_default(ipv4: str, ipv6: str) -> None:
    family = shape([LO, ETH0], ADDRESSES, ipv4, ipv6)

    assert [one["default"] for one in family["addresses"]] == [False, False]
    assert (family["default_ipv4"], family["default_ipv6"]) == ("", "")


def test_this_machine_has_a_loopback_interface() -> None:
    loopback = [one for one in gather()["interfaces"] if "loopback" in one["flags"]]

    assert [one["name"] for one in loopback] == ["lo"]
