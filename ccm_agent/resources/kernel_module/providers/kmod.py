"""
Manages modules of the running kernel and the files that are read at boot, using modprobe of kmod.

Source: modprobe(8), modprobe.d(5), modules-load.d(5), proc_modules(5).
"""

from __future__ import annotations

import hashlib
import posixpath
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from ccm_agent.model.errors import CommandError, FileError
from ccm_agent.model.ports import FileInfo, Files, Runner, Trees
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.host_tools import run_tool
from ccm_agent.resources.kernel_module.lines import (
    LoadedModule,
    boot_text,
    read_blacklist,
    read_boot,
    read_built_in,
    read_loaded,
    read_settings,
)
from ccm_agent.resources.kernel_module.model import (
    KernelModuleProperties,
    KernelModuleState,
    ModuleFile,
    module_name,
)
from ccm_agent.resources.kernel_module.resource import boot_content, settings_content

if TYPE_CHECKING:
    from ccm_agent.resources.changes import FileChange

LOADED_FILE = "/proc/modules"
RELEASE_FILE = "/proc/sys/kernel/osrelease"
MODULES_FILE = "/etc/modules"
"""Debian's /etc/modules-load.d/modules.conf is a symlink to this file. Other init systems read it directly."""
FOLDERS = ("/etc", "/run", "/usr/local/lib", "/usr/lib")
"""The folders with configuration files. A file overrides all files of the same name in later folders."""
LIMIT_BYTES = 4 << 20
_DIRECTORY_MODE = 0o755


class _Look(Struct, frozen=True, kw_only=True):
    """
    The state of all modules of the host, except the files of the resources themselves.

    Attributes:
        loaded: The loaded modules. None if the kernel does not support loading modules.
        built_in: The modules that are part of the kernel itself.
        settings: The content of each file of modprobe.d(5), by path.
        listed: The files that load a module at boot, by module.
        blacklisted: The files that blacklist a module, by module.
    """

    loaded: Mapping[str, LoadedModule] | None
    built_in: frozenset[str] = frozenset()
    settings: Mapping[str, str]
    listed: Mapping[str, Sequence[str]]
    blacklisted: Mapping[str, Sequence[str]]


class Kmod:
    """
    The provider `kmod`. All methods raise HostError if the operating system refuses an operation.

    Args:
        runner: Runs modprobe.
        files: Reads and writes the files.
        trees: Reads the folders of modules-load.d(5) and modprobe.d(5).
    """

    def __init__(self, runner: Runner, files: Files, trees: Trees) -> None:
        self._runner = runner
        self._files = files
        self._trees = trees

    async def status(self, wanted: KernelModuleProperties) -> KernelModuleState:
        """See `Provider`."""
        looks = await self._files.inspect([wanted.boot_path, wanted.settings_path], follow=False)
        return _state(wanted, looks, await self._look([wanted.module]))

    async def look_ahead(self, wanted: Sequence[KernelModuleProperties]) -> list[KernelModuleState | None]:
        """Return the result of `status` for each module. The list of loaded modules and each folder are read only once."""
        paths = [path for one in wanted for path in (one.boot_path, one.settings_path)]
        looks = await self._files.inspect(paths, follow=False)
        try:
            look = await self._look([one.module for one in wanted])
        except FileError:
            return [None] * len(wanted)
        pairs = zip(looks[::2], looks[1::2], strict=True)
        return [_state(one, pair, look) for one, pair in zip(wanted, pairs, strict=True)]

    async def load(self, wanted: KernelModuleProperties, *, settings: bool) -> None:
        """
        Load the module.

        Args:
            wanted: The module.
            settings: Whether to write the module's options first. If the module cannot be loaded with them, the file is
                restored.
        """
        if not settings:
            await self._modprobe(wanted)
            return
        path = wanted.settings_path
        (before,) = await self._files.inspect([path], digest=False, follow=False)
        content = await self._files.read(path, LIMIT_BYTES) if before.kind == "file" else None
        await self.write_settings(wanted)
        try:
            await self._modprobe(wanted)
        except CommandError:
            await self._restore(before, content)
            raise

    async def unload(self, wanted: KernelModuleProperties) -> None:
        """Unload the module, and any modules that only this module uses."""
        what = f"{wanted.module} cannot be unloaded"
        await run_tool(self._runner, what, "modprobe", "-r", "--", wanted.module)

    async def write_settings(self, wanted: KernelModuleProperties) -> None:
        """Write the module's file in /etc/modprobe.d atomically, or remove the file."""
        await self._write(wanted.settings_path, settings_content(wanted), wanted.mode_bits)

    async def write_boot(self, wanted: KernelModuleProperties) -> None:
        """Write the module's file in /etc/modules-load.d atomically, or remove the file."""
        await self._write(wanted.boot_path, boot_content(wanted), wanted.mode_bits)

    async def compare(
        self, wanted: KernelModuleProperties, *, settings: bool, boot: bool
    ) -> list[FileChange]:
        """Return the contents of the changed files, before and after, for a diff."""
        from ccm_agent.resources.changes import compare_file

        changes = [(wanted.settings_path, settings_content(wanted))] if settings else []
        changes += [(wanted.boot_path, boot_content(wanted))] if boot else []
        return [await compare_file(self._files, path, wanted.mode_bits, after) for path, after in changes]

    async def _modprobe(self, wanted: KernelModuleProperties) -> None:
        await run_tool(self._runner, f"{wanted.module} cannot be loaded", "modprobe", "--", wanted.module)

    async def _write(self, path: str, content: bytes | None, mode: int) -> None:
        if content is None:
            await self._files.remove(path)
            return
        folder = posixpath.dirname(path)
        (look,) = await self._files.inspect([folder], digest=False)
        if look.kind == "absent":
            await self._files.set_attributes(folder, mode=_DIRECTORY_MODE, directory=True)
        await self._files.write(path, content, owner="root", group="root", mode=mode)

    async def _restore(self, before: FileInfo, content: bytes | None) -> None:
        if content is None:
            await self._files.remove(before.path)
            return
        owner, group = str(before.uid), str(before.gid)
        await self._files.write(before.path, content, owner=owner, group=group, mode=before.mode)

    async def _look(self, modules: Iterable[str]) -> _Look:
        boot_folders = [f"{folder}/modules-load.d" for folder in FOLDERS]
        settings_folders = [f"{folder}/modprobe.d" for folder in FOLDERS]
        paths = [LOADED_FILE, MODULES_FILE, *boot_folders, *settings_folders]
        kinds = {one.path: one.kind for one in await self._files.inspect(paths, digest=False)}
        loaded = await self._read_kernel() if kinds[LOADED_FILE] == "file" else None
        boot = await self._read_folders(path for path in boot_folders if kinds[path] == "directory")
        if kinds[MODULES_FILE] == "file":
            boot = {MODULES_FILE: _text(await self._files.read(MODULES_FILE, LIMIT_BYTES)), **boot}
        settings = await self._read_folders(path for path in settings_folders if kinds[path] == "directory")
        needs_built_in = not set(modules) <= set(loaded or ())
        return _Look(
            loaded=loaded,
            built_in=await self._read_built_in() if needs_built_in else frozenset(),
            settings=settings,
            listed=_by_module(boot, lambda text: map(module_name, read_boot(text))),
            blacklisted=_by_module(settings, read_blacklist),
        )

    async def _read_kernel(self) -> Mapping[str, LoadedModule]:
        return read_loaded(_text(await self._files.read(LOADED_FILE, LIMIT_BYTES)))

    async def _read_built_in(self) -> frozenset[str]:
        release = _text(await self._files.read(RELEASE_FILE, LIMIT_BYTES)).strip()
        path = f"/lib/modules/{release}/modules.builtin"
        (look,) = await self._files.inspect([path], digest=False)
        if look.kind != "file":
            return frozenset()
        return frozenset(read_built_in(_text(await self._files.read(path, LIMIT_BYTES))))

    async def _read_folders(self, folders: Iterable[str]) -> dict[str, str]:
        """Return the contents of the `.conf` files that are read at boot, by path."""
        found: dict[str, tuple[str, str]] = {}
        for folder in folders:
            tree = await self._trees.read(folder, LIMIT_BYTES)
            for entry in tree.entries:
                if entry.path.endswith(".conf") and "/" not in entry.path:
                    found.setdefault(entry.path, (f"{folder}/{entry.path}", _text(entry.content)))
        return dict(found.values())


def _state(wanted: KernelModuleProperties, looks: Sequence[FileInfo], look: _Look) -> KernelModuleState:
    boot, settings = looks
    module = wanted.module
    live = (look.loaded or {}).get(module)
    own = read_settings(module, look.settings.get(wanted.settings_path, ""))
    is_foreign = boot.kind == "file" and boot.sha256 != _digest(boot_text(wanted))
    state = KernelModuleState(
        protocol="io.choria.ccm.v1.resource.kernel_module.state",
        type="kernel_module",
        name=wanted.name,
        ensure=ABSENT,
        loaded=live is not None,
        built_in=live is None and module in look.built_in,
        supported=look.loaded is not None,
        references=live.references if live else 0,
        used_by=list(live.used_by) if live else [],
        boot=_module_file(boot),
        settings=_module_file(settings),
        options=dict(own.options) if own else {},
        blacklisted=own is not None and own.blacklisted,
        is_foreign=is_foreign or (settings.kind == "file" and own is None),
        listed_in=[path for path in look.listed.get(module, ()) if path != wanted.boot_path],
        blacklisted_in=[path for path in look.blacklisted.get(module, ()) if path != wanted.settings_path],
    )
    if state.loaded or state.built_in or state.persistent or state.options:
        state.ensure = PRESENT
    return state


def _by_module(texts: Mapping[str, str], read: Callable[[str], Iterable[str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path, text in texts.items():
        for module in set(read(text)):
            found[module].append(path)
    return found


def _module_file(look: FileInfo) -> ModuleFile:
    if look.kind != "file":
        return ModuleFile(kind=look.kind)
    return ModuleFile(kind="file", checksum=look.sha256, mode=f"{look.mode:04o}", uid=look.uid)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _text(content: bytes) -> str:
    return content.decode(errors="replace")
