"""
Messages of the domain name system: a question, and what is in an answer.

Only what a health check asks of a server that it names; the host's own resolver is asked through the system.

Source: RFC 1035; RFC 2782 (SRV), 3596 (AAAA), 4255 (SSHFP), 8659 (CAA).
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable

RECORDS = {
    "A": 1,
    "NS": 2,
    "CNAME": 5,
    "PTR": 12,
    "MX": 15,
    "TXT": 16,
    "AAAA": 28,
    "SRV": 33,
    "SSHFP": 44,
    "CAA": 257,
}
"""Numbers of the kinds of records that can be asked for."""

_HEADER = struct.Struct("!6H")
_RECORD = struct.Struct("!HHIH")
_INTERNET = 1
_RECURSION_WANTED, _RESPONSE, _TRUNCATED, _STATUS = 0x0100, 0x8000, 0x0200, 0x000F
_NO_ERROR, _NO_SUCH_NAME = 0, 3
_POINTER = 0xC0
_JUMPS = 64
_LABEL_BYTES, _NAME_BYTES = 63, 253


class TruncatedError(Exception):
    """The answer did not fit; it is to be asked for over TCP."""


def question(name: str, record: str, number: int) -> bytes:
    """
    A question to a server.

    Args:
        name: The name; for PTR an address.
        record: A key of `RECORDS`.
        number: What the answer will carry too, below 65536.

    Raises:
        ValueError: It is no name, or no address.
    """
    if record == "PTR":
        name = ipaddress.ip_address(name).reverse_pointer
    labels = [label.encode("ascii") for label in name.encode("idna").decode().rstrip(".").split(".")]
    if not all(0 < len(label) <= _LABEL_BYTES for label in labels) or len(name) > _NAME_BYTES:
        raise ValueError(f"`{name}` is no name")
    written = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    return (
        _HEADER.pack(number, _RECURSION_WANTED, 1, 0, 0, 0)
        + written
        + struct.pack("!HH", RECORDS[record], _INTERNET)
    )


def answers(data: bytes, asked: bytes, record: str) -> list[str]:
    """
    The records of a kind in the answer to a question, as texts, sorted; none for a name that there is not.

    Raises:
        ValueError: It is no answer to the question, is damaged, or the server refused.
        TruncatedError: See there.
    """
    try:
        return _answers(data, asked, record)
    except (struct.error, IndexError) as err:
        raise ValueError("the answer is damaged") from err


def _answers(data: bytes, asked: bytes, record: str) -> list[str]:
    number, flags, questions, count, _, _ = _HEADER.unpack_from(data)
    if number != int.from_bytes(asked[:2]) or not flags & _RESPONSE or questions != 1:
        raise ValueError("it answers another question")
    if flags & _TRUNCATED:
        raise TruncatedError
    if flags & _STATUS == _NO_SUCH_NAME:
        return []
    if flags & _STATUS != _NO_ERROR:
        raise ValueError(f"the server answered with the status {flags & _STATUS}")
    name, at = _name(data, _HEADER.size)
    wanted, _ = _name(asked, _HEADER.size)
    if name.lower() != wanted.lower():
        raise ValueError("it answers another question")
    at += 4
    found = []
    for _ in range(count):
        _, at = _name(data, at)
        kind, _, _, length = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        if at + length > len(data):
            raise ValueError("the answer is damaged")
        if kind == RECORDS[record]:
            found += _READERS[record](data, at, length)
        at += length
    return sorted(found)


def _name(data: bytes, at: int) -> tuple[str, int]:
    """A name with its last point, and where it ends; pointers lead back to names before."""
    labels: list[str] = []
    end = -1
    for _ in range(_JUMPS * 2):
        length = data[at]
        if length & _POINTER == _POINTER:
            end = at + 2 if end < 0 else end
            at = int.from_bytes(data[at : at + 2]) & 0x3FFF
        elif length == 0:
            return ".".join(labels) + ".", at + 1 if end < 0 else end
        else:
            label = data[at + 1 : at + 1 + length]
            labels.append(label.decode("ascii", "backslashreplace"))
            at += 1 + length
    raise ValueError("the answer is damaged: a name in it does not end")


def _read_address(data: bytes, at: int, length: int) -> list[str]:
    return [str(ipaddress.ip_address(data[at : at + length]))]


def _read_name(data: bytes, at: int, length: int) -> list[str]:
    return [_name(data, at)[0]]


def _read_mx(data: bytes, at: int, length: int) -> list[str]:
    return [f"{int.from_bytes(data[at : at + 2])} {_name(data, at + 2)[0]}"]


def _read_srv(data: bytes, at: int, length: int) -> list[str]:
    priority, weight, port = struct.unpack_from("!3H", data, at)
    return [f"{priority} {weight} {port} {_name(data, at + 6)[0]}"]


def _read_txt(data: bytes, at: int, length: int) -> list[str]:
    found, end = [], at + length
    while at < end:
        size = data[at]
        found.append(data[at + 1 : at + 1 + size].decode(errors="backslashreplace"))
        at += 1 + size
    return found


def _read_sshfp(data: bytes, at: int, length: int) -> list[str]:
    return [f"{data[at]} {data[at + 1]} {data[at + 2 : at + length].hex().upper()}"]


def _read_caa(data: bytes, at: int, length: int) -> list[str]:
    size = data[at + 1]
    tag = data[at + 2 : at + 2 + size].decode(errors="backslashreplace")
    return [f"{data[at]} {tag} {data[at + 2 + size : at + length].decode(errors='backslashreplace')}"]


_READERS: dict[str, Callable[[bytes, int, int], list[str]]] = {
    "A": _read_address,
    "AAAA": _read_address,
    "NS": _read_name,
    "CNAME": _read_name,
    "PTR": _read_name,
    "MX": _read_mx,
    "SRV": _read_srv,
    "TXT": _read_txt,
    "SSHFP": _read_sshfp,
    "CAA": _read_caa,
}
