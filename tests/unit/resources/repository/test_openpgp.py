"""OpenPGP keys: fingerprints as gpg and the RFC have them, and nothing in a file but the one key."""

from __future__ import annotations

import pytest

from ccm_agent.resources.repository.openpgp import (
    KEY_LIMIT_BYTES,
    PublicKey,
    normal_fingerprint,
    parse_public_key,
)
from tests.support.openpgp_keys import FINGERPRINT, FINGERPRINT_V6, KEY, KEY_V6, OTHER_KEY


def packets(text: str) -> bytes:
    return parse_public_key(text.encode()).packets


PACKETS = packets(KEY)
BODY = PACKETS[2 : 2 + PACKETS[1]]
"""The primary key of KEY, without the header of its packet."""


def armor(content: bytes) -> bytes:
    return PublicKey(fingerprint="", packets=content).armored()


@pytest.mark.parametrize(
    ("data", "fingerprint"),
    [
        pytest.param(KEY.encode(), FINGERPRINT, id="a text"),
        pytest.param(PACKETS, FINGERPRINT, id="binary"),
        pytest.param(KEY_V6.encode(), FINGERPRINT_V6, id="version 6"),
        pytest.param(KEY.replace("\n", "\r\n").encode(), FINGERPRINT, id="lines of Windows"),
        pytest.param(f"pub ed25519\n\n{KEY}\n".encode(), FINGERPRINT, id="a text before it"),
        pytest.param(
            KEY.replace("-----\n\n", "-----\nVersion: x\nComment: y: z\n\n", 1).encode(),
            FINGERPRINT,
            id="headers",
        ),
        pytest.param(KEY.replace("=CTC9\n", "").encode(), FINGERPRINT, id="no checksum"),
        pytest.param(b"\xc6" + PACKETS[1:], FINGERPRINT, id="a header of the new form"),
    ],
)
def test_a_key_is_read_in_each_of_its_forms(data: bytes, fingerprint: str) -> None:
    assert parse_public_key(data).fingerprint == fingerprint


def test_what_is_written_is_the_key_alone() -> None:
    read = parse_public_key(f"a text\n{KEY}".encode())

    assert read.armored() == KEY.encode()
    assert parse_public_key(parse_public_key(KEY_V6.encode()).armored()).fingerprint == FINGERPRINT_V6


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(b"", "is empty", id="nothing"),
        pytest.param(b" \n", "is empty", id="spaces"),
        pytest.param(b"x" * (KEY_LIMIT_BYTES + 1), "larger than 256 KiB", id="a huge file"),
        pytest.param(b"<html>404</html>", "neither text that begins with", id="a page"),
        pytest.param(PACKETS + packets(OTHER_KEY), "several keys", id="two keys, binary"),
        pytest.param(armor(PACKETS + packets(OTHER_KEY)), "several keys", id="two keys in one block"),
        pytest.param((KEY + OTHER_KEY).encode(), "several blocks", id="two blocks"),
        pytest.param(KEY.replace("PUBLIC", "PRIVATE").encode(), "secret key", id="a block of a secret key"),
        pytest.param(b"\x94" + PACKETS[1:], "secret key", id="a secret key, binary"),
        pytest.param(PACKETS + b"\x9c\x01\x00", "secret key", id="a secret subkey"),
        pytest.param(KEY.replace("PUBLIC KEY BLOCK", "MESSAGE").encode(), "not a public key", id="a message"),
        pytest.param(PACKETS[2 + len(BODY) :], "does not begin with a public key", id="no primary key"),
        pytest.param(PACKETS + b"\xcb\x01\x00", "packet of type 11", id="a literal packet behind it"),
        pytest.param(PACKETS + b"x", "not a binary key, or damaged", id="a byte behind it"),
        pytest.param(PACKETS[:-1], "its end is missing", id="cut, binary"),
        pytest.param(PACKETS + b"\xc2\xff\xff\xff\xff\xff", "its end is missing", id="a length of 4 GiB"),
        pytest.param(PACKETS + b"\xc2", "its end is missing", id="a header only"),
        pytest.param(KEY.partition("-----END")[0].encode(), "its end is missing", id="a text that is cut"),
        pytest.param(PACKETS + b"\xc2\xe1\x00\x00", "partial length", id="a partial length"),
        pytest.param(PACKETS + b"\x8b\x00", "unknown length", id="an unknown length"),
        pytest.param(KEY.replace("=CTC9", "=CTC8").encode(), "checksum is wrong", id="a wrong checksum"),
        pytest.param(KEY.replace("Ea", "E*", 1).encode(), "not base64", id="no base64"),
        pytest.param(b"\x98\x33\x03" + BODY[1:], "version 3", id="version 3"),
        pytest.param(b"\x98\x33\x05" + BODY[1:], "version 5", id="version 5"),
        pytest.param(b"\xc6\x02\x04\x00", "its key is damaged", id="a short key"),
        pytest.param(b"\xc6\xff\x00\x01\x00\x00\x04" + bytes(65535), "version 4", id="a key of 64 KiB"),
    ],
)
def test_everything_else_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_public_key(data)


@pytest.mark.parametrize(
    "text",
    [
        FINGERPRINT,
        FINGERPRINT.lower(),
        f"0x{FINGERPRINT}",
        "405C 4E51 BCFF 4FAF 8C12  42DE CCBF 355C 4F27 380A",
    ],
)
def test_fingerprints_are_compared_without_spaces_and_case(text: str) -> None:
    assert normal_fingerprint(text) == FINGERPRINT


@pytest.mark.parametrize(
    "text", ["", "4F27380A", "CCBF355C4F27380A", FINGERPRINT[:-1], FINGERPRINT[:-1] + "G", "\u0661" * 40]
)
def test_a_key_id_is_no_fingerprint(text: str) -> None:
    with pytest.raises(ValueError, match="40 or 64 hexadecimal digits"):
        normal_fingerprint(text)
