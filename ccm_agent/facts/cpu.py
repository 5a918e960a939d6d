"""`cpu`: the processors, one entry for each hardware thread."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_IMPLEMENTERS = {
    0x41: "ARM", 0x42: "Broadcom", 0x43: "Cavium", 0x44: "DEC", 0x46: "Fujitsu", 0x48: "HiSilicon", 0x49: "Infineon",
    0x4D: "Motorola/Freescale", 0x4E: "NVIDIA", 0x50: "APM", 0x51: "Qualcomm", 0x56: "Marvell", 0x61: "Apple",
    0x69: "Intel", 0xC0: "Ampere",
}  # fmt: skip
_ARM_PARTS = {
    0xD03: "Cortex-A53", 0xD04: "Cortex-A35", 0xD05: "Cortex-A55", 0xD07: "Cortex-A57", 0xD08: "Cortex-A72",
    0xD09: "Cortex-A73", 0xD0A: "Cortex-A75", 0xD0B: "Cortex-A76", 0xD0C: "Neoverse-N1", 0xD0D: "Cortex-A77",
    0xD40: "Neoverse-V1", 0xD41: "Cortex-A78", 0xD44: "Cortex-X1", 0xD46: "Cortex-A510", 0xD47: "Cortex-A710",
    0xD48: "Cortex-X2", 0xD49: "Neoverse-N2", 0xD4A: "Neoverse-E1", 0xD4D: "Cortex-A715", 0xD4E: "Cortex-X3",
    0xD4F: "Neoverse-V2", 0xD81: "Cortex-A720", 0xD82: "Cortex-X4", 0xD84: "Neoverse-V3", 0xD8E: "Neoverse-N3",
}  # fmt: skip


def gather(root: Path = Path("/")) -> dict[str, Any]:
    """Return the `cpu` family, read from the proc and sys below `root`."""
    processors = parse_cpuinfo((root / "proc/cpuinfo").read_text(errors="replace"))
    for processor in processors:
        folder = root / f"sys/devices/system/cpu/cpu{processor['cpu']}"
        if not processor["coreId"]:
            processor["coreId"] = _line(folder / "topology/core_id")
        if fastest := _line(folder / "cpufreq/cpuinfo_max_freq"):
            # the maximum frequency in kHz, because the current frequency is not a property of the machine
            processor["mhz"] = float(fastest) / 1000
    return {"info": processors}


def parse_cpuinfo(text: str) -> list[dict[str, Any]]:
    """
    Read /proc/cpuinfo of any architecture.

    Returns:
        An entry for each `processor`, with gopsutil's field names; unknown text is "", an unknown number 0. `mhz` is the
        current clock speed.

    Source: proc_cpuinfo(5); samples in tests/unit/facts/data/cpuinfo_*.txt.
    """
    processors: list[dict[str, Any]] = []
    general: dict[str, Any] = {}
    current = general
    for line in text.splitlines():
        name, mark, value = (part.strip() for part in line.partition(":"))
        if not mark:
            continue
        if name in ("processor", "cpu number"):
            current = _empty(int(value)) if value.isdecimal() else general
            if current is not general:
                processors.append(current)
        elif name == "Processor":
            general["modelName"] = value
        else:
            _take(current, name, value)
    for processor in processors:
        # ARM lists the model once, before or after all processors
        if not processor["modelName"]:
            processor["modelName"] = general.get("modelName", "")
    return processors


def _empty(number: int) -> dict[str, Any]:
    return {
        "cpu": number,
        "vendorId": "",
        "family": "",
        "model": "",
        "stepping": 0,
        "physicalId": "",
        "coreId": "",
        "cores": 1,
        "modelName": "",
        "mhz": 0.0,
        "cacheSize": 0,
        "flags": [],
        "microcode": "",
    }


_TEXTS = {
    "vendorId": "vendorId",
    "vendor_id": "vendorId",
    "cpu family": "family",
    "marchid": "family",
    "model": "model",
    "mimpid": "model",
    "Model Name": "modelName",
    "model name": "modelName",
    "cpu": "modelName",
    "uarch": "modelName",
    "physical id": "physicalId",
    "hart": "physicalId",
    "core id": "coreId",
    "microcode": "microcode",
}


def _take(processor: dict[str, Any], name: str, value: str) -> None:
    if name in _TEXTS:
        processor[_TEXTS[name]] = value
        if name == "cpu" and "POWER" in value:
            processor.update(model=value.split(" ")[0], family="POWER", vendorId="IBM")
    elif name == "CPU implementer":
        processor["vendorId"] = _IMPLEMENTERS.get(_number(value), "")
    elif name == "CPU part":
        processor["model"] = value
        if processor.get("vendorId") == "ARM":
            processor["modelName"] = _ARM_PARTS.get(_number(value), "Undefined")
    elif name in ("stepping", "revision", "CPU revision"):
        processor["stepping"] = _number(value.split(".")[0].split(" ")[0])
    elif name in ("cpu MHz", "clock", "cpu MHz dynamic"):
        found = re.match(r"[0-9]+(?:\.[0-9]+)?", value)
        processor["mhz"] = float(found[0]) if found else 0.0
    elif name == "cache size":
        processor["cacheSize"] = _number(value.split(" ")[0])
    elif name in ("flags", "Features"):
        processor["flags"] = re.split(r"[ ,]+", value) if value else []


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        return int(text) if text.isdecimal() else 0


def _line(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
