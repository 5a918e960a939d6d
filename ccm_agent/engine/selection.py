"""
The resources that a run leaves out, because its operator did not select them or an operator locked them on this node.

Their outcome is `skipped`, with the reason. Their pending refreshes remain pending.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

from ccm_agent.model.errors import ManifestError
from ccm_agent.model.outcome import LOCKED, NOT_SELECTED
from ccm_agent.model.records.undo import NOT_UNDONE
from ccm_agent.model.suggestions import did_you_mean
from ccm_agent.resources.contract import ResolvedResource
from ccm_agent.resources.converge import skip, subscriptions

if TYPE_CHECKING:
    from ccm_agent.engine.load import ResolvedManifest
    from ccm_agent.engine.refreshes import ManifestScope
    from ccm_agent.engine.request import ApplyOptions
    from ccm_agent.engine.undo import RunUndo
    from ccm_agent.model.outcome import TransactionEvent
    from ccm_agent.model.secret import Masker
    from ccm_agent.model.selection import ResourceSelection
    from ccm_agent.resources.run_context import RunContext

NAMED_LIMIT = 20
"""The maximum number of requirements that a summary names."""


class Exclusions:
    """
    The resources that one run leaves out.

    Args:
        options: The options of the run.
        undo: Decides which resources an undo leaves unchanged.
        masker: Masks the names in messages.
        note: Reports a note of the run: its level, message and fields.

    Attributes:
        needs: Resources that were left out although selected resources require or subscribe to them, as sentences that may be
            shown. At most 20.
    """

    def __init__(
        self, options: ApplyOptions, undo: RunUndo, masker: Masker, note: Callable[..., None]
    ) -> None:
        self.needs: list[str] = []
        self._undo = undo
        self._masker = masker
        self._note = note
        self._selection = options.selection
        self._lock = options.lock
        self._left: set[str] = set()
        self._has_selected = bool(options.done)

    def check(self, loaded: ResolvedManifest) -> None:
        """
        Refuse a selection that matches nothing, before anything is changed.

        Child manifests are read when they are applied. If there are any, this check is made at the end of the run; see
        `is_empty`.

        Raises:
            ManifestError: The selection matches nothing. The error suggests the nearest name.
        """
        selection = self._selection
        if selection is None or any(one.kind.contains_manifest for one in loaded.resources):
            return
        if any(_is_selected(one, selection) for one in loaded.resources):
            return
        known = [name for one in loaded.resources for name in _references(one)]
        known_tags = sorted({tag for one in loaded.resources for tag in one.wanted.tags})
        unknown = [name for name in selection.only if name not in known]
        hint = did_you_mean(unknown[0], known) if unknown else ""
        if not selection.only and selection.tags:
            hint = did_you_mean(selection.tags[0], known_tags)
        raise ManifestError(f"no resource of {loaded.document.name} matches {selection}{hint}")

    @property
    def is_empty(self) -> bool:
        """Whether a selection was requested and no resource matched it."""
        return self._selection is not None and not self._has_selected

    def event(
        self, declared: ResolvedResource, run: RunContext, manifest: ManifestScope
    ) -> TransactionEvent | None:
        """Return the outcome of a resource that is left out. None if the resource must be applied."""
        if self._selection is not None and not self._takes(declared, manifest, self._selection):
            event = skip(declared, run, f"not selected by {self._selection}")
            event.code = NOT_SELECTED
        elif why := self._undo.why_not(declared):
            event = skip(declared, run, why)
            event.code = NOT_UNDONE
        elif self._lock is not None and (why := self._lock(_references(declared))):
            event = skip(declared, run, why)
            event.code = LOCKED
        else:
            self._note_needs(declared)
            return None
        self._left.update(_references(declared))
        return event

    def _takes(
        self, declared: ResolvedResource, manifest: ManifestScope, selection: ResourceSelection
    ) -> bool:
        around = list(_manifests_around(manifest))
        if selection.skips(declared.wanted.tags):
            return False
        if any(_is_named(one, selection) for one in (declared, *around)):
            self._has_selected = True
            return True
        # the child manifest may contain selected resources
        return declared.kind.contains_manifest

    def _note_needs(self, declared: ResolvedResource) -> None:
        """Record the excluded resources that an applied resource needs."""
        name = self._masker.name
        for verb, references in (
            ("requires", declared.wanted.require),
            ("subscribes to", subscriptions(declared)),
        ):
            for reference in references:
                if reference in self._left:
                    sentence = f"{name(declared.reference)} {verb} {name(reference)}"
                    self._note(
                        "warning", "A resource that another one needs was not selected", needs=sentence
                    )
                    if len(self.needs) < NAMED_LIMIT:
                        self.needs.append(sentence)


def _is_selected(declared: ResolvedResource, selection: ResourceSelection) -> bool:
    return _is_named(declared, selection) and not selection.skips(declared.wanted.tags)


def _is_named(declared: ResolvedResource, selection: ResourceSelection) -> bool:
    return selection.names(_references(declared), declared.wanted.tags)


def _manifests_around(manifest: ManifestScope) -> list[ResolvedResource]:
    """Return the `apply` resources that contain a manifest, outermost first."""
    chain = (*manifest.parents, manifest)
    found = (outer.outline.nested.get(inner.asked_by) for outer, inner in pairwise(chain))
    return [one for one in found if one is not None]


def _references(declared: ResolvedResource) -> list[str]:
    """Return the references of a resource: by name and by alias."""
    names = dict.fromkeys((declared.wanted.name, declared.wanted.alias))
    return [f"{declared.kind.name}#{name}" for name in names if name]
