"""`memory`: main memory and swap, in bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ccm_agent.model.errors import FactUnavailableError

_KIB = 1024
_SWAP_PAGE = 4 * _KIB  # gopsutil uses this page size on all machines

_SIZES = {
    "total": "MemTotal",
    "available": "MemAvailable",
    "free": "MemFree",
    "active": "Active",
    "inactive": "Inactive",
    "buffers": "Buffers",
    "cached": "Cached",
    "writeBack": "Writeback",
    "dirty": "Dirty",
    "writeBackTmp": "WritebackTmp",
    "shared": "Shmem",
    "slab": "Slab",
    "sreclaimable": "SReclaimable",
    "sunreclaim": "SUnreclaim",
    "pageTables": "PageTables",
    "swapCached": "SwapCached",
    "commitLimit": "CommitLimit",
    "committedAS": "Committed_AS",
    "highTotal": "HighTotal",
    "highFree": "HighFree",
    "lowTotal": "LowTotal",
    "lowFree": "LowFree",
    "swapTotal": "SwapTotal",
    "swapFree": "SwapFree",
    "mapped": "Mapped",
    "vmallocTotal": "VmallocTotal",
    "vmallocUsed": "VmallocUsed",
    "vmallocChunk": "VmallocChunk",
    "hugePageSize": "Hugepagesize",
    "anonHugePages": "AnonHugePages",
}
_COUNTS = {
    "hugePagesTotal": "HugePages_Total",
    "hugePagesFree": "HugePages_Free",
    "hugePagesRsvd": "HugePages_Rsvd",
    "hugePagesSurp": "HugePages_Surp",
}
_PAGED = {
    "sin": "pswpin",
    "sout": "pswpout",
    "pgIn": "pgpgin",
    "pgOut": "pgpgout",
    "pgFault": "pgfault",
    "pgMajFault": "pgmajfault",
}


def gather(root: Path = Path("/")) -> dict[str, Any]:
    """Return the `memory` family, read from the proc below `root`."""
    proc = root / "proc"
    virtual = parse_meminfo((proc / "meminfo").read_text())
    swap = parse_swap(virtual, (proc / "vmstat").read_text())
    return {"virtual": virtual, "swap": {"info": swap, "devices": parse_swaps((proc / "swaps").read_text())}}


def parse_meminfo(text: str) -> dict[str, Any]:
    """
    Read /proc/meminfo.

    "Available" is the kernel's estimate of the memory that can be used without swapping. It is not "free",
    which excludes reclaimable cache and looks alarming on a healthy host. "Cached" includes the reclaimable
    slabs, as in Choria CCM.

    Args:
        text: The whole file: lines of `Name:  12345 kB`, in any order; a missing value is 0.

    Returns:
        Sizes in bytes, with gopsutil's field names. In the file, "kB" means 1024 bytes.

    Raises:
        FactUnavailableError: `MemTotal` or `MemAvailable` is missing; `MemAvailable` requires Linux 3.14.

    Source: proc_meminfo(5); samples in tests/unit/facts/data/meminfo_*.txt.
    """
    numbers = _numbers(text, ":")
    for name in ("MemTotal", "MemAvailable"):
        if name not in numbers:
            raise FactUnavailableError(f"/proc/meminfo has no {name}: memory facts need Linux 3.14 or newer")
    memory: dict[str, Any] = {name: numbers.get(line, 0) * _KIB for name, line in _SIZES.items()}
    memory |= {name: numbers.get(line, 0) for name, line in _COUNTS.items()}
    memory["cached"] += memory["sreclaimable"]
    memory["used"] = memory["total"] - memory["available"]
    memory["usedPercent"] = memory["used"] / memory["total"] * 100 if memory["total"] else 0.0
    memory |= {"wired": 0, "laundry": 0}  # fields of other systems that readers may expect
    return memory


def parse_swap(virtual: dict[str, Any], vmstat: str) -> dict[str, Any]:
    """Return total swap, from the result of `parse_meminfo` and the text of /proc/vmstat."""
    total, free = virtual["swapTotal"], virtual["swapFree"]
    numbers = _numbers(vmstat, " ")
    swap: dict[str, Any] = {"total": total, "used": total - free, "free": free}
    swap["usedPercent"] = (total - free) / total * 100 if total else 0.0
    return swap | {name: numbers.get(line, 0) * _SWAP_PAGE for name, line in _PAGED.items()}


def parse_swaps(text: str) -> list[dict[str, Any]]:
    """Read /proc/swaps: a heading, followed by lines of `name type size used priority` with sizes in KiB."""
    devices = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) >= 4 and fields[2].isdecimal() and fields[3].isdecimal():
            size, used = int(fields[2]) * _KIB, int(fields[3]) * _KIB
            devices.append({"name": fields[0], "usedBytes": used, "freeBytes": size - used})
    return devices


def _numbers(text: str, mark: str) -> dict[str, int]:
    numbers = {}
    for line in text.splitlines():
        name, _, rest = line.partition(mark)
        value = rest.split()
        if value and value[0].isdecimal():
            numbers[name.strip()] = int(value[0])
    return numbers
