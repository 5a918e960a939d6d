"""The user type: local users, their groups, passwords and SSH keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.contract import (
    CommandLine,
    Probe,
    ProviderSpec,
    ResourceContext,
    ResourceType,
    UndoRules,
)
from ccm_agent.resources.user.checks import check
from ccm_agent.resources.user.model import UserProperties, UserState
from ccm_agent.resources.user.resource import decide, reach
from ccm_agent.resources.user.undo import earlier, identify

if TYPE_CHECKING:
    from ccm_agent.resources.existing import ExistingResources


def _make_shadow(context: ResourceContext) -> Any:
    from ccm_agent.resources.user.providers.shadow import ShadowUsers

    return ShadowUsers(context.runner, context.files, context.port("locks"), context.port("key_files"))


def _has_shadow(facts: Mapping[str, Any], probe: Probe) -> bool:
    return probe.has_program("useradd")


async def _find_existing(context: ResourceContext, argument: str) -> ExistingResources:
    from ccm_agent.resources.user.providers.existing import find_users

    return await find_users(context, argument)


TYPE: ResourceType[UserProperties, UserState] = ResourceType(
    name="user",
    summary="Local users: numbers, groups, home, shell, password hash and SSH keys.",
    properties=UserProperties,
    state=UserState,
    decide=decide,
    check=check,
    ensure=(PRESENT, ABSENT),
    default_ensure=PRESENT,
    is_extension=True,
    reach=reach,
    undo=UndoRules(earlier=earlier, identify=identify),
    ignorable={
        "uid": {"uid": None},
        "group": {"group": ""},
        "gid": {"gid": None},
        "groups": {"groups": None, "groups_exclusive": False},
        "home": {"home": ""},
        "shell": {"shell": ""},
        "comment": {"comment": None},
        "locked": {"locked": None},
        "expires": {"expires": ""},
        "password_hash": {"password_hash": None},
        "authorized_keys": {"authorized_keys": None, "authorized_keys_exclusive": False},
    },
    command=CommandLine(
        examples=("deploy --uid 1500 --shell /bin/bash", "alice --groups docker --locked", "guest absent"),
        # hidden, because other users of the host can read command lines
        hidden=frozenset({"password_hash"}),
    ),
    providers=(
        ProviderSpec(
            name="shadow", make=_make_shadow, rank=10, is_usable=_has_shadow, find_existing=_find_existing
        ),
    ),
)
