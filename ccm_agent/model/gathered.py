"""
Gathered facts that can be read by Go's field names and by JSON names.

In Choria CCM a gathered fact is a Go struct. Expressions and templates use Go's field names
(`Facts.host.info.PlatformFamily`). `lookup` and JSON use the JSON names (`platformFamily`). A
`GatheredRecord` is a mapping by JSON name that also accepts Go's names. Custom facts stay plain mappings.

Source: the structs of gopsutil v4.26.6, which Choria CCM uses for its facts;
tests/unit/model/data/gopsutil_v4.26.6.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from ccm_agent.model.formats.patterns import lazy_pattern

PACKAGE = "github.com/shirou/gopsutil/v4/"

_WRITTEN = lazy_pattern(r"\bFacts((?:\.\w+|\[-?\d+\])+)")
_STEP = lazy_pattern(r"\.(\w+)|\[")


class RecordType:
    """
    A Go struct.

    Attributes:
        go_type: Go's name of the type as `%T` prints it, such as `*host.InfoStat`.
        fields: JSON name by Go name, in Go's order.
        json_names: The JSON names.
        inner: Nested records, by JSON name.
    """

    __slots__ = ("fields", "go_type", "inner", "json_names")

    def __init__(self, go_type: str, fields: str, inner: Mapping[str, Place] | None = None) -> None:
        self.go_type = go_type
        self.fields: Mapping[str, str] = dict(pair.split(":") for pair in fields.split())
        self.json_names = frozenset(self.fields.values())
        self.inner = inner or {}

    def no_field(self, name: str, json_names: Iterable[str]) -> str:
        """
        Return the error message for an unknown field, with the most similar name of the same kind (Go or
        JSON).
        """
        from ccm_agent.model.suggestions import did_you_mean

        known = list(self.fields if name[:1].isupper() else json_names)
        near = did_you_mean(name, known) or f"; the fields are {', '.join(known)}"
        return f"the gathered fact {self.go_type.lstrip('*')} has no field `{name}`{near}"


class GatheredRecord(dict[str, Any]):
    """
    One gathered struct: a mapping by JSON name that can also be read by Go's field names.

    Iterating, counting and encoding use only the JSON names, in Go's order. Reading an unknown name raises KeyError with a
    message that names the most similar field; `get` returns the default.

    Attributes:
        record_type: The structure of the record.
    """

    __slots__ = ("record_type",)

    def __init__(self, record_type: RecordType, values: Mapping[str, Any]) -> None:
        super().__init__((name, values[name]) for name in record_type.fields.values())
        self.update(values)
        self.record_type = record_type

    def __missing__(self, name: str) -> Any:
        json_name = self.record_type.fields.get(name)
        if json_name is None or not self.has_json_name(json_name):
            raise KeyError(self.no_field(name))
        return self[json_name]

    def __contains__(self, name: object) -> bool:
        return self.has_json_name(name) or self.has_json_name(self.record_type.fields.get(str(name)))

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(self.record_type.fields.get(name, name), value)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.record_type.go_type, dict(self))

    def has_json_name(self, name: object) -> bool:
        """Whether a value with this JSON name exists; Go's names are not considered."""
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a field by either name, or the default."""
        return self[name] if name in self else default  # noqa: SIM401 - this implements `get`

    def no_field(self, name: str) -> str:
        """Return the error message for an unknown field, with the most similar name."""
        return self.record_type.no_field(name, self)


class GatheredList(list[Any]):
    """A list of records with a named type in Go, which is printed as JSON."""

    __slots__ = ()


class ListOf:
    """
    The type of a list of records in the facts.

    Attributes:
        record_type: The structure of its items.
        is_named: Whether the list has a named type in Go.
    """

    __slots__ = ("is_named", "record_type")

    def __init__(self, record_type: RecordType, *, is_named: bool = False) -> None:
        self.record_type = record_type
        self.is_named = is_named


Place: TypeAlias = RecordType | ListOf | dict[str, "Place"]
"""The type at a place in the facts: a record, a list of records, or a mapping of such types."""

_DISK_USAGE = RecordType(
    "*disk.UsageStat",
    "Path:path Fstype:fstype Total:total Free:free Used:used UsedPercent:usedPercent InodesTotal:inodesTotal "
    "InodesUsed:inodesUsed InodesFree:inodesFree InodesUsedPercent:inodesUsedPercent",
)
_PARTITION = RecordType("disk.PartitionStat", "Device:device Mountpoint:mountpoint Fstype:fstype Opts:opts")
_HOST = RecordType(
    "*host.InfoStat",
    "Hostname:hostname Uptime:uptime BootTime:bootTime Procs:procs OS:os Platform:platform "
    "PlatformFamily:platformFamily PlatformVersion:platformVersion KernelVersion:kernelVersion KernelArch:kernelArch "
    "VirtualizationSystem:virtualizationSystem VirtualizationRole:virtualizationRole HostID:hostId",
)
_CPU = RecordType(
    "cpu.InfoStat",
    "CPU:cpu VendorID:vendorId Family:family Model:model Stepping:stepping PhysicalID:physicalId CoreID:coreId Cores:cores "
    "ModelName:modelName Mhz:mhz CacheSize:cacheSize Flags:flags Microcode:microcode",
)
_VIRTUAL_MEMORY = RecordType(
    "*mem.VirtualMemoryStat",
    "Total:total Available:available Used:used UsedPercent:usedPercent Free:free Active:active Inactive:inactive "
    "Wired:wired Laundry:laundry Buffers:buffers Cached:cached WriteBack:writeBack Dirty:dirty WriteBackTmp:writeBackTmp "
    "Shared:shared Slab:slab Sreclaimable:sreclaimable Sunreclaim:sunreclaim PageTables:pageTables SwapCached:swapCached "
    "CommitLimit:commitLimit CommittedAS:committedAS HighTotal:highTotal HighFree:highFree LowTotal:lowTotal "
    "LowFree:lowFree SwapTotal:swapTotal SwapFree:swapFree Mapped:mapped VmallocTotal:vmallocTotal "
    "VmallocUsed:vmallocUsed VmallocChunk:vmallocChunk HugePagesTotal:hugePagesTotal HugePagesFree:hugePagesFree "
    "HugePagesRsvd:hugePagesRsvd HugePagesSurp:hugePagesSurp HugePageSize:hugePageSize AnonHugePages:anonHugePages",
)
_SWAP_MEMORY = RecordType(
    "*mem.SwapMemoryStat",
    "Total:total Used:used Free:free UsedPercent:usedPercent Sin:sin Sout:sout PgIn:pgIn PgOut:pgOut PgFault:pgFault "
    "PgMajFault:pgMajFault",
)
_SWAP_DEVICE = RecordType("*mem.SwapDevice", "Name:name UsedBytes:usedBytes FreeBytes:freeBytes")
_ADDRESS = RecordType("net.InterfaceAddr", "Addr:addr")
_INTERFACE = RecordType(
    "net.InterfaceStat",
    "Index:index MTU:mtu Name:name HardwareAddr:hardwareAddr Flags:flags Addrs:addrs",
    {"addrs": ListOf(_ADDRESS, is_named=True)},
)

PLACES: Mapping[str, Place] = {
    "host": {"info": _HOST},
    "cpu": {"info": ListOf(_CPU)},
    "memory": {"virtual": _VIRTUAL_MEMORY, "swap": {"info": _SWAP_MEMORY, "devices": ListOf(_SWAP_DEVICE)}},
    "network": {"interfaces": ListOf(_INTERFACE, is_named=True)},
    "partition": {"partitions": ListOf(_PARTITION), "usage": ListOf(_DISK_USAGE)},
}
"""The places of records in the facts, by family."""

_TYPES = {
    one.go_type: one
    for one in (
        _DISK_USAGE, _PARTITION, _HOST, _CPU, _VIRTUAL_MEMORY, _SWAP_MEMORY, _SWAP_DEVICE, _ADDRESS, _INTERFACE,
    )
}  # fmt: skip


def with_go_names(facts: dict[str, Any]) -> dict[str, Any]:
    """
    Return facts with gathered records that can also be read by Go's names.

    A mapping in the place of a record is converted if it has all fields of the record, even if it comes from a message.

    Returns:
        The same object if nothing needs to be converted, otherwise a new mapping. The argument is never changed.
    """
    changed = {
        key: found
        for key, place in PLACES.items()
        if key in facts and (found := _placed(facts[key], place)) is not facts[key]
    }
    return {**facts, **changed} if changed else facts


def family_with_go_names(key: str, value: Any) -> Any:
    """Convert the value of one top-level key of the facts; see `with_go_names`."""
    place = PLACES.get(key)
    return value if place is None else _placed(value, place)


def unknown_fields(expression: str) -> Iterator[str]:
    """
    Yield warnings about `Facts.…` fields in an expression that do not exist in gathered facts. Custom facts may
    have them.
    """
    for written in _WRITTEN.findall(expression):
        place: Place | None = dict(PLACES)
        for name in _STEP.findall(written):
            if isinstance(place, ListOf):
                place = place.record_type if not name else None
            elif isinstance(place, RecordType):
                json_name = place.fields.get(name, name)
                if name and json_name not in place.json_names:
                    yield place.no_field(name, place.fields.values())
                place = place.inner.get(json_name)
            else:
                place = place.get(name) if place is not None else None


def _placed(value: Any, place: Place) -> Any:
    if isinstance(place, RecordType):
        return _record(value, place)
    if isinstance(place, ListOf):
        return _list(value, place)
    if type(value) is not dict:
        return value
    return _with_places(value, place)


def _with_places(value: dict[str, Any], places: Mapping[str, Place]) -> dict[str, Any]:
    changed = {
        key: found
        for key, place in places.items()
        if key in value and (found := _placed(value[key], place)) is not value[key]
    }
    return {**value, **changed} if changed else value


def _record(value: Any, record_type: RecordType) -> Any:
    if type(value) is not dict or not value.keys() >= record_type.json_names:
        return value
    return GatheredRecord(record_type, _with_places(value, record_type.inner))


def _list(value: Any, place: ListOf) -> Any:
    if type(value) is not list or not value or type(value[0]) is GatheredRecord:
        return value
    items = [_record(item, place.record_type) for item in value]
    if not all(type(item) is GatheredRecord for item in items):
        return value
    return GatheredList(items) if place.is_named else items


def _restored(go_type: str, values: dict[str, Any]) -> GatheredRecord:
    return GatheredRecord(_TYPES[go_type], values)
