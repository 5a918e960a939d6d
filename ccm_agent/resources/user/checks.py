"""Checks the properties of a user before anything is changed."""

from __future__ import annotations

import posixpath
from datetime import date

from ccm_agent.model.resource import ABSENT
from ccm_agent.resources.account_names import check_exclusive, check_name, check_names, check_number
from ccm_agent.resources.checks import check_each, refuse
from ccm_agent.resources.user.key_lines import FILE_BYTES, LINE_LENGTH, parse_line
from ccm_agent.resources.user.model import UserProperties
from ccm_agent.resources.user.passwords import NEVER, is_hash, locks_of

ROOT = "root"
PATH_LENGTH = 1024
COMMENT_LENGTH = 1024


def check(wanted: UserProperties) -> None:
    """Refuse invalid properties."""
    check_each(
        wanted,
        lambda wanted: check_name(wanted.name, "user", "name"),
        _check_uid,
        _check_group,
        lambda wanted: check_names(wanted.groups, "group", "groups"),
        lambda wanted: check_exclusive(wanted.groups, is_exclusive=wanted.groups_exclusive, field="groups"),
        lambda wanted: _check_path(wanted.home, "home"),
        lambda wanted: _check_path(wanted.shell, "shell"),
        _check_comment,
        _check_purge,
        _check_expires,
        _check_password,
        _check_keys,
        lambda wanted: check_exclusive(
            wanted.authorized_keys, is_exclusive=wanted.authorized_keys_exclusive, field="authorized_keys"
        ),
    )


def _check_uid(wanted: UserProperties) -> None:
    if wanted.uid == 0 and wanted.name != ROOT:
        refuse("`uid: 0` is root; another user with this number would have all rights of root", "uid")


def _check_group(wanted: UserProperties) -> None:
    if wanted.group and wanted.gid is not None:
        refuse("`group` and `gid` are mutually exclusive: remove one of them", "gid")
    if wanted.group.isdigit():
        check_number(wanted.group, "group")
    elif wanted.group:
        check_name(wanted.group, "group", "group")


def _check_path(path: str, field: str) -> None:
    if not path:
        return
    if len(path) > PATH_LENGTH:
        refuse(f"`{field}` is too long: {len(path)} characters, at most {PATH_LENGTH} are allowed", field)
    if not path.startswith("/") or path.startswith("//") or posixpath.normpath(path) != path:
        refuse(f"`{field}` must be an absolute path without `..`, `.` and extra slashes, not {path!r}", field)
    if ":" in path or not path.isprintable():
        refuse(f"`{field}` must not contain colons or control characters: {path!r}", field)


def _check_comment(wanted: UserProperties) -> None:
    comment = wanted.comment or ""
    if len(comment) > COMMENT_LENGTH:
        refuse(
            f"`comment` is too long: {len(comment)} characters, at most {COMMENT_LENGTH} are allowed",
            "comment",
        )
    if ":" in comment or not comment.isprintable():
        refuse(
            f"`comment` must not contain colons, line breaks or control characters: {comment!r}", "comment"
        )


def _check_purge(wanted: UserProperties) -> None:
    if wanted.purge_home and wanted.ensure != ABSENT:
        refuse(
            f"`purge_home: true` is only valid with `ensure: absent`, not with `ensure: {wanted.ensure}`",
            "purge_home",
        )


def _check_expires(wanted: UserProperties) -> None:
    if wanted.expires in ("", NEVER):
        return
    try:
        day = date.fromisoformat(wanted.expires)
    except ValueError:
        refuse(
            f"`expires` must be a day such as 2027-01-31, or `never`, not {wanted.expires[:40]!r}", "expires"
        )
    if day.isoformat() != wanted.expires or day.year < 1970:
        refuse(
            f"`expires` must be a day such as 2027-01-31, or `never`, not {wanted.expires[:40]!r}", "expires"
        )


def _check_password(wanted: UserProperties) -> None:
    """Refuse an invalid password hash. Errors do not quote the value, because it may be a plain password."""
    if wanted.locked is False and locks_of(wanted.password_hash or ""):
        refuse(
            "`locked: false` and a `password_hash` that is locked with `!` are mutually exclusive", "locked"
        )
    if wanted.password_hash is None or is_hash(wanted.password_hash):
        return
    if not wanted.password_hash:
        refuse(
            "`password_hash` is empty, which allows a login without a password; use `*` to disable password login",
            "password_hash",
        )
    refuse(
        "`password_hash` is not a crypt(5) hash, such as $y$… or $6$…; a plain password is not accepted. "
        "`openssl passwd -6` creates a hash",
        "password_hash",
    )


def _check_keys(wanted: UserProperties) -> None:
    """Refuse invalid keys. Errors do not quote the lines, because they may contain a private key."""
    lines = wanted.authorized_keys or ()
    for number, line in enumerate(lines):
        if len(line) > LINE_LENGTH:
            why = f"has {len(line)} characters; at most {LINE_LENGTH} are allowed"
        elif "PRIVATE KEY" in line:
            why = "is a private key; use the public key"
        elif not line.replace("\t", " ").isprintable():
            why = "contains a line break or a control character; write one key per item"
        elif not line.startswith("#") and parse_line(line) is None:
            why = "is not a public key, such as `ssh-ed25519 AAAA… alice@laptop`"
        else:
            continue
        refuse(f"line {number + 1} of `authorized_keys` {why}", f"authorized_keys[{number}]")
    if sum(len(line.encode()) + 1 for line in lines) > FILE_BYTES:
        refuse(f"`authorized_keys` is larger than {FILE_BYTES >> 20} MiB", "authorized_keys")
