"""
Finds signs of a secret in a file, so that an import leaves the file out. A false positive is better than a secret in a
manifest.
"""

from __future__ import annotations

import re

PRIVATE_BITS = 0o004
"""The read permission for other users. A file without it is private, because its owner has excluded some users."""

_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""The byte order marks at the beginning of a text in UTF-16."""

_SIGNS = (
    ("a private key", re.compile(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|AGE-SECRET-KEY-1")),
    ("a token", re.compile(rb"\beyJ[A-Za-z0-9_-]{8,2000}\.eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{16}")),
    (
        "a password of PostgreSQL",
        re.compile(rb"^[^\s:#]{1,255}:(?:\d{2,5}|\*):[^\s:]{1,100}:[^\s:]{1,100}:\S", re.MULTILINE),
    ),
    ("a password", re.compile(rb"\b(?:mysql|mariadb)[a-z_-]{0,20}\b[^\n]{0,200}?[ \t]-p[^\s-]")),
    ("a NATS seed", re.compile(rb"\bS[UAOXN][A-Z2-7]{56}\b")),
    (
        "an access key",
        re.compile(
            rb"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[pousr]_[A-Za-z0-9]{36}\b|\bxox[abprs]-[A-Za-z0-9-]{10}|\bAIza[A-Za-z0-9_-]{35}"
            rb"|(?i:\bauthorization[\"' \t:=]{1,8}(?:bearer|basic)[ \t]{1,8}[A-Za-z0-9+/=._~-]{6})"
        ),
    ),
    (
        "a password hash",
        re.compile(
            rb"\$(?:apr1|2[aby]|[1567]|y|gy|argon2i?d?)\$[./A-Za-z0-9$=,]{8}|\{S?SHA(?:256|512)?\}[A-Za-z0-9+/]{20}"
        ),
    ),
    (
        "a URL with a password",
        re.compile(
            rb"[a-z][a-z0-9+.-]{1,20}://[^\s/:@\"']{1,200}:[^\s/@\"']{1,200}@|https?://[^\s/@\"'<${]{8,200}@"
        ),
    ),
)
_SETTING = re.compile(
    rb"(?:pass(?:word|wd|phrase)?|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|psk|credentials?)"
    rb"[A-Za-z0-9_.-]{0,40}+[\"']?[ \t]{0,40}(?:[:=]|[ \t])[ \t]{0,40}[\"']?[^\s\"'/<${][^\s\"']{3,}",
    re.IGNORECASE,
)
_NAME = re.compile(
    r"pass|pwd|secret|token|credential|cookie|salt|psk|dsn|pin$|pw$|(?:^|[_.-])auth$"
    r"|(?:api|access|private|encrypt|encryption|sign|signing|master|session|auth|account|shared|host|server|ssh|license)[_.-]?key",
    re.IGNORECASE,
)
"""The names of settings whose values may be secrets."""
_RANDOM = re.compile(
    r"(?=[^a-z]*+[a-z])(?=[^A-Z]*+[A-Z])(?=[^0-9]*+[0-9])[A-Za-z0-9+=_-][A-Za-z0-9+/=_-]{19,}+|[0-9A-Fa-f]{32,}+"
)
"""A value that looks random: long, with letters of both cases and digits, or hexadecimal."""
_COMMENT = re.compile(rb"[ \t]*[#;]|[^\n]*?[ \t]#[ \t]")
"""The beginning of a comment line, or of a comment at the end of a line."""


def find_sign(content: bytes, mode: int) -> str:
    """
    Return the reason why a file may contain a secret, such as "contains a private key". "" if there is no sign of a secret.

    Args:
        content: The file's content.
        mode: The file's permissions.
    """
    if not mode & PRIVATE_BITS:
        return f"is private (mode {mode:04o})"
    texts = [content]
    if content[:2] in _UTF_16:
        texts.append(content.decode("utf-16", "replace").encode())
    for what, sign in _SIGNS:
        if any(sign.search(text) for text in texts):
            return f"contains what looks like {what}"
    return "contains what looks like a password or token" if any(map(_has_setting, texts)) else ""


def find_setting_sign(name: str, value: object) -> str:
    """
    Return the reason why a setting may be a secret; see `find_sign`. "" if there is no sign of a secret.

    Args:
        name: The setting's name, with the names above it, such as `database.password`.
        value: The value. Values inside lists and mappings are checked, too.
    """
    if isinstance(value, dict):
        # `{name: password, value: …}` is a setting, too
        given = ".".join(str(value[key]) for key in ("name", "key") if isinstance(value.get(key), str))
        names = {key: given if key == "value" and given else str(key) for key in value}
        signs = (
            find_name_sign(str(key)) or find_setting_sign(f"{name}.{names[key]}", one)
            for key, one in value.items()
        )
        return next(filter(None, signs), "")
    if isinstance(value, list):
        # an option such as `--password` names the next element
        named = [name, *(one if isinstance(one, str) and one.startswith("-") else name for one in value)]
        return next(filter(None, map(find_setting_sign, named, value)), "")
    if value is None or isinstance(value, bool) or value == "":
        return ""
    if _NAME.search(name):
        return "contains what looks like a password or token"
    return find_name_sign(str(value))


def is_secret_name(name: str) -> bool:
    """Whether the value of a setting with this name may be a secret."""
    return bool(_NAME.search(name))


def find_name_sign(text: str) -> str:
    """Return the reason why a text may be a secret, whatever its name is; see `find_sign`. It may also be the name itself."""
    if _RANDOM.fullmatch(text):
        return "contains what looks like a key"
    # text after a `#` is not a comment here
    content = text.encode(errors="backslashreplace")
    return find_sign(content, PRIVATE_BITS) or find_sign(re.sub(rb"[#;]", b" ", content), PRIVATE_BITS)


def _has_setting(text: bytes) -> bool:
    """Whether a setting whose name indicates a secret has a value, anywhere in a line. Comments are ignored."""
    at = 0
    while found := _SETTING.search(text, at):
        begin = text.rfind(b"\n", 0, found.start()) + 1
        if not _COMMENT.match(text, begin, found.start()):
            return True
        end = text.find(
            b"\n", found.start()
        )  # continue with the next line; searching a huge line again would be slow
        if end < 0:
            return False
        at = end
    return False
