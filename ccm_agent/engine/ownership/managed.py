"""
Finds the names of the resources that a manifest and its children would manage on this node. Resources are not read or changed.
"""

from __future__ import annotations

import hashlib
import hmac
import posixpath
from collections.abc import Mapping

from ccm_agent.engine.context import ManifestContext
from ccm_agent.engine.load import ResolvedManifest
from ccm_agent.engine.run_state import SharedRunState
from ccm_agent.model.errors import CcmError
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.model.secret import Masker
from ccm_agent.resources.contract import ResolvedResource


async def managed(loaded: ResolvedManifest, state: SharedRunState, salt: bytes) -> dict[str, str]:
    """
    Return `type#name` of each resource that would be managed. An `apply` resource is replaced by the resources of its child.

    The keys are digests of the real names. Two manifests that manage the same resource have the same key, even if only one of
    them treats a part of the name as secret. In the values, secrets are masked, and a suffix distinguishes masked names.
    Without the salt, neither keys nor values reveal a name.

    Args:
        loaded: The manifest.
        state: The state of its run.
        salt: A random value that is the same for all manifests whose resources are compared.

    Raises:
        CcmError: A control cannot be evaluated.
    """
    collector = _Collector(salt)
    context = ManifestContext(
        state, loaded, noop=True, health_check_only=False, apply_resources=collector.collect
    )
    await collector.collect(context)
    return collector.found


class _Collector:
    """Collects names in place of the engine's loop, which applies resources."""

    def __init__(self, salt: bytes) -> None:
        self.found: dict[str, str] = {}
        self._salt = salt

    async def collect(self, context: ManifestContext) -> Mapping[tuple[str, str], TransactionEvent]:
        for declared in context.loaded.resources:
            with context.item_of(declared):
                await self._collect(declared, context)
        return {}

    async def _collect(self, declared: ResolvedResource, context: ManifestContext) -> None:
        if not await _is_managed(declared, context):
            return
        if declared.kind.contains_manifest:
            await self._child(declared, context)
        else:
            self._add(plain_reference(declared.kind.name, declared.wanted.name), context.state.masker)

    def _add(self, reference: str, masker: Masker) -> None:
        digest = managed_key(reference, self._salt)
        shown = masker.name(reference)
        self.found[digest] = shown if shown == reference else f"{shown} ({digest[:8]})"

    async def _child(self, declared: ResolvedResource, context: ManifestContext) -> None:
        try:
            _, provider = await context.provider(declared)
            await provider.apply_manifest(declared.wanted)
        except CcmError:
            # An earlier resource may create the child manifest or its data. A child that does not exist yet is left out.
            return


async def _is_managed(declared: ResolvedResource, context: ManifestContext) -> bool:
    control = declared.wanted.control
    if control is None:
        return True
    if control.if_ and not await context.holds(control.if_, declared):
        return False
    return not (control.unless and await context.holds(control.unless, declared))


def plain_reference(type_name: str, name: str) -> str:
    """Return the reference with a normalized path, so that extra slashes make no difference."""
    if name.startswith("/"):
        name = posixpath.normpath(name)
    return f"{type_name}#{name}"


def managed_key(reference: str, salt: bytes) -> str:
    """Return the key of a `plain_reference` in the result of `managed`."""
    return hmac.new(salt, reference.encode(errors="replace"), hashlib.sha256).hexdigest()
