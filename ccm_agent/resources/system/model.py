"""Properties and state of system resources."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ccm_agent.model.resource import CommonProperties, CommonState

HOSTNAME, TIMEZONE, LOCALE = "hostname", "timezone", "locale"
SETTINGS = (HOSTNAME, TIMEZONE, LOCALE)

HOSTNAME_FILE = "/etc/hostname"
KERNEL_HOSTNAME = "/proc/sys/kernel/hostname"
ZONE_LINK = "/etc/localtime"
ZONE_FILE = "/etc/timezone"
"""An additional file with the zone's name on Debian 12 and earlier. It is managed only if it exists."""
ZONES = "/usr/share/zoneinfo"
LOCALE_FILE = "/etc/locale.conf"
DEBIAN_LOCALE_FILE = "/etc/default/locale"


class SystemProperties(CommonProperties, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A setting of the machine."""

    name: Annotated[str, Meta(description="The setting: `hostname`, `timezone` or `locale`.")]
    ensure: Annotated[
        str,
        Meta(
            description="`present` (default), or `absent`: no time zone (UTC) or no locale. Not for `hostname`."
        ),
    ] = ""
    value: Annotated[
        str,
        Meta(
            description="The value, such as `web1.example.net`, `Europe/Berlin` or `de_DE.UTF-8`. Required unless `absent`."
        ),
    ] = ""


class SystemState(CommonState, kw_only=True):
    """
    The current state of a setting. `ensure` is "present" if the setting has a value.

    Attributes:
        values: The value in each location of the setting, by path, in the order in which they are set; "" for a location without
            a value.
        is_available: Whether the host has the desired time zone or locale.
    """

    values: dict[str, str] = {}
    is_available: bool = True

    @property
    def differing(self) -> str:
        """The value in each location, for display; "" if all locations have the same value."""
        if len(set(self.values.values())) == 1:
            return ""
        return ", ".join(f"{value or 'none'} in {place}" for place, value in self.values.items())
