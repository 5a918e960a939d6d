"""
Gather a node's facts, family by family.

Each family is gathered when it is first read, so a manifest that reads only `host` does not gather the other
families. Layers are merged over the families: custom files, then the caller's facts (`--facts`, `--fact`,
assigned facts).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ccm_agent.model import merge
from ccm_agent.model.errors import CcmError
from ccm_agent.model.gathered import family_with_go_names

log = logging.getLogger(__name__)

Family = Callable[[], Mapping[str, Any]]


def _host() -> Mapping[str, Any]:
    from ccm_agent.facts import host

    return host.gather()


def _cpu() -> Mapping[str, Any]:
    from ccm_agent.facts import cpu

    return cpu.gather()


def _memory() -> Mapping[str, Any]:
    from ccm_agent.facts import memory

    return memory.gather()


def _network() -> Mapping[str, Any]:
    from ccm_agent.facts import network

    return network.gather()


def _partition() -> Mapping[str, Any]:
    from ccm_agent.facts import partitions

    return partitions.gather()


FAMILIES: Mapping[str, Family] = {
    "host": _host,
    "network": _network,
    "partition": _partition,
    "cpu": _cpu,
    "memory": _memory,
}

_EMPTY: Mapping[str, Mapping[str, Any]] = {
    "host": {"info": {}},
    "network": {"addresses": [], "interfaces": [], "default_ipv4": "", "default_ipv6": ""},
    "partition": {"partitions": [], "usage": []},
    "cpu": {"info": []},
    "memory": {"swap": {"info": {}, "devices": []}, "virtual": {}},
}
"""The empty value of each family, used if the family cannot be read."""

_VOLATILE: Mapping[tuple[str, ...], frozenset[str]] = {
    ("host", "info"): frozenset({"uptime", "bootTime", "procs"}),
    ("memory", "swap", "info"): frozenset(
        {"used", "free", "usedPercent", "sin", "sout", "pgIn", "pgOut", "pgFault", "pgMajFault"}
    ),
    ("memory", "swap", "devices"): frozenset({"usedBytes", "freeBytes"}),
    ("partition", "usage"): frozenset(
        {"free", "used", "usedPercent", "inodesUsed", "inodesFree", "inodesUsedPercent"}
    ),
    ("cpu", "info"): frozenset({"mhz"}),
}
_LASTING_MEMORY = frozenset({"total", "swapTotal", "hugePagesTotal", "hugePageSize"})


class LazyFacts(dict[str, Any]):
    """
    A dictionary of facts that are gathered when they are first read.

    A read may block on files of /proc, so use `await asyncio.to_thread(facts.load)` first on an event loop. C
    code that bypasses the methods of dictionaries (the encoders of msgspec and json) sees only the families
    that were gathered so far. Pass it the result of `load`.

    Args:
        layers: Facts that are deep-merged over the families, in order; lists are joined. A callable is called
            once, when the first fact is read.
        families: The functions that gather the families.
    """

    def __init__(
        self, layers: Sequence[Mapping[str, Any] | Family] = (), families: Mapping[str, Family] = FAMILIES
    ) -> None:
        super().__init__()
        self._families = families
        self._pending = layers
        self._layers: list[Mapping[str, Any]] | None = None

    def __missing__(self, key: str) -> Any:
        value = self[key] = self._gathered(key)
        return value

    def get(self, key: str, default: Any = None) -> Any:
        """Return the fact at a top-level key, or the default."""
        return self[key] if key in self else default  # noqa: SIM401 - this is what `get` does here

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self._families or any(key in one for one in self._over())

    def __iter__(self) -> Iterator[str]:
        names = [*self._families, *(key for layer in self._over() for key in layer), *super().__iter__()]
        return iter(dict.fromkeys(names))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __eq__(self, other: object) -> bool:
        return self.load() == other

    __hash__ = None

    def __repr__(self) -> str:
        return f"<LazyFacts, gathered: {', '.join(super().__iter__()) or 'nothing'}>"

    def keys(self) -> Any:
        """Return all top-level names, gathered or not."""
        return self.load().keys()

    def values(self) -> Any:
        """Return all values."""
        return self.load().values()

    def items(self) -> Any:
        """Return all names with their values."""
        return self.load().items()

    def copy(self) -> dict[str, Any]:
        """Gather all facts and return them as a plain dictionary."""
        return self.load()

    def load(self) -> dict[str, Any]:
        """Gather all facts and return them as a plain dictionary."""
        return {key: self[key] for key in self}

    def _over(self) -> list[Mapping[str, Any]]:
        if self._layers is None:
            self._layers = [layer if isinstance(layer, Mapping) else layer() for layer in self._pending]
        return self._layers

    def _gathered(self, key: str) -> Any:
        over = [layer for layer in self._over() if key in layer]
        found: dict[str, Any] = {}
        if key in self._families:
            found[key] = _family(key, self._families[key])
        elif not over:
            raise KeyError(key)
        for layer in over:
            found = merge.deep(found, {key: layer[key]})
        return family_with_go_names(key, found[key])


def gather(environ: Mapping[str, str], *layers: Mapping[str, Any]) -> LazyFacts:
    """
    Return this machine's facts, with custom files and then the given layers merged over them.

    Args:
        environ: The environment, which determines the location of the user's files.
        layers: The caller's facts: the file of `--facts`, then each `--fact`, or assigned facts. Later layers take precedence.
    """

    def custom() -> Mapping[str, Any]:
        from ccm_agent.facts import files

        return files.gather(files.directories(environ))

    return LazyFacts([custom, *layers])


def lasting(facts: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the facts without values that change constantly: uptime, free memory, disk usage, clock speed.

    Used to decide whether a change of a node's facts must be published.
    """
    kept = _lasting_part(facts, ())
    virtual = kept.get("memory", {}).get("virtual") if isinstance(kept.get("memory"), dict) else None
    if isinstance(virtual, dict):
        kept["memory"]["virtual"] = {key: value for key, value in virtual.items() if key in _LASTING_MEMORY}
    return kept


def _lasting_part(value: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    dropped = _VOLATILE.get(path, frozenset())
    kept: dict[str, Any] = {}
    for key, one in value.items():
        if key in dropped:
            continue
        inner = (*path, key)
        if isinstance(one, Mapping):
            kept[key] = _lasting_part(one, inner)
        elif isinstance(one, list):
            kept[key] = [_lasting_part(item, inner) if isinstance(item, Mapping) else item for item in one]
        else:
            kept[key] = one
    return kept


def _family(key: str, read: Family) -> Mapping[str, Any]:
    try:
        return read()
    except (CcmError, OSError, ValueError, IndexError) as err:
        log.warning("facts of a family cannot be read", extra={"family": key, "error": str(err)})
        return merge.copy(_EMPTY.get(key, {}))
