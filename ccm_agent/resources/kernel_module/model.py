"""Properties and state of kernel modules."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from ccm_agent.model.resource import CommonProperties, CommonState

BOOT_DIRECTORY = "/etc/modules-load.d"
SETTINGS_DIRECTORY = "/etc/modprobe.d"
PREFIX = "ccm-"
MODE = 0o644
SECRET_MODE = 0o600


class KernelModuleProperties(CommonProperties, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A kernel module: whether it is loaded now and at boot, and its options."""

    name: Annotated[
        str,
        Meta(description="Name of the module, such as `br_netfilter`, not an alias."),
    ]
    ensure: Annotated[
        str,
        Meta(description="`present` (default) or `absent`, now and at boot."),
    ] = ""
    options: Annotated[
        dict[str, str],
        Meta(description="Parameters by name, such as `nested: 1`. Applied at the next load."),
    ] = {}
    blacklisted: Annotated[
        bool,
        Meta(description="Blacklist it, so that devices do not load it. Only with `ensure: absent`."),
    ] = False
    loaded: Annotated[
        bool | None,
        Meta(description="Whether it is loaded now. Default: follows `ensure`."),
    ] = None
    persistent: Annotated[
        bool | None,
        Meta(description="Whether it is loaded at boot. Default: follows `ensure`."),
    ] = None
    apply: Annotated[
        bool,
        Meta(description="With `false`, only the files are managed."),
    ] = True

    @property
    def module(self) -> str:
        """The name of the module in the kernel."""
        return module_name(self.name)

    @property
    def boot_path(self) -> str:
        """The path of the file that loads the module at boot."""
        return f"{BOOT_DIRECTORY}/{PREFIX}{self.module}.conf"

    @property
    def settings_path(self) -> str:
        """The path of the file with the module's options and its blacklist entry."""
        return f"{SETTINGS_DIRECTORY}/{PREFIX}{self.module}.conf"

    @property
    def mode_bits(self) -> int:
        """The permissions of the files. Files with secrets are readable only by root, because only root needs them."""
        return SECRET_MODE if self.sensitive else MODE


class ModuleFile(Struct, frozen=True, kw_only=True):
    """
    The state of one of the two files of a module.

    Attributes:
        kind: "absent", "file", or another kind of entry.
        checksum: SHA-256; "" if the file does not exist.
        mode: Permissions as four octal digits; "" if the file does not exist.
        uid: The owner; -1 if the file does not exist.
    """

    kind: str = "absent"
    checksum: str = ""
    mode: str = ""
    uid: int = -1


class KernelModuleState(CommonState, kw_only=True):
    """
    The current state of a kernel module. `ensure` is "present" if the kernel has the module.

    It is also "present" if the module is loaded at boot or has options.

    Attributes:
        loaded: Whether the module is loaded.
        built_in: Whether the module is part of the kernel itself.
        supported: Whether the running kernel supports loading modules.
        references: The number of references to the module; -1 if the kernel does not count them.
        used_by: The modules that use this module.
        boot, settings: The module's two files.
        options: The options in the `settings` file.
        blacklisted: Whether the `settings` file blacklists the module.
        is_foreign: Whether one of the two files does not have the form that this type writes.
        listed_in: Other files that load the module at boot.
        blacklisted_in: Other files that blacklist the module.
    """

    loaded: bool = False
    built_in: bool = False
    supported: bool = True
    references: int = 0
    used_by: list[str] = []
    boot: ModuleFile = ModuleFile()
    settings: ModuleFile = ModuleFile()
    options: dict[str, str] = {}
    blacklisted: bool = False
    is_foreign: bool = False
    listed_in: list[str] = []
    blacklisted_in: list[str] = []

    @property
    def persistent(self) -> bool:
        """Whether a file loads the module at boot."""
        return self.boot.kind != "absent" or bool(self.listed_in)


def module_name(name: str) -> str:
    """Return the name of a module in the kernel."""
    return name.replace("-", "_")
