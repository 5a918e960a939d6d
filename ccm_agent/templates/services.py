"""The result of `registrations()` in expressions and templates: a list of entries with methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from ccm_agent.model.errors import TemplateError
from ccm_agent.model.records.registration import RegistrationEntry, prometheus_file_sd, ttl_text
from ccm_agent.templates.values import StringMap


class Service(dict[str, Any]):
    """
    An entry with the names of Choria CCM's fields: Cluster, Service, Protocol, Address, Port, Priority, Annotations, TTL.

    Any other name is an error: a misspelled attribute must not become an empty text in a configuration.
    """

    __slots__ = ()

    def get(self, key: str, default: Any = None) -> Any:
        return self[key]

    def __missing__(self, key: str) -> NoReturn:
        raise TemplateError(f"a registration has no field {key!r}; it has {', '.join(sorted(self))}")


class Services(list[Service]):
    """
    Entries sorted by address and port.

    Attributes:
        entries: The unconverted entries.
    """

    __slots__ = ("entries",)
    go_type = "model.RegistrationEntries"

    def __init__(self, entries: Sequence[RegistrationEntry]) -> None:
        super().__init__(_service(entry) for entry in entries)
        self.entries = tuple(entries)

    def PrometheusFileSD(self) -> str:  # noqa: N802 - Choria CCM's name
        """See `model.records.registration.prometheus_file_sd`."""
        return prometheus_file_sd(self.entries)


METHODS = ("PrometheusFileSD",)
"""The methods that templates can call."""


def service_method(value: object, name: str) -> Any:
    """
    Return a method of a list of services as a callable; None if the value is not such a list, or has no
    such method.
    """
    return getattr(value, name) if isinstance(value, Services) and name in METHODS else None


def _service(entry: RegistrationEntry) -> Service:
    return Service(
        Cluster=entry.cluster,
        Service=entry.service,
        Protocol=entry.protocol,
        Address=entry.address,
        Port=entry.port,
        Priority=entry.priority,
        Annotations=StringMap(entry.annotations),
        TTL=ttl_text(entry.ttl) or None,
    )
