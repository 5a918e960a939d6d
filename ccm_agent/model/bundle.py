"""The content of a request: a packed directory or a part of a manifest."""

from __future__ import annotations

from msgspec import Struct

from ccm_agent.model.selection import ResourceSelection


class Bundle(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A packed directory in the object store.

    Attributes:
        digest, size_bytes: SHA-256 (hex) of the packed bytes, which is also the object's name, and their size.
        manifest: Path of the manifest inside the bundle.
    """

    digest: str
    size_bytes: int
    manifest: str = "manifest.yaml"


class PartialManifest(ResourceSelection, frozen=True, kw_only=True, omit_defaults=True):
    """
    A request to apply only a part of a manifest.

    The manifest is in this field and not in the request itself. An older agent, which does not support parts,
    therefore finds no manifest and applies nothing.

    Attributes:
        manifest, bundle: See ManifestRequest.
    """

    manifest: str = ""
    bundle: Bundle | None = None
