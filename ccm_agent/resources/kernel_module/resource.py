"""Decides the steps of a kernel module. No I/O."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from ccm_agent.model.errors import FileError
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.model.resource_diff import PropertyChange
from ccm_agent.resources.checks import check_each, refuse
from ccm_agent.resources.contract import Decision, DecisionContext, HostAccess, Step
from ccm_agent.resources.kernel_module.lines import ModuleSettings, boot_text, option_words, settings_text
from ccm_agent.resources.kernel_module.model import (
    KernelModuleProperties,
    KernelModuleState,
    ModuleFile,
    module_name,
)

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
VALUE = re.compile(r"[ !$-\[\]-~]*")
"""Matches printable ASCII without `"`, `#` and `\\`."""
PATH = re.compile(r"(?:^|[ ,:=])/")
"""Matches an absolute path in a value."""
NAME_LENGTH = 55
"""The maximum length of a module's name: MODULE_NAME_LEN on 64-bit machines."""
OPTIONS = 100
OPTIONS_BYTES = 4000
PERMANENT = "[permanent]"
_SHOWN = 100


def check(wanted: KernelModuleProperties) -> None:
    """Refuse names, options and combinations that modprobe or the kernel could misinterpret."""
    check_each(wanted, _check_name, _check_presence, _check_live, _check_options)


def _check_name(wanted: KernelModuleProperties) -> None:
    if not NAME.fullmatch(wanted.name) or len(wanted.name) > NAME_LENGTH:
        refuse(
            f"{wanted.name[:_SHOWN]!r} is not the name of a kernel module: only letters, digits, `_` and `-` are allowed, at "
            f"most {NAME_LENGTH}, and no `-` at the beginning",
            "name",
        )


def _check_presence(wanted: KernelModuleProperties) -> None:
    if wanted.ensure == PRESENT and wanted.blacklisted:
        refuse("`blacklisted` requires `ensure: absent`", "blacklisted")
    if wanted.ensure == ABSENT and wanted.options:
        refuse("`options` cannot be used with `ensure: absent`", "options")
    if wanted.ensure == ABSENT and wanted.persistent:
        refuse("`persistent: true` requires `ensure: present`", "persistent")


def _check_live(wanted: KernelModuleProperties) -> None:
    if wanted.loaded is not None and not wanted.apply:
        refuse("`loaded` cannot be used with `apply: false`", "loaded")


def _check_options(wanted: KernelModuleProperties) -> None:
    if len(wanted.options) > OPTIONS:
        refuse(f"`options` has more than {OPTIONS} parameters", "options")
    names: set[str] = set()
    for name, value in wanted.options.items():
        if not NAME.fullmatch(name) or len(name) > NAME_LENGTH:
            refuse(
                f"{name[:_SHOWN]!r} is not the name of a parameter: only letters, digits, `_` and `-` are allowed, at most "
                f"{NAME_LENGTH}",
                "options",
            )
        if module_name(name) in names:
            refuse(f"the parameter `{name}` is given twice: `-` and `_` are the same", f"options.{name}")
        names.add(module_name(name))
        if not VALUE.fullmatch(value):
            refuse(
                f"the value of `{name}` has a character that is not allowed: a newline, another control character, a quote "
                '(`"`), `#`, a backslash, or a letter outside ASCII',
                f"options.{name}",
            )
        if value != value.strip():
            refuse(f"the value of `{name}` begins or ends with a space", f"options.{name}")
    if len(option_words(wanted.options)) > OPTIONS_BYTES:
        refuse(f"`options` are longer than {OPTIONS_BYTES} bytes in total", "options")


def reach(wanted: KernelModuleProperties) -> HostAccess:
    """Return the host objects that the resource accesses; see `ResourceType`."""
    # this also applies with `apply: false`, because the files take effect at the next boot
    return HostAccess(
        paths=(wanted.boot_path, wanted.settings_path, f"/sys/module/{wanted.module}"),
        # for parameters such as `usermode_helper` of drbd, the kernel runs the given program as root
        commands=tuple(f"`options.{name}`" for name, value in wanted.options.items() if PATH.search(value)),
    )


def settings_content(wanted: KernelModuleProperties) -> bytes | None:
    """Return the desired content of the module's file in /etc/modprobe.d. None if the file should not exist."""
    settings = ModuleSettings(options=wanted.options, blacklisted=wanted.blacklisted)
    return settings_text(wanted.module, settings).encode() or None


def boot_content(wanted: KernelModuleProperties) -> bytes | None:
    """Return the desired content of the module's file in /etc/modules-load.d. None if the file should not exist."""
    return boot_text(wanted).encode() if _is_persistent(wanted) else None


def decide(wanted: KernelModuleProperties, found: KernelModuleState, context: DecisionContext) -> Decision:
    """Decide the steps with the decision table of kernel modules; see docs/resources/kernel_module.md."""
    loads = _loads(wanted)
    if problem := _problem(wanted, found, loads):
        return Decision(error=FileError(problem))
    ordered = _in_order(wanted, found)
    settings = _differs(found.settings, settings_content(ordered), wanted)
    boot = _changes_boot(wanted, found)
    changes = tuple(_changes(ordered, found, loads))
    return Decision(
        steps=tuple(_steps(wanted, found, loads, settings=settings, boot=boot)),
        reason="; ".join(_reasons(wanted, found, loads, settings=settings, boot=boot)),
        changes=changes,
        contents=(lambda p: p.compare(wanted, settings=settings, boot=boot)) if settings or boot else None,
    )


def _in_order(wanted: KernelModuleProperties, found: KernelModuleState) -> KernelModuleProperties:
    """Return the desired state, with the order of the current options if they are the same: their order has no meaning."""
    return replace(wanted, options=found.options) if found.options == wanted.options else wanted


def _is_persistent(wanted: KernelModuleProperties) -> bool:
    return wanted.ensure == PRESENT if wanted.persistent is None else wanted.persistent


def _loads(wanted: KernelModuleProperties) -> bool | None:
    """Return whether the module should be loaded now. None if this is not managed."""
    if not wanted.apply:
        return None
    return wanted.ensure == PRESENT if wanted.loaded is None else wanted.loaded


def _steps(
    wanted: KernelModuleProperties,
    found: KernelModuleState,
    loads: bool | None,
    *,
    settings: bool,
    boot: bool,
) -> Iterator[Step]:
    """
    Yield the steps. The module is loaded or unloaded before files are written. If the kernel refuses this, no file is written
    that would repeat the operation at each boot.
    """
    if loads is False and found.loaded:
        yield Step(noop="Would have unloaded the module", action=lambda p: p.unload(wanted))
    if loads and not found.loaded and not found.built_in:
        before = "written its options and " if settings else ""
        noop = f"Would have {before}loaded the module"
        yield Step(noop=noop, action=lambda p: p.load(wanted, settings=settings))
    elif settings:
        noop = _noop(wanted.settings_path, settings_content(wanted))
        yield Step(noop=noop, action=lambda p: p.write_settings(wanted))
    if boot:
        yield Step(noop=_noop(wanted.boot_path, boot_content(wanted)), action=lambda p: p.write_boot(wanted))


def _noop(path: str, content: bytes | None) -> str:
    return f"Would have {'removed' if content is None else 'written'} {path}"


def _reasons(
    wanted: KernelModuleProperties,
    found: KernelModuleState,
    loads: bool | None,
    *,
    settings: bool,
    boot: bool,
) -> Iterator[str]:
    if loads and not found.loaded and not found.built_in:
        yield (
            f"{wanted.module} is not loaded: it may be an alias, or modprobe.d(5) may have an `install` line for it"
        )
    if loads is False and found.loaded:
        yield f"{wanted.module} is loaded"
    for path, differs in ((wanted.settings_path, settings), (wanted.boot_path, boot)):
        if differs:
            yield f"{path} differs from the desired file"


def _changes(
    wanted: KernelModuleProperties, found: KernelModuleState, loads: bool | None
) -> Iterator[PropertyChange]:
    pairs: tuple[tuple[str, Any, Any], ...] = (
        ("loaded", found.loaded or found.built_in, loads),
        ("persistent", found.persistent, _is_persistent(wanted)),
        ("blacklisted", found.blacklisted, wanted.blacklisted),
        ("options", option_words(found.options), option_words(wanted.options)),
    )
    for name, before, after in pairs:
        if after is not None and before != after and not (name == "persistent" and _rests(wanted, found)):
            yield PropertyChange(property=name, before=_shown(before), after=_shown(after))


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _changes_boot(wanted: KernelModuleProperties, found: KernelModuleState) -> bool:
    content = boot_content(wanted)
    if found.boot.kind == "absent" and content is not None and (found.listed_in or _rests(wanted, found)):
        return False
    return _differs(found.boot, content, wanted)


def _rests(wanted: KernelModuleProperties, found: KernelModuleState) -> bool:
    """Whether the module is built into the kernel, so that no file is needed to load it."""
    return found.built_in and wanted.persistent is None and wanted.ensure == PRESENT


def _differs(found: ModuleFile, content: bytes | None, wanted: KernelModuleProperties) -> bool:
    if content is None:
        return found.kind != "absent"
    same = ("file", hashlib.sha256(content).hexdigest(), f"{wanted.mode_bits:04o}", 0)
    return (found.kind, found.checksum, found.mode, found.uid) != same


def _problem(wanted: KernelModuleProperties, found: KernelModuleState, loads: bool | None) -> str:
    """Return the reason why the module cannot be managed here; "" if it can."""
    for path, file in ((wanted.boot_path, found.boot), (wanted.settings_path, found.settings)):
        if file.kind not in ("absent", "file"):
            return f"{path} is not a regular file: it is a {file.kind}"
    return _why_not_live(wanted, found, loads) or _why_not_files(wanted, found)


def _why_not_live(wanted: KernelModuleProperties, found: KernelModuleState, loads: bool | None) -> str:
    module, way_out = wanted.module, "set `apply: false` to change only the files, which take effect at boot"
    if loads and not found.supported and not found.built_in:
        return f"{module} cannot be loaded: this kernel cannot load modules; {way_out}"
    if loads is False and found.built_in:
        return f"{module} cannot be unloaded: it is built into the kernel"
    if loads is False and found.loaded and (users := _users(found)):
        return f"{module} cannot be unloaded: {users}; {way_out}"
    return ""


def _users(found: KernelModuleState) -> str:
    """Return the users of a loaded module, worded as the end of an error message; "" if it has no users."""
    if PERMANENT in found.used_by:
        return "it is permanent"
    if found.used_by:
        return f"it is used by {', '.join(found.used_by)}"
    if found.references > 0:
        return f"it is in use ({found.references} references), such as by a process, a device or a mount"
    return ""


def _why_not_files(wanted: KernelModuleProperties, found: KernelModuleState) -> str:
    module = wanted.module
    if found.built_in and wanted.options:
        return (
            f"the options of {module} have no effect: it is built into the kernel; set them on the kernel command line as "
            f"`{module}.{next(iter(wanted.options))}=…`"
        )
    if _is_persistent(wanted) and found.blacklisted_in and not _rests(wanted, found):
        return (
            f"{module} is not loaded at boot because {found.blacklisted_in[0]} blacklists it: remove that line, or set "
            "`persistent: false`"
        )
    if not _is_persistent(wanted) and found.listed_in and not wanted.blacklisted:
        way_out = ", or set `blacklisted: true`" if wanted.ensure == ABSENT else ""
        return f"{module} is loaded at boot because {found.listed_in[0]} lists it: remove that line{way_out}"
    return ""
