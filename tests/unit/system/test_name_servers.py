"""Records in the answers of name servers, put together byte by byte from the RFCs."""

from __future__ import annotations

import struct

import dns.message
import dns.rdatatype
import pytest

from ccm_agent.system.http.name_servers import texts

NAME = b"\x07example\x03com\x00"
BACK = b"\xc0\x0c"


def answer(record: str, *found: bytes, flags: int = 0x8180, kind: str = "") -> dns.message.Message:
    """An answer about example.com; each record names it by a pointer."""
    asked = dns.rdatatype.from_text(record)
    body = b"".join(
        BACK + struct.pack("!HHIH", dns.rdatatype.from_text(kind or record), 1, 300, len(one)) + one
        for one in found
    )
    head = struct.pack("!6H", 7, flags, 1, len(found), 0, 0)
    return dns.message.from_wire(head + NAME + struct.pack("!HH", asked, 1) + body)


@pytest.mark.parametrize(
    ("record", "found", "want"),
    [
        pytest.param("A", [b"\x0a\x00\x00\x02", b"\x0a\x00\x00\x01"], ["10.0.0.1", "10.0.0.2"], id="A, sorted"),
        pytest.param("AAAA", [b"\xfe\x80" + b"\x00" * 13 + b"\x01"], ["fe80::1"], id="AAAA"),
        pytest.param("CNAME", [b"\x01a" + BACK], ["a.example.com."], id="CNAME with a pointer"),
        pytest.param("NS", [b"\x03ns1" + BACK], ["ns1.example.com."], id="NS"),
        pytest.param("PTR", [BACK], ["example.com."], id="PTR"),
        pytest.param("MX", [b"\x00\x0a\x04mail" + BACK], ["10 mail.example.com."], id="MX"),
        pytest.param("SRV", [b"\x00\x00\x00\x05\x01\xbb\x01a" + BACK], ["0 5 443 a.example.com."], id="SRV"),
        pytest.param("TXT", [b"\x05hello\x05world"], ["hello", "world"], id="TXT in two parts"),
        pytest.param("SSHFP", [b"\x01\x01" + b"\xab\xcd" * 10], ["1 1 " + "ABCD" * 10], id="SSHFP"),
        pytest.param("CAA", [b"\x00\x05issueca.org"], ["0 issue ca.org"], id="CAA"),
        pytest.param("A", [], [], id="nothing of this kind"),
    ],
)  # fmt: skip
def test_each_kind_of_record_is_read(record: str, found: list[bytes], want: list[str]) -> None:
    assert texts(answer(record, *found), record) == want


def test_records_of_other_kinds_are_ignored() -> None:
    assert texts(answer("A", b"\x01a\x00", kind="CNAME"), "A") == []


def test_a_name_that_does_not_exist_has_no_records() -> None:
    assert texts(answer("A", flags=0x8183), "A") == []


def test_a_refusal_is_reported() -> None:
    with pytest.raises(ValueError, match="the server answered REFUSED"):
        texts(answer("A", flags=0x8185), "A")
