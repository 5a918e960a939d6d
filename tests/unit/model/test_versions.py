"""
Tables of version pairs: older first unless the result says otherwise.

The Debian rows agree with `dpkg --compare-versions` (1.21, Debian 12); the rpm rows follow rpm's tests/rpmvercmp.at.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.model.errors import PropertyError
from ccm_agent.model.formats.versions import compare_debian, compare_plain, compare_rpm, debian_key, rpm_key

# The tables of Choria CCM's pages about apt and dnf, row by row. The last row for apt has 1.0a before 1.0- there, which neither
# dpkg nor Choria CCM says: the hyphen parts an empty revision from 1.0
PAGE_APT = [
    pytest.param("1.0", "2.0.0", -1, id="numeric comparison"),
    pytest.param("1:1.0", "2.0.0", 1, id="epoch 1 over epoch 0"),
    pytest.param("1.0~alpha", "1.0", -1, id="tilde sorts before empty"),
    pytest.param("1.0~alpha", "1.0~beta", -1, id="lexical: alpha before beta"),
    pytest.param("1.0.1", "1.0.2", -1, id="numeric: 1 before 2"),
    pytest.param("1.0-1", "1.0-2", -1, id="revision comparison"),
    pytest.param("1.0a", "1.0-", 1, id="letters, which sort before non-letters"),
]
PAGE_DNF = [
    pytest.param("1.0", "2.0.0", False, -1, id="numeric: 1 before 2"),
    pytest.param("1.10", "1.9", False, 1, id="numeric: 10 after 9"),
    pytest.param("1.0", "1.0.1", False, -1, id="one is exhausted first"),
    pytest.param("1.0-1", "1.0-2", False, -1, id="release comparison"),
    pytest.param("1.0a", "1.0b", False, -1, id="lexical: a before b"),
    pytest.param("01", "1", False, -1, id="leading zero: lexical comparison"),
    pytest.param("1.0.0", "1.0", False, 1, id="trailing zeroes count"),
    pytest.param("1.0.0", "1.0", True, 0, id="trailing zeroes are left out"),
]

DEBIAN = [
    ("1.0", "1.1", -1),
    ("1.9", "1.10", -1),
    ("1.0", "1:0.1", -1),
    ("00:1.0", "1.0", 0),
    ("1.0-", "1.0", 0),
    ("1.0-0", "1.0", 0),
    ("1.0-1", "1.0-1ubuntu1", -1),
    ("1.0-1-1", "1.0-1-2", -1),
    ("1.0~rc1", "1.0", -1),
    ("1.0~~", "1.0~", -1),
    ("1.0a~", "1.0a", -1),
    ("1.0a", "1.0.1", -1),
    ("1.0a", "1.0+", -1),
    ("1.0A", "1.0a", -1),
    ("1.01", "1.1", 0),
    ("1.99999999999999999998", "1.99999999999999999999", -1),
    ("1." + "9" * 5000, "1.1" + "0" * 5000, -1),
    ("1.0a", "1.0-", 1),
    ("--", "-", 0),
]

RPM = [
    ("1.0", "1.0", 0),
    ("2.0", "2.0.1", -1),
    ("2.0.1", "2.0.1a", -1),
    ("5.5p1", "5.5p10", -1),
    ("10xyz", "10.1xyz", -1),
    ("xyz.4", "8", -1),
    ("6.0", "6.0.rc1", -1),
    ("10a1", "10b2", -1),
    ("10.0001", "10.1", 0),
    ("2_0", "2.0", 0),
    ("a+", "a_", 0),
    ("1.0~rc1", "1.0", -1),
    ("1.0~rc1~git123", "1.0~rc1", -1),
    ("1.0", "1.0^", -1),
    ("1.0^git1", "1.0.1", -1),
    ("1.0^git1~pre", "1.0^git1", -1),
    ("1.0~rc1", "1.0~rc1^git1", -1),
    ("1b.fc17", "1.fc17", -1),
    ("2.0", "1:1.0", -1),
    ("3.0-1", "1:1.5-1", -1),
    ("0:1.0", "1.0", 0),
    (":1.0", "1.0", 0),
    ("1.0-9.el8", "1.0-10.el8", -1),
    ("1.0-1", "1.0", 0),
    ("1." + "9" * 5000, "1.1" + "0" * 5000, -1),
]

PLAIN = [
    ("1.0", "2", -1),
    ("1.9", "1.10", -1),
    ("1.0", "1.0.1", -1),
    ("1.0", "1.0.0", -1),
    ("1.0-1", "1.0.1", -1),
    ("1.0", "1.0-1", -1),
    ("1.05", "1.4", -1),
    ("01", "1", -1),
    ("1.0", "1.0~rc1", -1),
    ("1:1.0", "2.0", -1),
    ("1.0RC1", "1.0rc2", -1),
    ("1.0A", "1.0a", -1),
    ("99999999999999999998", "99999999999999999999", -1),
    ("*", "1", -1),
    ("", "-", -1),
]

LENIENT = [
    ("1.0.0", "1", 0),
    ("2.0.0-rc1", "2-rc1", 0),
    ("1.0-0", "1.0-0.0", -1),
    ("0", "0.0", 0),
    ("1", "10", -1),
    ("1", "1.0.", -1),
    ("-1", "-1.0", -1),
]


@pytest.mark.parametrize(("left", "right", "order"), DEBIAN)
def test_debian_versions_are_ordered_as_dpkg_orders_them(left: str, right: str, order: int) -> None:
    assert (compare_debian(left, right), compare_debian(right, left)) == (order, -order)


@pytest.mark.parametrize(("left", "right", "order"), PAGE_APT)
def test_the_table_for_apt_holds_row_by_row(left: str, right: str, order: int) -> None:
    assert (compare_debian(left, right), compare_debian(right, left)) == (order, -order)


@pytest.mark.parametrize(("left", "right", "lenient", "order"), PAGE_DNF)
def test_the_table_for_dnf_holds_row_by_row(left: str, right: str, lenient: bool, order: int) -> None:
    assert compare_plain(left, right, lenient=lenient) == order


@pytest.mark.parametrize(
    "version",
    [
        "",
        " 1.0",
        "1.0\n",
        "1_0",
        "a:1.0",
        ":1.0",
        "1:",
        "1:2:3",
        "+1:1.0",
        "1.0é",
        "١",
        "99999999999999999999:1.0",
        "9" * 5000 + ":1",
    ],
)
def test_an_invalid_debian_version_is_refused(version: str) -> None:
    with pytest.raises(PropertyError, match="is not a Debian version"):
        compare_debian(version, "1.0")


@pytest.mark.parametrize(("left", "right", "order"), RPM)
def test_rpm_versions_are_ordered_as_rpm_orders_them(left: str, right: str, order: int) -> None:
    assert (compare_rpm(left, right), compare_rpm(right, left)) == (order, -order)


@pytest.mark.parametrize(("left", "right", "order"), PLAIN)
def test_plain_versions_are_compared_part_by_part(left: str, right: str, order: int) -> None:
    assert (compare_plain(left, right), compare_plain(right, left)) == (order, -order)


@pytest.mark.parametrize(("left", "right", "order"), LENIENT)
def test_lenient_comparison_leaves_out_trailing_zeroes(left: str, right: str, order: int) -> None:
    assert (compare_plain(left, right, lenient=True), compare_plain(right, left, lenient=True)) == (
        order,
        -order,
    )


def test_the_keys_sort_oldest_first() -> None:
    assert sorted(["1.0", "1:0", "1.0~rc1", "1.10", "1.9"], key=debian_key) == [
        "1.0~rc1",
        "1.0",
        "1.9",
        "1.10",
        "1:0",
    ]
    assert sorted(["1.0^git", "1.0", "1.0~rc1", "1.0.1"], key=rpm_key) == [
        "1.0~rc1",
        "1.0",
        "1.0^git",
        "1.0.1",
    ]


@given(st.text(alphabet="019aZ.~^+-:_", max_size=12), st.text(alphabet="019aZ.~^+-:_", max_size=12))
def test_a_version_is_never_both_older_and_newer(left: str, right: str) -> None:
    for compare in (compare_rpm, compare_plain):
        assert compare(left, right) == -compare(right, left)
        assert compare(left, left) == 0
