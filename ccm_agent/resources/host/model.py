"""Properties and state of host resources."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from ccm_agent.model.resource import CommonProperties, CommonState


class HostEntry(Struct, frozen=True, kw_only=True):
    """
    A line of /etc/hosts without its canonical name.

    Attributes:
        address: The address, in the form of inet_ntop(3).
        aliases: Additional names, as written in the file.
    """

    address: str
    aliases: tuple[str, ...] = ()

    def has_aliases(self, aliases: list[str]) -> bool:
        """Whether the entry has these aliases, in any order."""
        return sorted(map(str.lower, self.aliases)) == sorted(map(str.lower, aliases))


class HostProperties(CommonProperties, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A host name in /etc/hosts."""

    name: Annotated[
        str, Meta(description="Canonical host name: the first name in a line, such as `db.example.net`.")
    ]
    ensure: Annotated[
        str, Meta(description="`present` (default), or `absent`: no line has this canonical name.")
    ] = ""
    address: Annotated[
        str | list[str],
        Meta(
            description="IPv4 or IPv6 address, or a list of them, with a line for each. Required unless `absent`."
        ),
    ] = ""
    aliases: Annotated[
        list[str] | None,
        Meta(description="Other names of the host. Default: not managed; `[]` removes them."),
    ] = None

    @property
    def addresses(self) -> list[str]:
        """The desired addresses, as given in the manifest."""
        return [self.address] if isinstance(self.address, str) else self.address


class HostState(CommonState, kw_only=True):
    """
    The current state of a host. `ensure` is "present" if a line has the canonical name.

    Attributes:
        entries: The lines with the canonical name, in the order of the file.
    """

    entries: tuple[HostEntry, ...] = ()

    @property
    def addresses(self) -> list[str]:
        """The addresses of all lines."""
        return [one.address for one in self.entries]
