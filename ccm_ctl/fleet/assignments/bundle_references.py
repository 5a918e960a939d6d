"""
The stored bundles, and the objects on the broker that need them: assignments and their history, schedules, runs and rollouts.

A recorded run needs its bundle even after its end, because the run can be repeated and its saved plan can be applied.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta

from msgspec import Struct

from ccm_agent.model.bundle import Bundle
from ccm_agent.model.errors import NotFoundError, ProtocolError, UsageError
from ccm_agent.model.ports import StoredObject
from ccm_agent.model.wire import ManifestRequest
from ccm_ctl.fleet.assignments.assignments import build_standing
from ccm_ctl.fleet.data.documents import decode_document
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.find_run import read_schedules
from ccm_ctl.fleet.runs.history import History

SHORT_DIGEST = 12
"""The number of characters of a digest that are shown."""

_LEAST = 4
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PREFIX = re.compile(rf"[0-9a-f]{{{_LEAST},64}}")

ASSIGNMENT = "assignment"
REVISION = "revision"
SCHEDULE = "schedule"
RUN = "run"
ENDED_RUN = "ended run"
ROLLOUT = "rollout"


class BundleReference(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    An object that needs a bundle.

    Attributes:
        kind: `assignment`, `revision` (an earlier revision of an assignment), `schedule`, `run`, `ended run` or `rollout`.
        name: The name of the assignment or schedule, or the ID of the run.
        revision: Revision of the assignment.
        scope: Scope of the assignment or schedule.
    """

    kind: str
    name: str
    revision: int = 0
    scope: str = ""


class BundleReferences:
    """
    The objects that need the stored bundles.

    Attributes:
        unreadable: Objects that could not be read. They may need any bundle.
    """

    def __init__(self) -> None:
        self.unreadable: list[str] = []
        self._found: dict[str, list[BundleReference]] = {}

    def add(self, digest: str, reference: BundleReference) -> None:
        """Record that an object needs a bundle."""
        self._found.setdefault(digest, []).append(reference)

    def of(self, digest: str) -> list[BundleReference]:
        """Return the objects that need a bundle, in the order in which they were found."""
        return self._found.get(digest, [])


async def find_bundles(fleet: Fleet) -> list[StoredObject]:
    """
    Find the stored bundles, newest first.

    An object whose name is not a digest is not a bundle. The store may also contain manifest sources, which nodes fetch by
    name.
    """
    return [one for one in reversed(await fleet.manifests.all()) if _DIGEST.fullmatch(one.name)]


def choose_bundle(bundles: Sequence[StoredObject], word: str) -> StoredObject:
    """
    Find a bundle by its digest or a prefix of the digest.

    Raises:
        UsageError: It cannot be a prefix of a digest, or it is ambiguous.
        NotFoundError: There is no such bundle.
    """
    prefix = word.lower()
    if not _PREFIX.fullmatch(prefix):
        raise UsageError(
            f"{word}: not a digest; write at least {_LEAST} hexadecimal digits of a digest from `ccmctl bundle list`"
        )
    found = [one for one in bundles if one.name.startswith(prefix)]
    if not found:
        raise NotFoundError(f"{word}: there is no such bundle; see `ccmctl bundle list`")
    if len(found) > 1:
        first, second = sorted(one.name for one in found)[:2]
        apart = next(place for place in range(64) if first[place] != second[place]) + 1
        shown = max(SHORT_DIGEST, apart)
        raise UsageError(
            f"{word}: {len(found)} bundles start with this, such as {first[:shown]} and {second[:shown]}; write more digits"
        )
    return found[0]


async def read_references(fleet: Fleet) -> BundleReferences:
    """Read the objects that need the stored bundles."""
    found = BundleReferences()
    await _add_assignments(fleet, found)
    left_out: list[str] = []
    schedules = await read_schedules(fleet, left_out)
    found.unreadable += [f"the schedule {subject}" for subject in sorted(left_out)]
    for schedule in schedules:
        bundle = _requested(schedule.request)
        if bundle is not None and schedule.has_effect:
            found.add(bundle.digest, BundleReference(kind=SCHEDULE, name=schedule.name, scope=schedule.scope))
    await _add_runs(fleet, found)
    return found


async def _add_assignments(fleet: Fleet, found: BundleReferences) -> None:
    """Add all stored revisions, including those of removed assignments, because `ccmctl rollback` restores them."""
    for newest in await fleet.assignments.matching([">"], deletions=True):
        for entry in await fleet.assignments.history(newest.key):
            if not entry.value:
                continue
            standing = build_standing(decode_document(entry))
            if standing is None:
                found.unreadable.append(f"entry {entry.revision} of the assignment {entry.key}")
                continue
            is_current = entry.revision == newest.revision
            reference = BundleReference(
                kind=ASSIGNMENT if is_current else REVISION,
                name=standing.name,
                revision=standing.revision,
                scope=standing.assignment.scope,
            )
            following = standing.assignment.next
            for digest in {one.bundle.digest for one in (standing.assignment, following) if one is not None}:
                found.add(digest, reference)


async def _add_runs(fleet: Fleet, found: BundleReferences) -> None:
    left_out: list[str] = []
    rollouts = {one.run for one in await RolloutStore(fleet).open_rollouts(left_out)}
    async for record, state, *_ in History(fleet).newest_first(left_out):
        digest = _recorded_digest(record.request)
        if digest:
            ended = ENDED_RUN if state.state == "done" else RUN
            kind = ROLLOUT if record.run in rollouts else ended
            found.add(digest, BundleReference(kind=kind, name=record.run))
    found.unreadable += [f"the record {key}" for key in sorted(left_out)]


async def find_unused(fleet: Fleet, older_than_s: float) -> list[StoredObject]:
    """
    Find the bundles that no object on the broker needs, newest first.

    The bundles are listed before the objects that need them are read. If a command stores one of these bundles in the meantime,
    its revision changes, so `Objects.remove` keeps it.

    Args:
        fleet: The fleet, whose bundles and references are read.
        older_than_s: Skip bundles stored within this time, because a command stores a bundle before the object that needs it.

    Raises:
        ProtocolError: An object that may need a bundle cannot be read.
    """
    bundles = await find_bundles(fleet)
    oldest = await fleet.assignments.now() - timedelta(seconds=older_than_s)
    for bucket in (fleet.assignments, fleet.runs):
        # a copied entry could hide another entry that needs a bundle
        await bucket.matching([">"], obeyed=True, deletions=True)
    references = await read_references(fleet)
    if references.unreadable:
        more = len(references.unreadable) - 1
        others = f" (and {more} more)" if more else ""
        raise ProtocolError(
            f"{references.unreadable[0]}{others}: cannot be read and may need any bundle, so no bundle is removed; "
            "remove the unreadable entries first"
        )
    return [
        one
        for one in bundles
        # an unreadable description does not show which chunks belong to the bundle
        if one.digest == one.name and one.time < oldest and not references.of(one.name)
    ]


def _requested(request: ManifestRequest) -> Bundle | None:
    return request.part.bundle if request.part is not None else request.bundle


def _recorded_digest(request: dict[str, object]) -> str:
    """Return the digest of the bundle in the record of a request, or "" if its manifest was sent inline."""
    part = request.get("part")
    bundle = (part if isinstance(part, dict) else request).get("bundle")
    digest = bundle.get("digest") if isinstance(bundle, dict) else ""
    return digest if isinstance(digest, str) else ""
