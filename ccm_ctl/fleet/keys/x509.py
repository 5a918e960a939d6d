"""
X.509 certificates with ed25519 keys. This module implements the parts of RFC 5280 and RFC 8410 that the authority of one fleet
needs.

It exists because no dependency of this program can create certificates. `openssl` is missing on many small hosts. A library would
add a compiled dependency to each agent, because agent and controller are in the same distribution. Tests check each field with
`openssl` and Python's `ssl`.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
import secrets
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from ccm_agent.bus.signatures.ed25519 import KEY_BYTES, Ed25519Key
from ccm_agent.model.errors import InputError

_INTEGER, _BITS, _OCTETS, _OID, _UTF8, _SEQUENCE, _SET = 0x02, 0x03, 0x04, 0x06, 0x0C, 0x30, 0x31
_UTC_TIME, _LONG_TIME, _BOOLEAN = 0x17, 0x18, 0x01
_DNS_NAME, _IP_ADDRESS, _KEY_ID, _VERSION, _EXTENSIONS = 0x82, 0x87, 0x80, 0xA0, 0xA3
"""DER tags (X.690), including the context-specific tags in certificates."""

# no possessive group: in Python 3.11.2 (Debian 12), it matches too little
_PEM = re.compile(r"-----BEGIN ([A-Z ]{1,64})-----\s([^-]*)-----END \1-----")
_PRIVATE_KEY = bytes.fromhex("302e020100300506032b657004220420")
"""The PKCS#8 prefix of an ed25519 key (RFC 8410, section 7), before the 32 bytes of the key."""


class Certificate(Struct, frozen=True, kw_only=True):
    """
    The fields that are read from a certificate.

    Attributes:
        names: The host names and addresses of the certificate.
        ends: When it expires.
    """

    names: tuple[str, ...]
    ends: datetime


def authority(key: Ed25519Key, subject: str, begins: datetime, ends: datetime) -> str:
    """Return a certificate (PEM) of an authority that may sign server certificates but no further authorities."""
    extensions = [
        _extension("2.5.29.19", _der(_SEQUENCE, _der(_BOOLEAN, b"\xff"), _number(0)), is_critical=True),
        # keyCertSign and cRLSign: bits 5 and 6
        _extension("2.5.29.15", _der(_BITS, b"\x01\x06"), is_critical=True),
        _extension("2.5.29.14", _der(_OCTETS, _key_id(key.public))),
    ]
    return _certificate(key, subject, subject, key.public, begins, ends, extensions)


def server(
    signer: Ed25519Key,
    issuer: str,
    public: bytes,
    names: Sequence[str],
    begins: datetime,
    ends: datetime,
) -> str:
    """
    Return a certificate (PEM) for servers with these names. The servers also use it as clients of each other.

    Args:
        signer, issuer: The authority's key and subject.
        public: The servers' public key.
        names: Host names and addresses, in ASCII.
        begins, ends: Its validity.
    """
    uses = [_oid("1.3.6.1.5.5.7.3.1"), _oid("1.3.6.1.5.5.7.3.2")]
    extensions = [
        _extension("2.5.29.19", _der(_SEQUENCE), is_critical=True),
        # digitalSignature: bit 0
        _extension("2.5.29.15", _der(_BITS, b"\x07\x80"), is_critical=True),
        _extension("2.5.29.37", _der(_SEQUENCE, *uses)),
        _extension("2.5.29.14", _der(_OCTETS, _key_id(public))),
        _extension("2.5.29.35", _der(_SEQUENCE, _der(_KEY_ID, _key_id(signer.public)))),
        _extension("2.5.29.17", _der(_SEQUENCE, *(_general_name(name) for name in names))),
    ]
    return _certificate(signer, issuer, names[0][:64], public, begins, ends, extensions)


def private_key(key: Ed25519Key) -> str:
    """Return a private key as PEM."""
    return _pem("PRIVATE KEY", _PRIVATE_KEY + key.raw)


def read_private_key(text: str, source: str) -> Ed25519Key:
    """
    Read a private key from PEM.

    Raises:
        InputError: It is not an ed25519 key.
    """
    raw = _from_pem(text, "PRIVATE KEY", source)
    if len(raw) != len(_PRIVATE_KEY) + KEY_BYTES or not raw.startswith(_PRIVATE_KEY):
        raise InputError(f"{source}: not an ed25519 key; was it made by `ccmctl init --security`?")
    return Ed25519Key(raw[len(_PRIVATE_KEY) :])


def read_certificate(text: str, source: str) -> Certificate:
    """
    Read the fields of a certificate from PEM. Its signature is not checked.

    Raises:
        InputError: It is not a certificate.
    """
    raw = _from_pem(text, "CERTIFICATE", source)
    try:
        [(_, outer)] = _parts(raw)
        fields = list(_parts(next(_parts(outer))[1]))
        # version, serial number, algorithm, issuer, validity, subject, key, extensions
        ends = _read_time(*list(_parts(fields[4][1]))[1])
        names = tuple(_read_names(fields[-1][1]))
    except (ValueError, IndexError, StopIteration) as err:
        raise InputError(f"{source}: damaged, or not a certificate made by ccmctl") from err
    return Certificate(names=names, ends=ends)


def _certificate(
    signer: Ed25519Key,
    issuer: str,
    subject: str,
    public: bytes,
    begins: datetime,
    ends: datetime,
    extensions: Sequence[bytes],
) -> str:
    algorithm = _der(_SEQUENCE, _oid("1.3.101.112"))
    body = _der(
        _SEQUENCE,
        _der(_VERSION, _number(2)),
        _number(secrets.randbits(127) + 1),
        algorithm,
        _name(issuer),
        _der(_SEQUENCE, _time(begins), _time(ends)),
        _name(subject),
        _der(_SEQUENCE, algorithm, _bits(public)),
        _der(_EXTENSIONS, _der(_SEQUENCE, *extensions)),
    )
    return _pem("CERTIFICATE", _der(_SEQUENCE, body, algorithm, _bits(signer.sign(body))))


def _extension(oid: str, value: bytes, *, is_critical: bool = False) -> bytes:
    critical = _der(_BOOLEAN, b"\xff") if is_critical else b""
    return _der(_SEQUENCE, _oid(oid), critical, _der(_OCTETS, value))


def _key_id(public: bytes) -> bytes:
    return hashlib.sha256(public).digest()[:20]


def _general_name(name: str) -> bytes:
    try:
        return _der(_IP_ADDRESS, ipaddress.ip_address(name).packed)
    except ValueError:
        return _der(_DNS_NAME, name.encode("ascii"))


def _name(common: str) -> bytes:
    attribute = _der(_SEQUENCE, _oid("2.5.4.3"), _der(_UTF8, common.encode()))
    return _der(_SEQUENCE, _der(_SET, attribute))


def _time(moment: datetime) -> bytes:
    digits = moment.astimezone(UTC).strftime("%Y%m%d%H%M%SZ")
    is_long = digits >= "2050"  # RFC 5280, section 4.1.2.5
    return _der(_LONG_TIME if is_long else _UTC_TIME, (digits if is_long else digits[2:]).encode())


def _number(value: int) -> bytes:
    return _der(_INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _bits(value: bytes) -> bytes:
    return _der(_BITS, b"\x00" + value)


def _oid(text: str) -> bytes:
    first, second, *rest = (int(part) for part in text.split("."))
    found = bytearray()
    for number in (first * 40 + second, *rest):
        digits = [number & 0x7F]
        while number := number >> 7:
            digits.append(number & 0x7F | 0x80)
        found += bytes(reversed(digits))
    return _der(_OID, bytes(found))


def _der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def _parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the tag and content of each value in DER data. Raises ValueError if the data end too early."""
    at = 0
    while at < len(data):
        tag, size, begin = data[at], data[at + 1], at + 2
        if size & 0x80:
            digits = size & 0x7F
            size = int.from_bytes(data[begin : begin + digits], "big")
            begin += digits
        at = begin + size
        if at > len(data):
            raise ValueError("DER ends too early")
        yield tag, data[begin:at]


def _read_time(tag: int, content: bytes) -> datetime:
    text = content.decode("ascii")
    digits = text if tag == _LONG_TIME else f"20{text}"
    return datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _read_names(extensions: bytes) -> Iterator[str]:
    [(_, listed)] = _parts(extensions)
    for _, extension in _parts(listed):
        parts = list(_parts(extension))
        if _der(*parts[0]) != _oid("2.5.29.17"):
            continue
        [(_, names)] = _parts(parts[-1][1])
        for tag, content in _parts(names):
            if tag == _IP_ADDRESS:
                yield str(ipaddress.ip_address(content))
            elif tag == _DNS_NAME:
                yield content.decode("ascii")


def _pem(kind: str, raw: bytes) -> str:
    text = base64.b64encode(raw).decode()
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n"


def _from_pem(text: str, kind: str, source: str) -> bytes:
    for found in _PEM.finditer(text):
        if found[1] == kind:
            try:
                return base64.b64decode("".join(found[2].split()), validate=True)
            except ValueError:
                break
    raise InputError(f"{source}: contains no {kind.lower()}, or it is damaged")
