"""Find this host's existing resources, for `ccm import` and for the requests of `ccmctl import`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ccm_agent.app import App, ApplyOptions
from ccm_agent.model.errors import CcmError, InputError, UsageError
from ccm_agent.model.records.host_import import FoundResource, HostResources, LeftOutResource, printable
from ccm_agent.model.resource import PRESENT
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.contract import ResolvedResource
from ccm_agent.resources.existing import ExistingResource, ExistingResources

if TYPE_CHECKING:
    from ccm_agent.engine.context import ManifestContext


async def find_existing(app: App, type_name: str, argument: str) -> ExistingResources:
    """
    Return this host's resources of a type.

    Args:
        app: The adapters of this process.
        type_name: The type.
        argument: Restricts the search, such as to a directory; "" for all resources.

    Raises:
        ManifestError: The type is unknown.
        UsageError: The type cannot be imported, or the argument cannot be used.
        CcmError: No provider works here, or the host cannot be read.
    """
    return await _find(app, await app.engine().context(ApplyOptions(environ={})), type_name, argument)


async def find_host_resources(app: App, types: Sequence[str], options: ApplyOptions) -> HostResources:
    """
    Return this host's resources of types, without those that the policy forbids to manage.

    `left_out` names resources that are forbidden or cannot be read, or a whole type with the name `*`.

    Args:
        app: The adapters of this process.
        types: The types, from `IMPORT_TYPES`.
        options: The options, with the requester's permissions.
    """
    context = await app.engine().context(options)
    resources: list[FoundResource] = []
    left_out: list[LeftOutResource] = []
    for type_name in types:
        permission = context.state.permission
        refused: CcmError | None = permission.refuse_type(type_name) if permission is not None else None
        try:
            found = ExistingResources() if refused else await _find(app, context, type_name, "")
        except CcmError as err:
            refused, found = err, ExistingResources()
        if refused is not None:
            left_out.append(LeftOutResource(type=type_name, name="*", reason=refused.message))
        left_out += found.left_out
        for one in found.resources:
            kind = one.kind or type_name
            if reason := await _refusal(app, context, kind, one):
                left_out.append(LeftOutResource(type=kind, name=printable(one.name), reason=reason))
            else:
                resources.append(FoundResource(type=kind, name=one.name, properties=one.properties))
    return HostResources(resources=resources, left_out=left_out)


async def _refusal(app: App, context: ManifestContext, type_name: str, one: ExistingResource) -> str:
    """Return why a resource is left out; "" if it is not."""
    if one.has_source:
        return f"has contents; use `ccm import {type_name}` on the host"
    if not f"{one.name}{one.properties}".isascii():
        try:
            f"{one.name}{one.properties}".encode()
        except UnicodeEncodeError:
            return "is not UTF-8 text"
    permission = context.state.permission
    if permission is None:
        return ""
    kind = app.catalog.find(type_name)
    try:
        wanted = kind.properties(name=one.name, **{"ensure": PRESENT, **one.properties})
        refused = await permission.refusal(ResolvedResource(kind=kind, wanted=wanted), "/")
    except (InputError, TypeError) as err:
        return str(err)
    return refused.message if refused is not None else ""


async def _find(app: App, context: ManifestContext, type_name: str, argument: str) -> ExistingResources:
    kind = app.catalog.find(type_name)
    spec = await context.state.registry.pick(kind, "", context.facts)
    if spec.find_existing is None:
        raise UsageError(
            f"resources of the type `{kind.name}` cannot be imported with {spec.name}; types that can be: "
            f"{', '.join(_importable(app.catalog))}"
        )
    with context.state.secrets.kept_out_of_errors():
        return await spec.find_existing(context, argument)


def _importable(catalog: Catalog) -> list[str]:
    kinds = map(catalog.find, catalog.names())
    return [kind.name for kind in kinds if any(one.find_existing for one in kind.providers)]
