"""
Groups: selectors that are saved under a name, for `--targets @NAME`.

A group is a signed document, `group.<name>` in CCM_TRUST, which only operators with `--admin` may write, because it chooses the
nodes of other operators' commands. The controller replaces a group by its selectors before it resolves them, so requests,
assignments and schedules contain no group, and a change of a group changes nothing that is stored (ADR 47).
"""

from __future__ import annotations

from datetime import datetime
from itertools import islice, product
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ccm_agent.bus.trust import TRUST_BUCKET
from ccm_agent.model.errors import (
    BusSetupError,
    CcmError,
    NoTargetError,
    NotFoundError,
    ProtocolError,
    UsageError,
)
from ccm_agent.model.suggestions import did_you_mean
from ccm_agent.templates.selector import Selector, parse_selector, parse_targets
from ccm_ctl.fleet.authors import read_newest_signers
from ccm_ctl.fleet.documents import Documents, decode_document
from ccm_ctl.fleet.operator_signatures import check_document_author

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ccm_agent.bus.trust import SignersList
    from ccm_agent.model.ports import KeyValueEntry
    from ccm_ctl.fleet.ports import Bucket, Fleet

PREFIX = "group."

SELECTORS_LIMIT = 20
"""Selectors of one group."""

LENGTH_LIMIT = 16_000
"""Characters of all selectors of one group."""

EXPANDED_LIMIT = 100
"""Selectors that one with groups may become: those of several groups are combined."""


class GroupDocument(Struct, frozen=True):
    """What a group's document holds: selectors, any of which is enough."""

    targets: list[str]


class TargetGroup(Struct, frozen=True, kw_only=True):
    """
    A saved selector.

    Attributes:
        name: Its name.
        targets: The selectors, any of which is enough.
        written_by, time, message: Who wrote it, when and why.
    """

    name: str
    targets: tuple[str, ...]
    written_by: str = ""
    time: datetime | None = None
    message: str = ""


def check_targets(targets: Sequence[str]) -> list[Selector]:
    """
    Check the selectors of a group.

    Raises:
        SelectorError: One of them is none.
        UsageError: They are too many or too long, or one of them is a group.
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
            raise UsageError(f"{nested}: a group cannot contain another one; write its selectors")
    return selectors


async def read_groups(fleet: Fleet) -> list[TargetGroup]:
    """
    All groups, by name. One that cannot be read or that no administrator signed is left out.

    Raises:
        BusError: The broker is away.
    """
    found = []
    entries, signers = await _read(fleet, [f"{PREFIX}*"])
    for entry in entries:
        try:
            found.append(_decode(fleet, entry, signers))
        except ProtocolError:
            continue
    return found


async def expand_groups(fleet: Fleet, targets: Sequence[str]) -> tuple[str, ...]:
    """
    Return selectors with each group replaced by what it means.

    Raises:
        NoTargetError: There is no such group.
        ProtocolError: A group cannot be read, or no administrator signed it.
        UsageError: They become too many selectors.
    """
    selectors = [parse_selector(text) for text in targets]
    names = {term.key for selector in selectors for term in selector.terms if term.is_group}
    if not names:
        return tuple(targets)
    entries, signers = await _read(fleet, [f"{PREFIX}{name}" for name in sorted(names)])
    groups = {entry.key.removeprefix(PREFIX): _decode(fleet, entry, signers) for entry in entries}
    for name in sorted(names - groups.keys()):
        known = [one.name for one in await read_groups(fleet)]
        near = did_you_mean(name, known) or "; `ccmctl group list` shows which there are"
        raise NoTargetError(f"@{name}: there is no such group{near}")
    found = [
        text
        for written, selector in zip(targets, selectors, strict=True)
        for text in _combine(written, selector, groups)
    ]
    if len(found) > EXPANDED_LIMIT:
        raise UsageError(f"the groups become more than {EXPANDED_LIMIT} selectors; use a fact instead")
    return tuple(found)


async def write_group(fleet: Fleet, name: str, targets: Sequence[str], message: str) -> bool:
    """
    Store a group; whether it is another one than before.

    Raises:
        BusDeniedError: Only operators with `--admin` may.
    """
    body = msgspec.to_builtins(GroupDocument(list(targets)))
    documents = Documents(fleet, _bucket(fleet), TRUST_BUCKET)
    old, new = await documents.change(f"{PREFIX}{name}", lambda _: body, message=message)
    return old is not new


async def remove_group(fleet: Fleet, name: str) -> None:
    """
    Remove a group.

    Raises:
        NotFoundError: There is none.
        BusDeniedError: Only operators with `--admin` may.
    """
    bucket = _bucket(fleet)
    if await bucket.get(f"{PREFIX}{name}") is None:
        raise NotFoundError(f"{name}: there is no such group; `ccmctl group list` shows which there are")
    await Documents(fleet, bucket, TRUST_BUCKET).remove(f"{PREFIX}{name}")


def _combine(written: str, selector: Selector, groups: dict[str, TargetGroup]) -> list[str]:
    """The selectors that one with groups means: of each group one, and its other terms."""
    named = [groups[term.key].targets for term in selector.terms if term.is_group]
    if not named:
        return [written]
    others = [str(term) for term in selector.terms if not term.is_group]
    return [",".join([*chosen, *others]) for chosen in islice(product(*named), EXPANDED_LIMIT + 1)]


async def _read(fleet: Fleet, patterns: Sequence[str]) -> tuple[list[KeyValueEntry], SignersList | None]:
    try:
        entries = await _bucket(fleet).matching(patterns)
    except (BusSetupError, NotFoundError):
        return [], None  # the broker of an earlier version has no such bucket
    return entries, await read_newest_signers(fleet, fleet.trust) if fleet.trust else None


def _decode(fleet: Fleet, entry: KeyValueEntry, signers: SignersList | None) -> TargetGroup:
    """The group in an entry; ProtocolError if it cannot be read, or no administrator signed it."""
    name = entry.key.removeprefix(PREFIX)
    if fleet.trust is not None:
        check_author(entry, signers, int(fleet.clock.now().timestamp() * 1000))
    document = decode_document(entry)
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
    )


def check_author(entry: KeyValueEntry, signers: SignersList | None, now_ms: int) -> None:
    """
    Check that an administrator signed a group.

    Raises:
        SignatureError: None did.
    """
    check_document_author(
        signers,
        TRUST_BUCKET,
        entry,
        now_ms,
        lambda signer: "" if signer.admin else "not signed by an operator with `--admin`",
    )


def _bucket(fleet: Fleet) -> Bucket:
    if fleet.signers is None:
        raise BusSetupError("the groups of this broker cannot be read")
    return fleet.signers
