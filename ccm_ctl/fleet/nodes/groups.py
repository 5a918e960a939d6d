"""
Groups: selectors that are saved under a name, for use as `--targets @NAME`.

A group is a signed document, `group.<name>` in CCM_TRUST. Only operators with `--admin` may write it, because it determines the
nodes of other operators' commands. The controller replaces groups by their selectors before it resolves targets. Stored requests,
assignments and schedules therefore contain no groups, and changing a group does not affect them (ADR 47).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice, product

import msgspec
from msgspec import Struct

from ccm_agent.bus.signatures.signing import SignatureError
from ccm_agent.bus.signatures.trust import GROUP_PREFIX as PREFIX
from ccm_agent.bus.signatures.trust import TRUST_BUCKET
from ccm_agent.bus.signatures.verified import Authored
from ccm_agent.model.errors import (
    BusSetupError,
    CcmError,
    NoTargetError,
    NotFoundError,
    ProtocolError,
    UsageError,
)
from ccm_agent.model.ports import KeyValueEntry
from ccm_agent.model.suggestions import did_you_mean
from ccm_agent.templates.selector import Selector, parse_selector, parse_targets
from ccm_ctl.fleet.data.documents import Documents, judged_document
from ccm_ctl.fleet.ports import DocumentBucket, Fleet
from ccm_ctl.fleet.trust.stored_snapshot import StoredSnapshot
from ccm_ctl.fleet.trust.verified_reader import Judged, open_reader

SELECTORS_LIMIT = 20
"""The maximum number of selectors in one group."""

LENGTH_LIMIT = 16_000
"""The maximum total length of a group's selectors, in characters."""

EXPANDED_LIMIT = 100
"""
The maximum number of selectors that replace one selector with groups. If it contains several groups, their selectors are
combined.
"""


class GroupDocument(Struct, frozen=True):
    """The content of a group's document: selectors, of which at least one must match."""

    targets: list[str]


class TargetGroup(Struct, frozen=True, kw_only=True):
    """
    A saved selector.

    Attributes:
        name: Its name.
        targets: The selectors, of which at least one must match.
        written_by, time, message: The author, the time and the reason.
        unverified: The reason why its signature is not valid. "": it is valid. Commands refuse an unverified group.
    """

    name: str
    targets: tuple[str, ...]
    written_by: str = ""
    time: datetime | None = None
    message: str = ""
    unverified: str = ""


def check_targets(targets: Sequence[str]) -> list[Selector]:
    """
    Check the selectors of a group.

    Raises:
        SelectorError: One of them does not parse.
        UsageError: There are too many, they are too long, or one of them is a group.
    """
    if not targets:
        raise UsageError("a group needs at least one selector; name it with --targets")
    if len(targets) > SELECTORS_LIMIT or sum(map(len, targets)) > LENGTH_LIMIT:
        raise UsageError(
            f"a group has at most {SELECTORS_LIMIT} selectors with {LENGTH_LIMIT} characters together; use a fact instead"
        )
    selectors = parse_targets(targets)
    for selector in selectors:
        if nested := next((term for term in selector.terms if term.is_group), None):
            raise UsageError(f"{nested}: a group cannot contain another group; write its selectors instead")
    return selectors


async def read_groups(fleet: Fleet) -> list[TargetGroup]:
    """
    Return all groups by name, including unverified ones. Unreadable groups are left out.

    Raises:
        BusError: The broker cannot be reached.
    """
    found = []
    for judged in await _read(fleet, [f"{PREFIX}*"]):
        try:
            found.append(_decode(judged))
        except ProtocolError:
            continue
    return found


async def expand_groups(fleet: Fleet, targets: Sequence[str]) -> tuple[str, ...]:
    """
    Return selectors with each group replaced by its selectors.

    Raises:
        NoTargetError: There is no such group.
        ProtocolError: A group cannot be read, or is not verified.
        UsageError: There would be too many selectors.
    """
    selectors = [parse_selector(text) for text in targets]
    names = {term.key for selector in selectors for term in selector.terms if term.is_group}
    if not names:
        return tuple(targets)
    entries = await _read(fleet, [f"{PREFIX}{name}" for name in sorted(names)])
    groups = {one.name: one for one in map(_decode, entries)}
    for one in groups.values():
        if one.unverified:
            raise SignatureError(
                f"@{one.name}: its document is not verified: {one.unverified}; write it again with `ccmctl group set`"
            )
    for name in sorted(names - groups.keys()):
        known = [one.name for one in await read_groups(fleet) if not one.unverified]
        near = did_you_mean(name, known) or "; see `ccmctl group list`"
        raise NoTargetError(f"@{name}: there is no such group{near}")
    found = [
        text
        for written, selector in zip(targets, selectors, strict=True)
        for text in _combine(written, selector, groups)
    ]
    if len(found) > EXPANDED_LIMIT:
        raise UsageError(f"the groups expand to more than {EXPANDED_LIMIT} selectors; use a fact instead")
    return tuple(found)


async def write_group(fleet: Fleet, name: str, targets: Sequence[str], message: str) -> bool:
    """
    Store a group. Returns whether it has changed.

    Raises:
        BusDeniedError: The operator lacks `--admin`.
    """
    body = msgspec.to_builtins(GroupDocument(list(targets)))
    documents = Documents(fleet, _bucket(fleet), TRUST_BUCKET)
    words = [Authored.from_arguments()]
    old, new = await documents.change(f"{PREFIX}{name}", lambda _: body, base=words, message=message)
    return old is not new


async def remove_group(fleet: Fleet, name: str) -> None:
    """
    Remove a group.

    Raises:
        NotFoundError: There is no such group.
        BusDeniedError: The operator lacks `--admin`.
    """
    bucket = _bucket(fleet)
    if await bucket.get(f"{PREFIX}{name}") is None:
        raise NotFoundError(f"{name}: there is no such group; see `ccmctl group list`")
    await Documents(fleet, bucket, TRUST_BUCKET).remove(f"{PREFIX}{name}")


def _combine(written: str, selector: Selector, groups: dict[str, TargetGroup]) -> list[str]:
    """
    Return the selectors that replace one selector with groups. Each combines its other terms with one selector of every group.
    """
    named = [groups[term.key].targets for term in selector.terms if term.is_group]
    if not named:
        return [written]
    others = [str(term) for term in selector.terms if not term.is_group]
    return [",".join([*chosen, *others]) for chosen in islice(product(*named), EXPANDED_LIMIT + 1)]


async def _read(fleet: Fleet, patterns: Sequence[str]) -> list[Judged]:
    try:
        entries = await _bucket(fleet).matching(patterns)
    except (BusSetupError, NotFoundError):
        return []  # a broker that was set up by an earlier version lacks the bucket
    snapshot = StoredSnapshot(fleet, await open_reader(fleet))
    return [await _judge(_bucket(fleet), snapshot, entry) for entry in entries]


async def _judge(bucket: DocumentBucket, snapshot: StoredSnapshot, newest: KeyValueEntry) -> Judged:
    """Judge a group using its history, because an earlier revision that was written again also has a valid signature."""
    entries = await bucket.history(newest.key)
    judged, _ = await snapshot.judge_history(TRUST_BUCKET, newest.key, entries or [newest])
    return judged[-1]


def _decode(judged: Judged) -> TargetGroup:
    """Decode the group in an entry. Raises ProtocolError if it cannot be read."""
    document = judged_document(judged)
    name = document.key.removeprefix(PREFIX)
    if document.is_plain or document.is_foreign:
        raise ProtocolError(f"@{name}: its document was not written by `ccmctl group set`")
    try:
        targets = tuple(msgspec.convert(document.body, GroupDocument).targets)
        check_targets(targets)
    except (msgspec.ValidationError, CcmError) as err:
        raise ProtocolError(f"@{name}: its document cannot be used: {err}") from err
    return TargetGroup(
        name=name,
        targets=targets,
        written_by=document.written_by,
        time=document.time,
        message=document.message,
        unverified=document.unverified,
    )


def _bucket(fleet: Fleet) -> DocumentBucket:
    if fleet.signers is None:
        raise BusSetupError("the groups of this broker cannot be read")
    return fleet.signers
