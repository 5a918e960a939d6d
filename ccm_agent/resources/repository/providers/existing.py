"""Finds the repositories that no package installed, for `ccm import repository`."""

from __future__ import annotations

import posixpath

from ccm_agent.resources.contract import ResourceContext
from ccm_agent.resources.existing import ExistingBuilder, ExistingResources, refuse_argument
from ccm_agent.resources.file.providers.existing import find_files
from ccm_agent.resources.packaged import read_own_files
from ccm_agent.resources.repository.checks import NAME, check
from ccm_agent.resources.repository.formats import FORMATS
from ccm_agent.resources.repository.model import RepositoryProperties
from ccm_agent.resources.repository.providers.files import RepositoryFiles
from ccm_agent.resources.repository.undo import described_properties
from ccm_agent.resources.secret_signs import find_sign

INSTALLED = frozenset({"debian.sources", "ubuntu.sources"})
"""Files that distribution installers write and that do not belong to a package."""


async def find_repositories(
    context: ResourceContext, argument: str, manager: str, provider: RepositoryFiles
) -> ExistingResources:
    """
    Return the repositories whose files have the form that this type writes. Other files are omitted, because a manifest would
    change them.

    A key in another location that does not belong to a package is returned as a separate file resource.

    Raises:
        UsageError: An argument was given.
        FileError: A file cannot be read.
    """
    refuse_argument("repository", argument)
    place = FORMATS[manager]
    files = await read_own_files(context, place.directory)
    builder = ExistingBuilder("repository", RepositoryProperties, check)
    names = []
    for path, entry in files.items():
        base = posixpath.basename(path)
        name = base.removesuffix(place.suffix)
        if base in INSTALLED:
            continue
        if sign := find_sign(entry.content, entry.mode):
            builder.leave_out(base, sign)
        elif not base.endswith(place.suffix) or not NAME.fullmatch(name):
            builder.leave_out(base, _foreign(place.directory))
        else:
            names.append(name)
    states = await provider.look_ahead([RepositoryProperties(name=name) for name in names]) if names else []
    for state in states:
        properties = described_properties(state)
        if properties is None:
            builder.leave_out(state.name, _foreign(place.directory))
            continue
        if key := properties.get("signed_by"):
            (look,) = await context.files.inspect([key], digest=False, follow=False)
            if look.kind in ("file", "symlink") and posixpath.normpath(key) == key:
                builder.add_found(await find_files(context, key))
        usual = {"description": state.name, "types": ["deb"], "enabled": True}
        builder.add(
            state.name, {name: value for name, value in properties.items() if usual.get(name) != value}
        )
    return builder.result()


def _foreign(directory: str) -> str:
    return f"differs from what this type writes; use `ccm import file:{directory}`"
