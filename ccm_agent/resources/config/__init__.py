"""The config type: keys of configuration files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.config.model import ConfigProperties
from ccm_agent.resources.config.resource import check
from ccm_agent.resources.contract import (
    CommandLine,
    Flag,
    ProviderSpec,
    ResourceContext,
    ResourceType,
    UndoRules,
)
from ccm_agent.resources.edited_files import EditedState, decide, earlier, identify, reach

if TYPE_CHECKING:
    from ccm_agent.resources.existing import ExistingResources


def _make_posix(context: ResourceContext) -> Any:
    from ccm_agent.resources.config.providers.posix import PosixConfig

    return PosixConfig(context.files, context.runner)


async def _find_existing(context: ResourceContext, argument: str) -> ExistingResources:
    from ccm_agent.resources.config.providers.existing import find_keys

    return await find_keys(context, argument)


def _gather(given: dict[str, Any]) -> dict[str, Any]:
    """Parse the value as JSON. A value that is not JSON is used as text."""
    import json

    if not isinstance(given.get("value"), str):
        return given
    try:
        return {**given, "value": json.loads(given["value"])}
    except (ValueError, RecursionError):
        return given  # not JSON


TYPE: ResourceType[ConfigProperties, EditedState] = ResourceType(
    name="config",
    summary="Keys of ini, JSON, TOML and YAML files.",
    properties=ConfigProperties,
    state=EditedState,
    decide=decide,
    check=check,
    ensure=(PRESENT, ABSENT),
    default_ensure=PRESENT,
    is_extension=True,
    reach=reach,
    undo=UndoRules(earlier=earlier, identify=identify),
    providers=(ProviderSpec(name="posix", make=_make_posix, rank=1, find_existing=_find_existing),),
    command=CommandLine(
        hidden=frozenset({"values", "diff"}),
        flags=(
            Flag(field="key", names=("--key",), kind="text", placeholder="PATH"),
            Flag(
                field="value",
                names=("--value",),
                kind="text",
                placeholder="VALUE",
                help="JSON or plain text.",
            ),
        ),
        gather=_gather,
        examples=(
            "/etc/app.toml --key server.port --value 8080 --diff",
            "/etc/docker/daemon.json --key log-driver --value journald --create",
            "/etc/app.ini absent --key main.debug",
        ),
    ),
)
