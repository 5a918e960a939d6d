"""
Lines of the files that list or configure modules.

Only `options` and `blacklist` lines are written. Values have no quotes, comments or backslashes; see `resource.py`.

Source: modprobe.d(5), modules-load.d(5), and the kernel's parser of parameters, which reads `name="two words"`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from ccm_agent.resources.kernel_module.model import KernelModuleProperties, module_name

HEADER = "# Managed by ccm"
_OPTION = re.compile(r"""(?:^| )([A-Za-z0-9_-]+)=(?:"([^"\n]*)"|([^" \n]*))(?= |$)""")


class ModuleSettings(Struct, frozen=True, kw_only=True):
    """The settings of a module in a file in /etc/modprobe.d; see `KernelModuleProperties`."""

    options: Mapping[str, str] = {}
    blacklisted: bool = False


def boot_text(wanted: KernelModuleProperties) -> str:
    """Return the content of the file that loads a module at boot."""
    return f"{HEADER}\n{wanted.module}\n"


def settings_text(module: str, settings: ModuleSettings) -> str:
    """Return the content of a module's file in /etc/modprobe.d; "" if the module needs no file."""
    lines = [f"blacklist {module}"] if settings.blacklisted else []
    if settings.options:
        lines.append(f"options {module} {option_words(settings.options)}")
    return "\n".join([HEADER, *lines, ""]) if lines else ""


def option_words(options: Mapping[str, str]) -> str:
    """Return the options as a single line."""
    return " ".join(
        f'{name}="{value}"' if " " in value else f"{name}={value}" for name, value in options.items()
    )


def read_settings(module: str, text: str) -> ModuleSettings | None:
    """Return the settings in a text that `settings_text` wrote; None for other texts."""
    _header, _, line = text.removesuffix("\n").partition("\n")
    if line == f"blacklist {module}":
        found = ModuleSettings(blacklisted=True)
    else:
        words = line.removeprefix(f"options {module} ")
        found = ModuleSettings(
            options={name: quoted or plain for name, quoted, plain in _OPTION.findall(words)}
        )
    return found if text and settings_text(module, found) == text else None


def read_boot(text: str) -> Iterator[str]:
    """Yield the lines with module names in a file of modules-load.d(5)."""
    for line in text.split("\n"):
        line = line.strip()
        if line and line[0] not in "#;":
            yield line


def read_blacklist(text: str) -> Iterator[str]:
    """Yield the modules that a file of modprobe.d(5) blacklists, by their names in the kernel."""
    for line in text.replace("\\\n", "").split("\n"):
        words = line.split()
        if len(words) >= 2 and words[0] == "blacklist":
            yield module_name(words[1])


class LoadedModule(Struct, frozen=True, kw_only=True):
    """
    A module of the running kernel.

    Attributes:
        references: The number of references to the module; -1 if the kernel does not count them.
        used_by: The modules that use this module.
    """

    references: int = 0
    used_by: tuple[str, ...] = ()


def read_loaded(text: str) -> dict[str, LoadedModule]:
    """
    Return the modules in /proc/modules, by name.

    Source: proc_modules(5): name, size, references, users (each followed by a comma), state, address.
    """
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 4:
            users = tuple(one for one in words[3].split(",") if one not in ("", "-"))
            references = int(words[2]) if words[2].isdecimal() else -1
            found[words[0]] = LoadedModule(references=references, used_by=users)
    return found


def read_built_in(text: str) -> set[str]:
    """Return the modules in a kernel's file modules.builtin. Its lines are paths such as `kernel/fs/ext4/ext4.ko`."""
    return {module_name(line.rpartition("/")[2].partition(".")[0]) for line in text.splitlines() if line}
