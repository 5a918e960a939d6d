"""What this host has of a type, for `ccm import`."""

from __future__ import annotations

from ccm_agent.app import App, ApplyOptions
from ccm_agent.model.errors import UsageError
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.existing import ExistingResources


async def find_existing(app: App, type_name: str, argument: str) -> ExistingResources:
    """
    Return what this host has of a type.

    Args:
        app: The adapters of this process.
        type_name: The type.
        argument: What to narrow it to, such as a directory; "" for all.

    Raises:
        ManifestError: The type is unknown.
        UsageError: The type cannot be imported, or the argument cannot be used.
        CcmError: No provider works here, or the host cannot be read.
    """
    kind = app.catalog.find(type_name)
    context = await app.engine().context(ApplyOptions(environ={}))
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
