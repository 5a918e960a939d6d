"""The containers whose quadlets are in /etc/containers/systemd, for `ccm import container`."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from ccm_agent.resources.container.checks import NAME, NAME_LENGTH, check
from ccm_agent.resources.container.model import DIRECTORY, RUNNING, ContainerProperties, ContainerState
from ccm_agent.resources.container.providers.podman import LIMIT_BYTES, Podman
from ccm_agent.resources.container.quadlet import KEYS, parse
from ccm_agent.resources.container.resource import decide
from ccm_agent.resources.contract import DecisionContext
from ccm_agent.resources.existing import ExistingBuilder, ExistingResources, refuse_argument
from ccm_agent.resources.packaged import find_unchanged
from ccm_agent.resources.secret_signs import find_setting_sign, find_sign

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ccm_agent.model.ports import Tree, TreeEntry
    from ccm_agent.resources.contract import ResourceContext

FOLDER_BYTES = 16 << 20
QUADLET, VARIABLES, DROP_IN = ".container", ".env", ".container.d"
_SETTING = re.compile(r"(?P<key>[A-Za-z]{1,50})[ \t]*+=[ \t]*+(?P<value>[^\n]*+)")
_DIGEST = "@sha256:"


async def find_containers(context: ResourceContext, argument: str) -> ExistingResources:
    """
    Return the containers whose quadlets are as this type writes them. A manifest would change all others.

    Quadlets without an image's digest, with settings that the type does not have, or with signs of a secret, and other files of
    the folder are left out and reported by name.

    Raises:
        UsageError: An argument was given.
        FileError: The folder cannot be read, or its files are too large.
    """
    refuse_argument("container", argument)
    builder = ExistingBuilder("container", ContainerProperties, check)
    (look,) = await context.files.inspect([DIRECTORY], digest=False, follow=False)
    if look.kind != "directory":
        if look.kind != "absent":
            builder.leave_out(DIRECTORY, "is not a directory")
        return builder.result()
    tree: Tree = await context.port("trees").read(DIRECTORY, FOLDER_BYTES)
    entries = {entry.path: entry for entry in tree.entries}
    contents = {
        f"{DIRECTORY}/{path}": entry.content for path, entry in entries.items() if entry.kind == "file"
    }
    usual = {path.removeprefix(f"{DIRECTORY}/") for path in await find_unchanged(context, contents)}
    found = []
    for path, entry in entries.items():
        if path in usual or entry.kind == "directory" or _is_part(path, entries):
            continue
        name = path.removesuffix(QUADLET)
        if reason := _why_no_quadlet(path, entry) or _why_left_out(name, entries):
            builder.leave_out(name, reason)
        elif (one := parse(name, entry.content, b"")) is None:
            builder.leave_out(name, _foreign(path, entry.content.decode(errors="replace")))
        elif sign := find_setting_sign("", to_builtins(one)):
            builder.leave_out(name, sign)
        else:
            found.append(one)
    provider = Podman(
        context.runner,
        context.files,
        context.port("locks"),
        context.clock,
        asks_systemd=context.may_run_commands,
    )
    for one, state in zip(found, await provider.look_ahead(found) if found else [], strict=True):
        if reason := _why_changed(one, state):
            builder.leave_out(one.name, reason)
        else:
            builder.add(one.name, _properties(one))
    return builder.result()


def _is_part(path: str, entries: Mapping[str, TreeEntry]) -> bool:
    """Whether a file belongs to a quadlet that is imported or named: its variables, or a drop-in."""
    folder, _, name = path.partition("/")
    quadlet = folder.removesuffix(".d") if name else f"{path.removesuffix(VARIABLES)}{QUADLET}"
    return (folder.endswith(DROP_IN) if name else path.endswith(VARIABLES)) and quadlet in entries


def _why_no_quadlet(path: str, entry: TreeEntry) -> str:
    name = path.removesuffix(QUADLET)
    if "/" in path or name == path:
        return f"is not the quadlet of a container; use `ccm import file:{DIRECTORY}`"
    if len(name) > NAME_LENGTH or not NAME.fullmatch(name):
        return "has a name that this type does not have"
    if entry.kind != "file":
        return "is a symlink" if entry.kind == "symlink" else "is a FIFO, socket or device"
    return f"is larger than {LIMIT_BYTES >> 20} MiB" if len(entry.content) > LIMIT_BYTES else ""


def _why_left_out(name: str, entries: Mapping[str, TreeEntry]) -> str:
    """Return why a manifest should not or cannot have this container; "" if it can."""
    entry = entries[f"{name}{QUADLET}"]
    if sign := find_sign(entry.content, entry.mode):
        return sign
    if f"{name}{VARIABLES}" in entries:
        return "has variables, which are private (mode 0600)"
    if f"{name}{DROP_IN}" in entries:
        return f"has drop-ins, which this type does not have; use `ccm import file:{DIRECTORY}`"
    images = [
        match["value"]
        for match in _SETTING.finditer(entry.content.decode(errors="replace"))
        if match["key"] == "Image"
    ]
    if unpinned := next((image for image in images if _DIGEST not in image), ""):
        return f"its image `{unpinned[:100]}` has no digest, so its content may change"
    return ""


def _foreign(path: str, text: str) -> str:
    """Return why this type would write a quadlet differently."""
    section = text.partition("[Container]")[2].partition("\n[")[0]
    unknown = sorted({match["key"] for match in _SETTING.finditer(section)} - KEYS)
    what = (
        f"has `{unknown[0]}`, which this type does not have" if unknown else "is not as this type writes it"
    )
    return f"{what}; use `ccm import file:{posixpath.join(DIRECTORY, path)}`"


def _why_changed(wanted: ContainerProperties, state: ContainerState | None) -> str:
    """Return why an apply would change the container, and set its `ensure`."""
    if state is None:
        return "systemd or podman does not show its state"
    if state.active == "failed":
        return "its unit has failed, so whether it should run is unknown"
    wanted.ensure = state.ensure
    decision = decide(wanted, state, DecisionContext())
    if decision.error is not None:
        return decision.error.message
    return f"an apply would change it: {decision.reason}" if decision.steps else ""


def _properties(one: ContainerProperties) -> dict[str, Any]:
    properties: dict[str, Any] = to_builtins(one)
    del properties["name"]
    if one.ensure == RUNNING:
        del properties["ensure"]
    return properties
