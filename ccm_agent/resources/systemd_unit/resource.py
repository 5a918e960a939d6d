"""Decides the steps of a systemd_unit resource. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ccm_agent.model.errors import FileError
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.model.resource_diff import PropertyChange
from ccm_agent.resources.checks import check_each, refuse
from ccm_agent.resources.contract import Decision, DecisionContext, HostAccess, Step
from ccm_agent.resources.systemd_unit.model import LIMIT_BYTES, SystemdUnitProperties, SystemdUnitState

_CHARS = r"(?:[A-Za-z0-9:_.-]|\\x[0-9a-f]{2})*"
_KINDS = "service|socket|timer|path|mount|automount|swap|target|slice|device"
UNIT = re.compile(rf"[A-Za-z0-9_]{_CHARS}(?:@{_CHARS})?\.(?:{_KINDS})")
DROP_IN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9:_.@-]*\.conf")
NAME_LENGTH = 200
"""The maximum length of a name. systemd allows 255, but temporary files and the directory `UNIT.d` need longer names."""
SHOWN = 100
_MASKED = "the content is empty, and systemd treats an empty unit file as masked"


def check(wanted: SystemdUnitProperties) -> None:
    """Refuse values that do not name a unit, that refer to another file, or that systemd would ignore."""
    check_each(wanted, _check_name, _check_unit, _check_drop_in, _check_given, _check_content, _check_source)


def _check_name(wanted: SystemdUnitProperties) -> None:
    name = wanted.name
    if not name or not name.isprintable() or len(name) > NAME_LENGTH:
        refuse(
            f"the name must be printable and have at most {NAME_LENGTH} characters: {name[:SHOWN]!r}", "name"
        )


def _check_unit(wanted: SystemdUnitProperties) -> None:
    unit, field = wanted.unit_name, "unit" if wanted.unit else "name"
    if len(unit) > NAME_LENGTH or not UNIT.fullmatch(unit):
        hint = "" if wanted.unit else "; set `unit` if this is not the name of the unit"
        refuse(
            f"{unit[:SHOWN]!r} is not a systemd unit: write it with its suffix, such as `nginx.service` or `backup.timer`"
            f"{hint}",
            field,
        )


def _check_drop_in(wanted: SystemdUnitProperties) -> None:
    drop_in = wanted.drop_in
    if drop_in and (len(drop_in) > NAME_LENGTH or not DROP_IN.fullmatch(drop_in)):
        refuse(
            f"{drop_in[:SHOWN]!r} is not the name of a drop-in: use only letters, digits, `_` and `-`, and `.conf` at the end, "
            "such as `limits.conf`; systemd ignores other files",
            "drop_in",
        )


def _check_given(wanted: SystemdUnitProperties) -> None:
    if wanted.content is not None and wanted.source:
        refuse("`content` and `source` are mutually exclusive: remove one of them", "source")
    if wanted.ensure == PRESENT and wanted.content is None and not wanted.source:
        refuse("`content` or `source` is required", "content")


def _check_content(wanted: SystemdUnitProperties) -> None:
    content = wanted.content
    if content is None:
        return
    if not content:
        refuse(f"{_MASKED}; remove the unit with `ensure: absent`", "content")
    if "\0" in content:
        refuse("`content` contains a NUL character", "content")
    if len(content.encode(errors="replace")) > LIMIT_BYTES:
        refuse(f"`content` is larger than {LIMIT_BYTES >> 20} MiB, so it is not a unit", "content")


def _check_source(wanted: SystemdUnitProperties) -> None:
    source = wanted.source
    if not source.isprintable():
        refuse("`source` contains line breaks or other control characters", "source")
    if source.startswith(("http://", "https://")):
        refuse("`source` is a URL, which this type does not fetch: use a local file, or `content`", "source")


def reach(wanted: SystemdUnitProperties) -> HostAccess:
    """Return the host objects that the resource accesses; see `ResourceType`."""
    return HostAccess(
        paths=(wanted.path,),
        reads=(wanted.source,) if wanted.source else (),
        services=(wanted.unit_name,),
    )


def decide(wanted: SystemdUnitProperties, found: SystemdUnitState, context: DecisionContext) -> Decision:
    """Decide the steps with the decision table of the systemd_unit type; see docs/resources/systemd_unit.md."""
    if problem := _problem(wanted, found):
        return Decision(error=FileError(problem))
    if difference := _difference(wanted, found):
        return Decision(
            steps=(_change(wanted, found),),
            reason=difference,
            changes=tuple(_changes(wanted, found)),
            contents=lambda p: p.compare(wanted),
        )
    if found.needs_reload and not context.verifying:
        return Decision(
            steps=(Step(noop="Would have reloaded systemd", action=lambda p: p.reload(wanted)),),
            reason="systemd has not loaded the file",
            changes=(PropertyChange(property="loaded", before="earlier version", after="current"),),
        )
    return Decision()


def _problem(wanted: SystemdUnitProperties, found: SystemdUnitState) -> str:
    """Return the reason why the file cannot be managed; "" if it can."""
    if found.kind == "symlink":
        if found.link == "/dev/null":
            return f"{wanted.path} is a symlink to /dev/null: the unit is masked; `systemctl unmask` it first"
        return f"{wanted.path} is a symlink to {found.link}, which `systemctl` created: manage that unit, or remove the symlink"
    if found.kind not in ("absent", "file"):
        return f"{wanted.path} is not a regular file: {found.error or f'it is a {found.kind}'}"
    if wanted.ensure == ABSENT:
        return ""
    if found.error:
        return found.error
    return "" if found.desired_size else f"{wanted.path}: {_MASKED}"


def _difference(wanted: SystemdUnitProperties, found: SystemdUnitState) -> str:
    if wanted.ensure == ABSENT:
        return "" if found.kind == "absent" else f"{wanted.path} exists"
    if found.kind == "absent":
        return f"{wanted.path} does not exist"
    if found.checksum != found.desired_checksum:
        return f"{wanted.path} has different content"
    mode = f"{wanted.mode_bits:04o}"
    if (found.mode, found.uid, found.gid) != (mode, 0, 0):
        return f"{wanted.path} has mode {found.mode}, owner {found.uid} and group {found.gid}, wanted {mode}, 0 and 0"
    return ""


def _change(wanted: SystemdUnitProperties, found: SystemdUnitState) -> Step:
    what = "drop-in" if wanted.drop_in else "unit"
    if wanted.ensure == ABSENT:
        return Step(noop=f"Would have removed the {what}", action=lambda p: p.remove(wanted))
    verb = "created" if found.kind == "absent" else "changed"
    return Step(noop=f"Would have {verb} the {what}", action=lambda p: p.store(wanted))


def _changes(wanted: SystemdUnitProperties, found: SystemdUnitState) -> Iterator[PropertyChange]:
    if found.ensure != wanted.ensure:
        yield PropertyChange(property="ensure", before=found.ensure, after=wanted.ensure)
    if wanted.ensure == PRESENT and found.kind == "file":
        for name, before, after in (
            ("mode", found.mode, f"{wanted.mode_bits:04o}"),
            ("owner", str(found.uid), "0"),
            ("group", str(found.gid), "0"),
        ):
            if before != after:
                yield PropertyChange(property=name, before=before, after=after)
