"""The kernel's answers, as captured with `ask()` on the machine that the file names tell."""

from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.facts.netlink import Address, Link, ask, parse_addresses, parse_links

DATA = Path(__file__).parent / "data"


def test_the_kernels_list_of_interfaces_is_read() -> None:
    links = parse_links((DATA / "netlink_links_linux_6.18_x86_64.bin").read_bytes())

    assert [links[0], links[-1]] == [
        Link(1, "lo", 65536, "", 0x1_0049),
        Link(4, "eth0", 1400, "02:fc:00:00:00:01", 0x1_1043),
    ]
    assert [one.name for one in links] == ["lo", "ifb0", "ifb1", "eth0"]


def test_the_kernels_list_of_addresses_is_read() -> None:
    assert parse_addresses((DATA / "netlink_addresses_linux_6.18_x86_64.bin").read_bytes()) == [
        Address(1, IPv4Address("127.0.0.1"), 8),
        Address(4, IPv4Address("192.0.2.2"), 24),
        Address(1, IPv6Address("::1"), 128),
        Address(4, IPv6Address("fd00::2"), 64),
        Address(4, IPv6Address("fe80::fc:ff:fe00:1"), 64),
    ]


@given(st.binary(max_size=80), st.integers(0, 5968))
def test_an_answer_that_is_cut_or_broken_does_not_make_it_fail(noise: bytes, length: int) -> None:
    answer = (DATA / "netlink_links_linux_6.18_x86_64.bin").read_bytes()[:length] + noise

    assert isinstance(parse_links(answer), list)
    assert isinstance(parse_addresses(answer), list)


def test_the_kernel_of_this_machine_answers() -> None:
    links, addresses = ask()

    assert "lo" in [link.name for link in links]
    assert {address.link for address in addresses} <= {link.number for link in links}
