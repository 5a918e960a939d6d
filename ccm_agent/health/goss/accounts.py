"""Look up users and groups in this host's passwd and group files. Directory services are not queried, as in goss."""

from __future__ import annotations

from typing import Any

from ccm_agent.health.goss.found import GossQuery, NoValue

LIMIT_BYTES = 16 << 20


async def look_at_user(look: GossQuery) -> dict[str, Any]:
    """See `LookAt`."""
    name = look.subject
    fields = next((row for row in await _rows(look, "/etc/passwd", 7) if row[0] == name), None)
    if fields is None:
        return {**dict.fromkeys(look.asked, NoValue("there is no such user")), "exists": False}
    values: dict[str, Any] = {
        "exists": True,
        "uid": int(fields[2]),
        "gid": int(fields[3]),
        "home": fields[5],
        "shell": fields[6],
    }
    if "groups" in look.asked:
        rows = await _rows(look, "/etc/group", 4)
        values["groups"] = sorted(
            {row[0] for row in rows if row[2] == fields[3] or name in row[3].split(",")}
        )
    return values


async def look_at_group(look: GossQuery) -> dict[str, Any]:
    """See `LookAt`."""
    fields = next((row for row in await _rows(look, "/etc/group", 4) if row[0] == look.subject), None)
    if fields is None:
        return {**dict.fromkeys(look.asked, NoValue("there is no such group")), "exists": False}
    return {"exists": True, "gid": int(fields[2])}


async def _rows(look: GossQuery, path: str, length: int) -> list[list[str]]:
    """Return the valid lines of passwd(5) or group(5), which have the right number of fields and numeric IDs."""
    text = (await look.host.files.read(path, LIMIT_BYTES)).decode(errors="replace")
    rows = [line.split(":") for line in text.split("\n")]
    numbers = (2, 3) if length == 7 else (2,)
    return [row for row in rows if len(row) == length and all(row[at].isdecimal() for at in numbers)]
