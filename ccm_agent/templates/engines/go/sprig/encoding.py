"""
Sprig's encodings, checksums, random text and passwords.

Functions that would require a cryptography library (`bcrypt`, AES, keys, certificates) are refused with a
reason: see `missing.py`.

Source: masterminds.github.io/sprig, "Encoding Functions", "Cryptographic and Security Functions", "UUID Functions".
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import string
import uuid
import zlib
from collections.abc import Callable
from typing import Any

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.engines.bounds import check_length
from ccm_agent.templates.values import from_bytes, to_bytes

_COUNTER_MAX = 2**32 - 1
_BASE64 = (string.ascii_letters + string.digits + "+/").encode()
_BASE32 = (string.ascii_uppercase + "234567").encode()
_LINE_ENDS = b"\r\n"
_PAD = ord("=")


def _b64enc(text: str) -> str:
    return base64.b64encode(to_bytes(text)).decode()


def _b64dec(text: str) -> str:
    """Decode base64. For invalid text the result is an error message, as in Sprig."""
    data = to_bytes(text)
    wrong = _wrong_base64(data)
    return (
        f"illegal base64 data at input byte {wrong}"
        if wrong >= 0
        else from_bytes(base64.b64decode(_bare(data)))
    )


def _bare(data: bytes) -> bytes:
    return data.translate(None, _LINE_ENDS)


def _wrong_base64(data: bytes) -> int:
    """
    Return the position at which Go's decoder stops, or -1. Line ends are skipped but included in the
    position.
    """
    held = 0  # position within a group of four
    for place, byte in enumerate(data):
        if byte in _BASE64:
            held = (held + 1) % 4
        elif byte not in _LINE_ENDS:
            return _wrong_padding(data, place, held) if byte == _PAD and held > 1 else place
    return len(data) - held if held else -1


def _wrong_padding(data: bytes, place: int, held: int) -> int:
    """
    Check the padding, which follows two or three characters of a group. See `_wrong_base64` for the result.
    """
    rest = [index for index in range(place + 1, len(data)) if data[index] not in _LINE_ENDS]
    if held == 2:
        if not rest:
            return len(data)
        if data[rest[0]] != _PAD:
            return rest[0] - 1
        del rest[0]
    return rest[0] if rest else -1


def _b32enc(text: str) -> str:
    return base64.b32encode(to_bytes(text)).decode()


def _b32dec(text: str) -> str:
    data = _bare(to_bytes(text))
    wrong = _wrong_base32(data)
    if wrong >= 0:
        return f"illegal base32 data at input byte {wrong}"
    letters = data.partition(b"=")[0]  # Go ignores everything after the padding
    return from_bytes(base64.b32decode(letters + b"=" * (-len(letters) % 8)))


def _wrong_base32(data: bytes) -> int:
    """Return the position at which Go's decoder stops, or -1."""
    for place, byte in enumerate(data):
        held, left = place % 8, len(data) - place - 1
        if byte == _PAD and held > 1 and left < 8:
            if held + left < 7:
                return len(data)
            other = next((index for index in range(7 - held) if data[place + 1 + index] != _PAD), None)
            if other is not None:
                return place + other
            return place if held in (3, 6) else -1
        if byte not in _BASE32:
            return place
    return len(data) - len(data) % 8 if len(data) % 8 else -1


def _sha1sum(text: str) -> str:
    return hashlib.sha1(to_bytes(text), usedforsecurity=False).hexdigest()


def _sha256sum(text: str) -> str:
    return hashlib.sha256(to_bytes(text)).hexdigest()


def _sha512sum(text: str) -> str:
    return hashlib.sha512(to_bytes(text)).hexdigest()


def _adler32sum(text: str) -> str:
    return str(zlib.adler32(to_bytes(text)))


def _random(alphabet: str, count: int) -> str:
    if count < 0:
        raise TemplateError(f"text cannot have {count} characters")
    check_length(count)
    return "".join(secrets.choice(alphabet) for _ in range(count))


def _rand_alpha_num(count: int) -> str:
    return _random(string.ascii_letters + string.digits, count)


def _rand_alpha(count: int) -> str:
    return _random(string.ascii_letters, count)


def _rand_numeric(count: int) -> str:
    return _random(string.digits, count)


def _rand_ascii(count: int) -> str:
    return _random("".join(map(chr, range(32, 127))), count)


def _rand_bytes(count: int) -> str:
    if count < 0:
        raise TemplateError(f"there are no {count} bytes")
    check_length(count)
    return base64.b64encode(secrets.token_bytes(count)).decode()


def _rand_int(least: int, most: int) -> int:
    if most <= least:
        raise TemplateError(f"there is no whole number from {least} to below {most}")
    return least + secrets.randbelow(most - least)


def _shuffle(text: str) -> str:
    chars = list(text)
    secrets.SystemRandom().shuffle(chars)
    return "".join(chars)


def _uuidv4() -> str:
    return str(uuid.uuid4())


_PASSWORDS = {
    "maximum": "anoxxxxxxxxxxxxxxxxx axxxxxxxxxxxxxxxxxno",
    "long": (
        "CvcvnoCvcvCvcv CvcvCvcvnoCvcv CvcvCvcvCvcvno CvccnoCvcvCvcv CvccCvcvnoCvcv CvccCvcvCvcvno CvcvnoCvccCvcv "
        "CvcvCvccnoCvcv CvcvCvccCvcvno CvcvnoCvcvCvcc CvcvCvcvnoCvcc CvcvCvcvCvccno CvccnoCvccCvcv CvccCvccnoCvcv "
        "CvccCvccCvcvno CvcvnoCvccCvcc CvcvCvccnoCvcc CvcvCvccCvccno CvccnoCvcvCvcc CvccCvcvnoCvcc CvccCvcvCvccno"
    ),
    "medium": "CvcnoCvc CvcCvcno",
    "short": "Cvcn",
    "basic": "aaanaaan aannaaan aaannaaa",
    "pin": "nnnn",
}
_CONSONANTS = "bcdfghjklmnpqrstvwxyz"
_CHARACTERS = {
    "V": "AEIOU",
    "C": _CONSONANTS.upper(),
    "v": "aeiou",
    "c": _CONSONANTS,
    "A": "AEIOU" + _CONSONANTS.upper(),
    "a": "AEIOUaeiou" + _CONSONANTS.upper() + _CONSONANTS,
    "n": string.digits,
    "o": "@&%?,=[]_:-+*$#!'^~;()/.",
    "x": "AEIOUaeiou" + _CONSONANTS.upper() + _CONSONANTS + string.digits + "!@#$%^&*()",
}
_SCOPE = b"com.lyndir.masterpassword"


def _derive_password(counter: int, kind: str, password: str, user: str, site: str) -> str:
    """
    Derive a reproducible password for a site with the Master Password algorithm.

    Source: spectre.app, "The Spectre Algorithm", version 1 parameters.
    """
    layouts = _PASSWORDS.get(kind, "").split()
    if not layouts:
        return f"cannot find password template {kind}"
    if not 0 <= counter <= _COUNTER_MAX:
        raise TemplateError(f"a counter is a number from 0 to {_COUNTER_MAX}")
    salt = _SCOPE + _counted(user)
    key = hashlib.scrypt(to_bytes(password), salt=salt, n=32768, r=8, p=2, maxmem=1 << 26, dklen=64)
    message = _SCOPE + _counted(site) + counter.to_bytes(4, "big")
    seed = hmac.new(key, message, hashlib.sha256).digest()
    layout = layouts[seed[0] % len(layouts)]
    return "".join(
        _CHARACTERS[mark][byte % len(_CHARACTERS[mark])] for mark, byte in zip(layout, seed[1:], strict=False)
    )


def _counted(text: str) -> bytes:
    data = to_bytes(text)
    return len(data).to_bytes(4, "big") + data


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "adler32sum": _adler32sum,
    "b32dec": _b32dec,
    "b32enc": _b32enc,
    "b64dec": _b64dec,
    "b64enc": _b64enc,
    "derivePassword": _derive_password,
    "randAlpha": _rand_alpha,
    "randAlphaNum": _rand_alpha_num,
    "randAscii": _rand_ascii,
    "randBytes": _rand_bytes,
    "randInt": _rand_int,
    "randNumeric": _rand_numeric,
    "sha1sum": _sha1sum,
    "sha256sum": _sha256sum,
    "sha512sum": _sha512sum,
    "shuffle": _shuffle,
    "uuidv4": _uuidv4,
}
