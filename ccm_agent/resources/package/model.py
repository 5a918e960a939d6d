"""Properties and state of a package resource."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from ccm_agent.model.resource import CommonProperties, CommonState

LATEST = "latest"


class PackageProperties(CommonProperties, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A package of the system's package manager. `ensure` is `present`, `absent`, `latest` or a version."""

    name: Annotated[
        str, Meta(description="Package name as known to the package manager; `name:arch` works with apt.")
    ]
    ensure: Annotated[str, Meta(description="`present`, `absent`, `latest`, or a version.")] = ""


class PackageMetadata(Struct, kw_only=True, omit_defaults=True):
    """
    The state of a package in the package manager.

    Attributes:
        name: The package's name.
        version: The full version (with dnf, version and release); "absent" if the package is not installed.
        arch: Architecture, such as "amd64" or "noarch".
        provider: The provider that read the state.
        extended: For apt, `status` as reported by dpkg; for dnf, `epoch` and `release`.
    """

    name: str
    version: str
    arch: str = ""
    provider: str = ""
    extended: dict[str, Any] = {}


class PackageState(CommonState, kw_only=True):
    """The current state of a package. `ensure` is the version (for dnf, without release and epoch) or "absent"."""

    metadata: PackageMetadata
