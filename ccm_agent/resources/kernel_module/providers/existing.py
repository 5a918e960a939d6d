"""Finds the kernel modules that are loaded or configured by files without a package, for `ccm import kernel_module`."""

from __future__ import annotations

import posixpath

from ccm_agent.model.errors import InputError
from ccm_agent.model.ports import TreeEntry
from ccm_agent.model.resource import PRESENT
from ccm_agent.resources.contract import DecisionContext, ResourceContext
from ccm_agent.resources.existing import ExistingBuilder, ExistingResources, refuse_argument
from ccm_agent.resources.kernel_module.lines import read_boot
from ccm_agent.resources.kernel_module.model import (
    BOOT_DIRECTORY,
    PREFIX,
    SETTINGS_DIRECTORY,
    KernelModuleProperties,
    KernelModuleState,
    module_name,
)
from ccm_agent.resources.kernel_module.providers.kmod import LIMIT_BYTES, MODULES_FILE, Kmod
from ccm_agent.resources.kernel_module.resource import check, decide
from ccm_agent.resources.kernel_module.undo import FOREIGN, describe
from ccm_agent.resources.packaged import find_unchanged, read_own_files
from ccm_agent.resources.secret_signs import find_sign

SUFFIX = ".conf"


async def find_modules(context: ResourceContext, argument: str) -> ExistingResources:
    """
    Return the modules in /etc/modules and /etc/modules-load.d, and the modules with a file written by this type in
    /etc/modprobe.d.

    A module that is listed but not loaded is imported with `apply: false`.

    Raises:
        UsageError: An argument was given.
        FileError: A file cannot be read.
    """
    refuse_argument("kernel_module", argument)
    builder = ExistingBuilder("kernel_module", KernelModuleProperties, check)
    names = await _listed(context)
    secret: dict[str, str] = {}
    for path, entry in (await read_own_files(context, SETTINGS_DIRECTORY)).items():
        if not path.endswith(SUFFIX):
            continue
        name = posixpath.basename(path).removesuffix(SUFFIX)
        if not name.startswith(PREFIX):
            builder.leave_out(path, f"not written by this type; use `ccm import file:{SETTINGS_DIRECTORY}`")
            continue
        names[name.removeprefix(PREFIX)] = None
        if sign := find_sign(entry.content, entry.mode):
            secret[name.removeprefix(PREFIX)] = sign
    wanted = []
    for name in sorted(names):
        one = KernelModuleProperties(name=name, ensure=PRESENT)
        try:
            check(one)
        except InputError as err:
            builder.leave_out(name, err.message)
            continue
        wanted.append(one)
    provider = Kmod(context.runner, context.files, context.port("trees"))
    for one, found in zip(wanted, await provider.look_ahead(wanted), strict=True):
        if one.name in secret:
            builder.leave_out(one.name, secret[one.name])
        elif found is None or found.is_foreign:
            builder.leave_out(one.name, FOREIGN)
        else:
            _add(builder, one.name, found)
    return builder.result()


async def _listed(context: ResourceContext) -> dict[str, None]:
    """Return the modules that are loaded at boot by files that do not belong to a package."""
    files = await read_own_files(context, BOOT_DIRECTORY)
    (look,) = await context.files.inspect([MODULES_FILE], digest=False, follow=False)
    if look.kind == "file":
        content = await context.files.read(MODULES_FILE, LIMIT_BYTES)
        if not await find_unchanged(context, {MODULES_FILE: content}):
            files[MODULES_FILE] = TreeEntry(path=MODULES_FILE, content=content)
    texts = [
        entry.content.decode(errors="replace")
        for path, entry in files.items()
        if path == MODULES_FILE or path.endswith(SUFFIX)
    ]
    return {module_name(line): None for text in texts for line in read_boot(text)}


def _add(builder: ExistingBuilder[KernelModuleProperties], name: str, found: KernelModuleState) -> None:
    """Add a module with properties that match its current state."""
    described = {key: value for key, value in describe(found).items() if value != PRESENT}
    for properties in (described, {**described, "apply": False}):
        wanted = KernelModuleProperties(name=name, **{"ensure": PRESENT, **properties})
        decision = decide(wanted, found, DecisionContext())
        if decision.error is None and not decision.steps:
            builder.add(name, properties)
            return
    builder.leave_out(name, decision.error.message if decision.error else decision.reason)
