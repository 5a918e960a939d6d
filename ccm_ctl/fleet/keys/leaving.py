"""
Remove a leaving node's data: its assigned facts, data keys of secrets, slots and own entries. Its key is revoked.

The steps can be repeated after an interruption. The key is revoked first, and the name is freed last, so the data of a new node
with the same name cannot be removed.
"""

from __future__ import annotations

import msgspec

from ccm_agent.bus.layout import FACTS, SECRETS
from ccm_agent.bus.signatures.sealing import wraps_of
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.wire import NodeRecord
from ccm_ctl.fleet.data.documents import Documents
from ccm_ctl.fleet.keys.join_records import JoinRecords
from ccm_ctl.fleet.ports import Fleet

MACHINE_KEYS = ("node", "facts", "presence")
"""Keys that an agent writes about itself and its machine."""


async def leave_fleet(fleet: Fleet, records: JoinRecords, name: str, key: str) -> bool:
    """
    Remove the stored data of a node, and revoke its key. Can be repeated after an interruption.

    Args:
        fleet: The bus, with the credentials of an operator with `--join`, and `--facts` if the node has assigned facts.
        records: The records of joins.
        name: The node.
        key: Its verified public key.

    Returns:
        Whether anything was removed. False: the node had left before.

    Raises:
        BusError: The broker cannot be reached, or the operator lacks a right.
    """
    is_new = await records.mark_left(name, key, int(fleet.clock.now().timestamp()))
    joined = await records.find_node(name)
    if joined is not None and not joined.revoked:
        is_own = joined.key == key
    else:
        holder = await key_of_record(fleet, name)
        is_own = holder == key if holder is not None else is_new
    if not is_own:
        return False
    await remove_data_keys(fleet, name)
    if (await fleet.facts.get(name)) is not None:
        await Documents(fleet, fleet.facts, FACTS).remove(name)
    await _free_slots(fleet, name)
    for kind in MACHINE_KEYS[::-1]:
        await fleet.nodes.delete(f"{kind}.{name}")
    await records.forget_brief(name)
    await records.release(name, key)
    return True


async def key_of_record(fleet: Fleet, name: str) -> str | None:
    """Return the key in a node's record ("" if it cannot be read), or None if there is no record."""
    entry = await fleet.nodes.get(f"node.{name}")
    if entry is None or not entry.value:
        return None
    try:
        return decode_foreign(entry.value, NodeRecord).key
    except msgspec.MsgspecError:
        return ""


async def remove_data_keys(fleet: Fleet, name: str) -> bool:
    """Remove the data keys of secrets that are sealed to a node. Returns whether there were any."""
    if fleet.secrets is None:
        return False
    documents = Documents(fleet, fleet.secrets, SECRETS)
    found = [one for one in await fleet.secrets.matching([f"{wraps_of(name)}.*"]) if one.value]
    for entry in found:
        await documents.remove(entry.key)
    return bool(found)


async def _free_slots(fleet: Fleet, name: str) -> None:
    """Remove the node's entries for slots that it has or waits for."""
    if fleet.slots is None:
        return
    for entry in await fleet.slots.matching([f"*.{name}"]):
        if entry.value:
            await fleet.slots.delete(entry.key)
