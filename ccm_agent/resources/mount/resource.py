"""Decides the steps of a mount resource. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ccm_agent.model.errors import FileError
from ccm_agent.model.resource_diff import PropertyChange
from ccm_agent.resources.checks import canonical_path, check_each, refuse
from ccm_agent.resources.contract import Decision, DecisionContext, HostAccess, Step
from ccm_agent.resources.mount.model import (
    ABSENT,
    DEVICE_PASSWORD,
    MOUNTED,
    PASSWORD,
    UNMOUNTED,
    MountProperties,
    MountState,
)
from ccm_agent.resources.mount.programs import programs_of, units_of

FSTAB = "/etc/fstab"
KEPT = frozenset({"/", "/usr", "/proc", "/sys", "/dev", "/run"})
"""Mount points that are never unmounted, because the host would stop working."""

WRITTEN = frozenset({"upperdir", "workdir"})
SHOWN = frozenset({"lowerdir", "lowerdir+", "datadir+", "bind"})
NEED_PATHS = (WRITTEN | SHOWN | {"credentials", "cred"}) - {"bind"}
"""Options whose values must be absolute paths."""

FSTYPE = re.compile(r"[a-z0-9][a-z0-9._-]*")
LENGTH = 1000
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def check(wanted: MountProperties) -> None:
    """Refuse values that could become a separate entry or an option of mount, or that could unmount a system directory."""
    check_each(wanted, _check_name, _check_kept, _check_device, _check_fstype, _check_options, _check_numbers)


def _check_text(value: str, field: str) -> None:
    if _CONTROL.search(value):
        refuse(f"`{field}` has a newline or another control character", field)
    if len(value.encode(errors="replace")) > LENGTH:
        refuse(f"`{field}` is longer than {LENGTH} bytes", field)


def _check_name(wanted: MountProperties) -> None:
    name = wanted.name
    _check_text(name, "name")
    if not name.startswith("/"):
        refuse(f"the mount point must be an absolute path, not {name!r}; swap is not managed", "name")
    if canonical_path(name) != name:
        refuse(
            f"the mount point must be canonical, without `.`, `..` and double slashes, not {name!r}", "name"
        )


def _check_kept(wanted: MountProperties) -> None:
    if wanted.name in KEPT and wanted.ensure in (UNMOUNTED, ABSENT):
        refuse(f"{wanted.name} cannot be unmounted, and its entry cannot be removed", "ensure")


def _check_device(wanted: MountProperties) -> None:
    device = wanted.device
    _check_text(device, "device")
    if not device and wanted.ensure != ABSENT:
        refuse("`device` is required", "device")
    if wanted.is_bind and not device.startswith("/"):
        refuse(f"`device` must be an absolute path for a bind mount, not {device!r}", "device")
    if DEVICE_PASSWORD.search(device):
        refuse(
            f"`device` has a password, which every user can read in {FSTAB}; use `credentials=FILE`", "device"
        )
    if device.startswith("-"):
        refuse(f"`device` begins with a hyphen, so mount would treat it as an option: {device!r}", "device")


def _check_fstype(wanted: MountProperties) -> None:
    fstype = wanted.fstype
    _check_text(fstype, "fstype")
    if not fstype and wanted.ensure == ABSENT:
        return
    if not FSTYPE.fullmatch(fstype):
        refuse(f"{fstype!r} is not a file system type, such as `ext4`", "fstype")
    if fstype == "swap":
        refuse("swap is not managed by this type", "fstype")


def _check_options(wanted: MountProperties) -> None:
    options = wanted.options
    _check_text(options, "options")
    if not options or "" in options.split(","):
        refuse("`options` has an empty option", "options")
    if options.startswith("-"):
        refuse("`options` begins with a hyphen", "options")
    for option in options.split(","):
        name, _, value = option.partition("=")
        if name in NEED_PATHS and not all(path.startswith("/") for path in value.split(":")):
            refuse(f"`{name}` in `options` must be an absolute path, not {value!r}", "options")
    if PASSWORD.search(options):
        refuse(
            f"`options` has a password, which every user can read in {FSTAB}; use `credentials=FILE`",
            "options",
        )


def _check_numbers(wanted: MountProperties) -> None:
    if wanted.dump not in (0, 1):
        refuse(f"`dump` must be 0 or 1, not {wanted.dump}", "dump")
    if wanted.passno not in (0, 1, 2):
        refuse(f"`passno` must be 0, 1 or 2, not {wanted.passno}", "passno")


def reach(wanted: MountProperties) -> HostAccess:
    """Return the host objects that the resource accesses; see `ResourceType`."""
    used = [("bind" if wanted.is_bind else "", wanted.device)] if wanted.device.startswith("/") else []
    for option in wanted.options.split(","):
        name, _, value = option.partition("=")
        used += [(name, path) for path in value.strip("\"'").split(":") if path.startswith("/")]
    return HostAccess(
        paths=(FSTAB,),
        # a mounted file system replaces all visible content below its mount point
        trees=(wanted.name, *(path for name, path in used if name in WRITTEN)),
        reads=tuple(path for name, path in used if name not in WRITTEN | SHOWN),
        reads_trees=tuple(path for name, path in used if name in SHOWN),
        services=tuple(units_of(wanted)),
        commands=tuple(programs_of(wanted)),
    )


def decide(wanted: MountProperties, found: MountState, context: DecisionContext) -> Decision:
    """Decide the steps with the decision table of the mount type; see docs/resources/mount.md."""
    if problem := _problem(wanted, found):
        return Decision(error=FileError(problem))
    # mount the file system first, because an entry that cannot be mounted would stop the next boot
    steps = [*_mount_steps(wanted, found), *_entry_steps(wanted, found)]
    changes = tuple(_changes(wanted, found)) if steps else ()
    reason = "; ".join(f"{one.property} is {one.before!r}, wanted {one.after!r}" for one in changes)
    return Decision(steps=tuple(steps), reason=reason, changes=changes)


def _problem(wanted: MountProperties, found: MountState) -> str:
    """Return the reason why the file system cannot be managed here; "" if it can."""
    if wanted.ensure != MOUNTED:
        return ""
    if not found.is_mounted and found.kind not in ("directory", "absent"):
        return f"{wanted.name} cannot be a mount point: it is a {found.kind}"
    is_other = found.mounted_fstype not in (wanted.fstype, "") and wanted.fstype not in ("auto", "none")
    if is_other and not wanted.is_bind and not wanted.fstype.startswith("fuse"):
        return (
            f"another file system is mounted at {wanted.name}: {found.mounted_device} of type {found.mounted_fstype}, wanted "
            f"{wanted.device} of type {wanted.fstype}; unmount it first"
        )
    return ""


def _mount_steps(wanted: MountProperties, found: MountState) -> Iterator[Step]:
    if wanted.ensure in (UNMOUNTED, ABSENT) and found.is_mounted:
        yield Step(noop="Would have unmounted", action=lambda p: p.unmount(wanted))
    elif wanted.ensure == MOUNTED and not found.is_mounted:
        if found.kind == "absent":
            yield Step(noop="Would have created the mount point", action=lambda p: p.create_directory(wanted))
        yield Step(noop="Would have mounted", action=lambda p: p.mount(wanted))
    elif _must_remount(wanted, found):
        device = found.mounted_device
        yield Step(noop="Would have remounted", action=lambda p: p.remount(wanted, device))


def _must_remount(wanted: MountProperties, found: MountState) -> bool:
    """Whether the options of the mounted file system must change. New options of `/` take effect at the next boot."""
    if wanted.ensure != MOUNTED or wanted.name == "/" or found.entry is None:
        return False
    return found.entry.options != wanted.options


def _entry_steps(wanted: MountProperties, found: MountState) -> Iterator[Step]:
    if wanted.ensure == ABSENT:
        if found.entry is not None:
            noop = f"Would have removed the entry from {FSTAB}"
            yield Step(noop=noop, action=lambda p: p.remove_entry(wanted))
    elif found.entry != wanted.entry:
        yield Step(noop=f"Would have written the entry to {FSTAB}", action=lambda p: p.write_entry(wanted))


def _changes(wanted: MountProperties, found: MountState) -> Iterator[PropertyChange]:
    if found.ensure != wanted.ensure and wanted.ensure in (MOUNTED, UNMOUNTED, ABSENT):
        yield PropertyChange(property="ensure", before=found.ensure, after=wanted.ensure)
    after = None if wanted.ensure == ABSENT else wanted.entry
    for field in ("device", "fstype", "options", "dump", "passno"):
        before, now = (str(getattr(one, field)) if one else "" for one in (found.entry, after))
        if before != now:
            yield PropertyChange(property=field, before=before, after=now)
