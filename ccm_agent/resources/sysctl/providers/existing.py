"""Finds the kernel parameters in files that no package installed, for `ccm import sysctl`."""

from __future__ import annotations

from ccm_agent.model.ports import TreeEntry
from ccm_agent.resources.contract import ResourceContext
from ccm_agent.resources.existing import ExistingBuilder, ExistingResources, refuse_argument
from ccm_agent.resources.packaged import find_unchanged, read_own_files
from ccm_agent.resources.secret_signs import find_sign
from ccm_agent.resources.shared_file import LIMIT_BYTES
from ccm_agent.resources.sysctl.lines import read_values
from ccm_agent.resources.sysctl.model import SysctlProperties, parameter_name
from ccm_agent.resources.sysctl.resource import check

FOLDER, LAST_FILE = "/etc/sysctl.d", "/etc/sysctl.conf"


async def find_parameters(context: ResourceContext, argument: str) -> ExistingResources:
    """
    Return the parameters in the files of /etc/sysctl.d, and in /etc/sysctl.conf.

    If several files set a parameter, `file` is the file that is read last at boot.

    Source: sysctl.d(5), sysctl(8).

    Raises:
        UsageError: An argument was given.
        FileError: A file cannot be read.
    """
    refuse_argument("sysctl", argument)
    files = await read_own_files(context, FOLDER)
    (last,) = await context.files.inspect([LAST_FILE], digest=False, follow=False)
    if last.kind == "file":
        content = await context.files.read(LAST_FILE, LIMIT_BYTES)
        if not await find_unchanged(context, {LAST_FILE: content}):
            files[LAST_FILE] = TreeEntry(path=LAST_FILE, content=content, mode=last.mode)
    found: dict[str, tuple[str, str]] = {}
    builder = ExistingBuilder("sysctl", SysctlProperties, check)
    for file, entry in files.items():
        if not file.endswith(".conf"):
            continue
        for path, value in read_values(entry.content.decode(errors="replace").split("\n")).items():
            name = parameter_name(path)
            if sign := _secret_sign(name, value, entry.mode):
                builder.leave_out(name, sign)
                continue
            if name in found:
                builder.leave_out(name, f"also in {found[name][0]}, which is read before {file}")
            found[name] = file, value
    for name in sorted(found):
        file, value = found[name]
        builder.add(name, {"value": value, "file": file})
    return builder.result()


def _secret_sign(name: str, value: str, mode: int) -> str:
    """
    Return the reason why a parameter may contain a secret, such as `net.ipv4.tcp_fastopen_key`; "" if there is no sign of one.
    """
    if name.endswith(("_secret", "_key")):
        return "is a secret"
    return find_sign(f"{name} = {value}".encode(), mode)
