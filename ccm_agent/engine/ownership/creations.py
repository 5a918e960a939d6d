"""
The record of the resources that a run creates, written before each creation, so that a later run may remove them; see `prune`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ccm_agent.engine.undo import Change, identify_parts, look_after
from ccm_agent.model.errors import CcmError, HostError
from ccm_agent.model.records.undo import EarlierFile, EarlierState, Identity, UndoEntry
from ccm_agent.model.resource import ABSENT
from ccm_agent.resources.contract import ResolvedResource
from ccm_agent.sessions.creation_ledger import CreationLedger, LedgerEntry

if TYPE_CHECKING:
    from ccm_agent.engine.secrets import Secrets
    from ccm_agent.model.ports import Files
    from ccm_agent.model.secret import Masker
    from ccm_agent.resources.contract import Decision


class CreationWriter:
    """
    Records the resources that one run creates, and its changes to other resources.

    Args:
        ledger: The ledger of the run's manifest.
        run: The id of the run.
        files: The files of the host.
        masker: Contains the secrets of the run. A resource with a secret in its name is not recorded, so it is never removed.
        secrets: The secrets of the run, including the values that were sealed.
        note: Reports a note of the run.
    """

    def __init__(
        self,
        ledger: CreationLedger,
        run: str,
        files: Files,
        masker: Masker,
        secrets: Secrets,
        note: Callable[..., None],
    ) -> None:
        self._ledger = ledger
        self._run = run
        self._files = files
        self._masker = masker
        self._secrets = secrets
        self._note = note
        self._is_full = False

    def around(
        self, declared: ResolvedResource, provider: Any, found: Any, decision: Decision, change: Change
    ) -> Change:
        """Return a change that writes the record before and after the given change."""
        if declared.kind.undo is None or declared.kind.contains_manifest:
            return change
        return lambda: self._record(declared, provider, found, decision, change)

    async def _record(
        self, declared: ResolvedResource, provider: Any, found: Any, decision: Decision, change: Change
    ) -> Any:
        parts = await self._parts(declared, provider, found, decision)
        await self._put([entry for _, entry in parts])
        try:
            state = await change()
        except CcmError as err:
            await self._left(declared, parts, await look_after(err, declared, provider))
            raise
        await self._left(declared, parts, state)
        return state

    async def _parts(
        self, declared: ResolvedResource, provider: Any, found: Any, decision: Decision
    ) -> list[tuple[UndoEntry, LedgerEntry]]:
        """Return the parts that are about to change, each with its new record."""
        rules = declared.kind.undo
        assert rules is not None
        try:
            if rules.parts is None:
                earlier = [await rules.earlier(declared.wanted, found, decision, _keep_nothing)]
            else:
                earlier = [one async for one in rules.parts(declared.wanted, provider, _keep_nothing)]
        except CcmError:
            return []  # the state before the change is unknown, so the manifest does not own the resource
        is_secret = declared.wanted.sensitive or self._secrets.are_in(declared)
        found_parts = []
        for one in earlier:
            part = UndoEntry(
                type=one.type or declared.kind.name,
                name=one.name or declared.wanted.name,
                why_not=one.why_not,
            )
            if self._masker.name(part.name) == part.name:
                found_parts.append((part, self._entry(declared, part, one, is_secret=is_secret)))
        return found_parts

    def _entry(
        self, declared: ResolvedResource, part: UndoEntry, earlier: EarlierState, *, is_secret: bool
    ) -> LedgerEntry:
        known = self._ledger.entries.get((part.type, part.name))
        is_new = not earlier.why_not and earlier.properties.get("ensure") == ABSENT
        owners: tuple[str, ...] = (declared.reference,)
        if known is not None:
            owners = tuple(dict.fromkeys((*known.owners, *owners)))
            if not is_new:
                # the manifest still owns a resource that it created and now changes again
                return replace(known, owners=owners, left=None)
        removal = earlier.properties if is_new and declared.wanted.ensure != ABSENT else {}
        if removal and is_secret:
            removal = {**removal, "sensitive": True}
        return LedgerEntry(type=part.type, name=part.name, owners=owners, run=self._run, removal=removal)

    async def _left(
        self, declared: ResolvedResource, parts: Sequence[tuple[UndoEntry, LedgerEntry]], state: Any
    ) -> None:
        """Record the state after a change. An unknown state is not recorded."""
        rules = declared.kind.undo
        assert rules is not None
        now: Sequence[Identity | None]
        if rules.parts is not None:
            now = await identify_parts(self._files, declared, [part for part, _ in parts], digest=True)
        else:
            now = [None if state is None else rules.identify(state)] * len(parts)
        known = [
            replace(entry, left=left)
            for (_, entry), left in zip(parts, now, strict=True)
            if entry.removal and left is not None
        ]
        await self._put(known)

    async def _put(self, entries: Sequence[LedgerEntry]) -> None:
        if not entries:
            return
        try:
            recorded = await asyncio.to_thread(self._ledger.put, entries)
        except HostError as err:
            raise type(err)(f"{err.message}; `prune: off` works without a record") from err
        if recorded < len(entries) and not self._is_full:
            self._is_full = True
            self._note(
                "warning",
                "Too many resources are on record, so some that this run creates will not be pruned",
            )


async def _keep_nothing(path: str, *, with_content: bool) -> EarlierFile:
    """A `KeepFile` that keeps nothing, because a file that already exists was not created by this run."""
    return EarlierFile()
