"""
Sprig's encodings, checksums, random text and passwords.

What needs a library for cryptography that we do not have (`bcrypt`, AES, keys, certificates) is known by name and refused:
see `missing.py`.

Source: masterminds.github.io/sprig, "Encoding Functions", "Cryptographic and Security Functions", "UUID Functions".
"""

from __future__ import annotations

import base64
import binascii
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
_BASE64 = string.ascii_letters + string.digits + "+/"
_BASE32 = string.ascii_uppercase + "234567"
_LINE_ENDS = str.maketrans("", "", "\r\n")


def _b64enc(text: str) -> str:
    return base64.b64encode(to_bytes(text)).decode()


def _b64dec(text: str) -> str:
    """The text that base64 stands for; what is none gives a message in place of it, as Sprig does."""
    body = text.translate(_LINE_ENDS)
    wrong = _wrong_base64(body)
    return f"illegal base64 data at input byte {wrong}" if wrong >= 0 else from_bytes(base64.b64decode(body))


def _wrong_base64(body: str) -> int:
    """Where Go's decoder stops, or -1."""
    bare = body.rstrip("=")
    wrong = next((place for place, char in enumerate(bare) if char not in _BASE64), -1)
    if wrong >= 0:
        return wrong
    padding, over = len(body) - len(bare), len(bare) % 4
    if not padding:
        return len(bare) - over if over else -1
    if over < 2:
        return len(bare)
    if padding < 4 - over:
        return len(body)
    return len(bare) + 4 - over if padding > 4 - over else -1


def _b32enc(text: str) -> str:
    return base64.b32encode(to_bytes(text)).decode()


def _b32dec(text: str) -> str:
    body = text.translate(_LINE_ENDS)
    bare = body.rstrip("=")
    wrong = next((place for place, char in enumerate(bare) if char not in _BASE32), len(bare))
    try:
        return from_bytes(base64.b32decode(body))
    except (binascii.Error, ValueError):
        return f"illegal base32 data at input byte {wrong}"


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
    A password for a site that can be derived again: the Master Password algorithm.

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
