"""Properties and state of sysctl resources."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ccm_agent.model.resource import CommonProperties, CommonState

DEFAULT_FILE = "/etc/sysctl.d/60-ccm.conf"
ROOT = "/proc/sys/"
_SWAPPED = str.maketrans("./", "/.")


class SysctlProperties(CommonProperties, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A kernel parameter: its live value, and its line in a file that is read at boot."""

    name: Annotated[
        str,
        Meta(
            description="Name of the parameter, such as `vm.swappiness`. A dot in an interface name is written as a slash: "
            "`net.ipv4.conf.eth0/100.forwarding`."
        ),
    ]
    ensure: Annotated[
        str,
        Meta(
            description="`present` (default), or `absent`: the file has no line for it. The live value is then not changed, "
            "unless `live_value` is given."
        ),
    ] = ""
    value: Annotated[
        str,
        Meta(description="The value. Several numbers are separated by spaces. Required unless `absent`."),
    ] = ""
    live_value: Annotated[
        str, Meta(description="A different value for the running kernel. Default: `value`.")
    ] = ""
    apply: Annotated[
        bool,
        Meta(description="Whether the live value is managed (the default). With `false`, only the file is."),
    ] = True
    file: Annotated[
        str,
        Meta(
            description="A `.conf` file in `/etc/sysctl.d`, or `/etc/sysctl.conf`. Its other lines are kept. Default: "
            f"`{DEFAULT_FILE}`."
        ),
    ] = DEFAULT_FILE
    ignore_missing: Annotated[
        bool,
        Meta(
            description="Write the file even if the kernel does not have the parameter, which is otherwise an error."
        ),
    ] = False

    @property
    def wanted_live(self) -> str:
        """The desired live value; "" if the live value is not managed."""
        return (self.live_value or self.value) if self.apply else ""


class SysctlState(CommonState, kw_only=True):
    """
    The current state of a kernel parameter. `ensure` is "present" if the file has a line for the parameter.

    Attributes:
        file: The path of the file that was read.
        value: The value in the file; "" if the file has none.
        live_value: The value in the running kernel; "" if there is none or it cannot be read.
        exists: Whether the kernel has the parameter.
        is_read_only: Whether the parameter is on a read-only file system, as in most containers.
        error: The reason why the live value cannot be read; "" if it was read or does not exist.
    """

    file: str = ""
    value: str = ""
    live_value: str = ""
    exists: bool = False
    is_read_only: bool = False
    error: str = ""


def parameter_path(name: str) -> str:
    """
    Return the path of a parameter below /proc/sys.

    If the first separator is a slash, the name is a path. Otherwise its parts are separated by dots, and a slash represents a
    dot.

    Source: sysctl.d(5).
    """
    dot, slash = name.find("."), name.find("/")
    is_path = slash >= 0 and (dot < 0 or slash < dot)
    return ROOT + (name if is_path else name.translate(_SWAPPED))


def parameter_name(path: str) -> str:
    """Return the name of the parameter at a path below /proc/sys, with dots between its parts."""
    return path.removeprefix(ROOT).translate(_SWAPPED)


def normal(value: str) -> str:
    """Normalize the whitespace of a value for comparison, because the kernel separates numbers by tabs."""
    return " ".join(value.split())
