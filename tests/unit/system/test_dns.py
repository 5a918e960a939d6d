"""Messages of the domain name system, put together byte by byte from the RFCs."""

from __future__ import annotations

import struct

import pytest

from ccm_agent.system.dns import RECORDS, TruncatedError, answers, question

NAME = b"\x07example\x03com\x00"
BACK = b"\xc0\x0c"


def reply(
    record: str, *found: bytes, flags: int = 0x8180, number: int = 7, kind: int = 0, name: bytes = NAME
) -> bytes:
    """An answer to the question number 7 about example.com; each record names it by a pointer."""
    body = b"".join(
        BACK + struct.pack("!HHIH", kind or RECORDS[record], 1, 300, len(one)) + one for one in found
    )
    head = struct.pack("!6H", number, flags, 1, len(found), 0, 0)
    return head + name + struct.pack("!HH", RECORDS[record], 1) + body


@pytest.mark.parametrize(
    ("name", "record", "written"),
    [
        pytest.param("example.com", "A", NAME + b"\x00\x01\x00\x01", id="a name"),
        pytest.param("example.com.", "CAA", NAME + b"\x01\x01\x00\x01", id="a name with its last point"),
        pytest.param(
            "1.2.0.192",
            "PTR",
            b"\x03192\x010\x012\x011\x07in-addr\x04arpa\x00\x00\x0c\x00\x01",
            id="an address, backwards",
        ),
        pytest.param(
            "bücher.de", "A", b"\x0dxn--bcher-kva\x02de\x00\x00\x01\x00\x01", id="letters of others"
        ),
    ],
)
def test_a_question_is_written_as_the_rfc_has_it(name: str, record: str, written: bytes) -> None:
    assert question(name, record, 7) == b"\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + written


@pytest.mark.parametrize(
    ("name", "record"), [("", "A"), ("a..b", "A"), ("a" * 64, "A"), ("a." * 130, "A"), ("host", "PTR")]
)
def test_what_is_no_name_is_refused(name: str, record: str) -> None:
    with pytest.raises(ValueError):
        question(name, record, 7)


@pytest.mark.parametrize(
    ("record", "found", "texts"),
    [
        pytest.param("A", [b"\x0a\x00\x00\x02", b"\x0a\x00\x00\x01"], ["10.0.0.1", "10.0.0.2"], id="A, sorted"),
        pytest.param("AAAA", [b"\xfe\x80" + b"\x00" * 13 + b"\x01"], ["fe80::1"], id="AAAA"),
        pytest.param("CNAME", [b"\x01a" + BACK], ["a.example.com."], id="CNAME with a pointer"),
        pytest.param("NS", [b"\x03ns1" + BACK], ["ns1.example.com."], id="NS"),
        pytest.param("PTR", [BACK], ["example.com."], id="PTR"),
        pytest.param("MX", [b"\x00\x0a\x04mail" + BACK], ["10 mail.example.com."], id="MX"),
        pytest.param("SRV", [b"\x00\x00\x00\x05\x01\xbb\x01a" + BACK], ["0 5 443 a.example.com."], id="SRV"),
        pytest.param("TXT", [b"\x05hello\x05world"], ["hello", "world"], id="TXT in pieces"),
        pytest.param("SSHFP", [b"\x01\x02\xab\xcd"], ["1 2 ABCD"], id="SSHFP"),
        pytest.param("CAA", [b"\x00\x05issueca.org"], ["0 issue ca.org"], id="CAA"),
        pytest.param("A", [], [], id="nothing of this kind"),
    ],
)  # fmt: skip
def test_each_kind_of_record_is_read(record: str, found: list[bytes], texts: list[str]) -> None:
    assert answers(reply(record, *found), question("example.com", "A", 7), record) == texts


def test_records_of_other_kinds_are_passed_over() -> None:
    assert (
        answers(reply("A", b"\x01a\x00", kind=RECORDS["CNAME"]), question("example.com", "A", 7), "A") == []
    )


def test_a_name_that_there_is_not_has_no_records() -> None:
    assert answers(reply("A", flags=0x8183), question("example.com", "A", 7), "A") == []


def test_an_answer_that_did_not_fit_says_so() -> None:
    with pytest.raises(TruncatedError):
        answers(reply("A", flags=0x8380), question("example.com", "A", 7), "A")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(reply("A", number=8), "it answers another question", id="another number"),
        pytest.param(
            reply("A", name=b"\x04evil\x00"), "it answers another question", id="another name"
        ),
        pytest.param(reply("A", flags=0x0100), "it answers another question", id="a question"),
        pytest.param(reply("A", flags=0x8185), "the server answered with the status 5", id="refused"),
        pytest.param(reply("A", b"\x0a\x00\x00\x01")[:-2], "the answer is damaged", id="cut off"),
        pytest.param(reply("A")[:5], "the answer is damaged", id="cut off in its head"),
        pytest.param(
            reply("CNAME", b"\xc0\x29"), "the answer is damaged: a name in it does not end", id="a name in circles"
        ),
    ],
)  # fmt: skip
def test_an_answer_that_cannot_be_used_says_why(data: bytes, message: str) -> None:
    record = "CNAME" if b"\xc0\x29" in data else "A"

    with pytest.raises(ValueError) as caught:
        answers(data, question("example.com", record, 7), record)

    assert str(caught.value) == message
