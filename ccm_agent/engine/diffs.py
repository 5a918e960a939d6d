"""The diffs of one run: the changes of each resource, without secrets and limited in size."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ccm_agent.engine.masking import HIDDEN
from ccm_agent.model.errors import CcmError
from ccm_agent.model.records.policy import DIFF
from ccm_agent.model.resource_diff import (
    FILES_LISTED,
    RUN_LIMIT_BYTES,
    VALUE_LENGTH,
    FileDiff,
    PropertyChange,
    ResourceDiff,
)
from ccm_agent.model.secret import MASK, Masker
from ccm_agent.resources.changes import FileChange, TextLimits, file_diff, without_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ccm_agent.engine.request import ApplyOptions, OnDiff
    from ccm_agent.resources.contract import AnyType, Decision, ResolvedResource

WITHHELD = "the node's policy withholds diffs"


def run_diffs(options: ApplyOptions, masker: Masker) -> RunDiffs:
    """Return the object that creates a run's diffs, as its request and the node's policy allow."""
    grant = options.grant
    return RunDiffs(
        masker,
        is_wanted=options.diff,
        is_withheld=grant is not None and DIFF in grant.withheld,
        is_restricted=grant is not None and grant.is_restricted,
        on_diff=options.on_diff,
    )


class RunDiffs:
    """
    Creates the diffs of one run.

    Args:
        masker: Removes secrets from the diffs.
        is_wanted: Whether diffs were requested. If not, nothing is read or compared.
        is_withheld: Whether the node's policy withholds diffs.
        is_restricted: Whether the run is a plan of an operator who may not apply. A resource's `diff: true` then has no effect.
        on_diff: See `engine.request.OnDiff`.
    """

    def __init__(
        self,
        masker: Masker,
        *,
        is_wanted: bool,
        is_withheld: bool = False,
        is_restricted: bool = False,
        on_diff: OnDiff | None = None,
    ) -> None:
        self._masker = masker
        self._is_wanted = is_wanted
        self._is_withheld = is_withheld
        self._is_restricted = is_restricted
        self._on_diff = on_diff
        self._left_bytes = {False: RUN_LIMIT_BYTES, True: RUN_LIMIT_BYTES}

    async def of(
        self,
        declared: ResolvedResource,
        provider: Any,
        found: Any,
        decision: Decision,
        triggered_by: str,
        *,
        hides: bool = False,
    ) -> ResourceDiff | None:
        """
        Return the changes that the steps of a decision make. None if diffs were not requested. Never raises.

        With `hides`, lines of files are not shown, as for files that some local users cannot read.
        """
        if not self._is_wanted:
            return None
        if self._is_withheld:
            return ResourceDiff(why=WITHHELD)
        if declared.wanted.sensitive:
            return ResourceDiff(why=HIDDEN)
        why, contents = "", []
        try:
            if decision.contents is not None:
                contents = [
                    replace(one, is_private=True) if hides else one
                    for one in await decision.contents(provider)
                ]
        except CcmError as err:
            why = self._shown(str(err))
        shows_private = getattr(declared.wanted, "diff", False) and not self._is_restricted
        diff = ResourceDiff(
            properties=self._properties(declared, found, decision, contents),
            files=await asyncio.to_thread(self._files, contents, shows_private) if contents else [],
            files_left_out=max(0, len(contents) - FILES_LISTED),
            command=self._shown(decision.command),
            refresh=self._masker.name(triggered_by) if decision.refreshed else "",
            why=why,
        )
        if self._on_diff is not None and not hides and any(one.is_private for one in contents):
            local = await asyncio.to_thread(self._files, contents, True, is_local=True)
            self._on_diff(diff, replace(diff, files=local))
        return diff

    def _properties(
        self, declared: ResolvedResource, found: Any, decision: Decision, contents: Sequence[FileChange]
    ) -> list[PropertyChange]:
        changes = decision.changes
        is_described = changes or contents or decision.command or decision.refreshed
        if not is_described and found.ensure != declared.wanted.ensure:
            changes = (PropertyChange(property="ensure", before=found.ensure, after=declared.wanted.ensure),)
        return [self._property(declared.kind, one) for one in changes]

    def _property(self, kind: AnyType, change: PropertyChange) -> PropertyChange:
        if change.property in kind.rules.sensitive:
            return PropertyChange(property=change.property, before=MASK, after=MASK)
        return PropertyChange(
            property=change.property, before=self._shown(change.before), after=self._shown(change.after)
        )

    def _shown(self, text: str) -> str:
        masked = self._masker.text(text) if text else ""
        return masked if len(masked) <= VALUE_LENGTH else f"{masked[:VALUE_LENGTH]}…"

    def _files(
        self, contents: Sequence[FileChange], shows_private: bool, *, is_local: bool = False
    ) -> list[FileDiff]:
        """
        Compare contents. Blocking. With `is_local`, the diff is for `on_diff`, and the limits of events do not apply.
        """
        limits = TextLimits()
        files = []
        for one in contents[:FILES_LISTED]:
            diff = limits.fit(file_diff(one, self._masker.text, shows_private=shows_private))
            size = len(diff.text.encode(errors="replace"))
            if size > self._left_bytes[is_local]:
                diff, size = without_text(diff), 0
            self._left_bytes[is_local] -= size
            files.append(diff)
        return files
