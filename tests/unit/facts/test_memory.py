from pathlib import Path

import pytest

from ccm_agent.facts import memory
from ccm_agent.facts.memory import parse_meminfo, parse_swap, parse_swaps
from ccm_agent.model.errors import FactUnavailableError

DATA = Path(__file__).parent / "data"
KIB = 1024


def test_memory_is_counted_in_bytes() -> None:
    found = parse_meminfo((DATA / "meminfo_linux_6.18_x86_64.txt").read_text())

    assert (found["total"], found["available"], found["free"], found["buffers"]) == (
        24684092 * KIB,
        24329028 * KIB,
        24331680 * KIB,
        1288 * KIB,
    )
    assert found["used"] == found["total"] - found["available"]
    assert found["usedPercent"] == pytest.approx(100 * 355064 / 24684092)
    assert (found["hugePagesTotal"], found["hugePageSize"]) == (0, 2048 * KIB)
    assert len(found) == 38


def test_cached_includes_reclaimable_slabs() -> None:
    text = "MemTotal: 100 kB\nMemAvailable: 60 kB\nCached: 10 kB\nSReclaimable: 5 kB\n"

    assert parse_meminfo(text)["cached"] == 15 * KIB


@pytest.mark.parametrize("text", ["", "MemTotal: 1 kB\n", "MemAvailable: 1 kB\n", "MemTotal: x kB\n"])
def test_a_kernel_that_does_not_say_is_named(text: str) -> None:
    with pytest.raises(FactUnavailableError, match=r"needs? Linux 3\.14"):
        parse_meminfo(text)


def test_swap_is_read_from_meminfo_and_vmstat() -> None:
    swap = parse_swap({"swapTotal": 1000, "swapFree": 250}, "pswpin 2\npswpout 3\npgfault 1\nother 9\n")

    assert swap == {
        "total": 1000,
        "used": 750,
        "free": 250,
        "usedPercent": 75.0,
        "sin": 8192,
        "sout": 12288,
        "pgIn": 0,
        "pgOut": 0,
        "pgFault": 4096,
        "pgMajFault": 0,
    }


def test_without_swap_nothing_is_used() -> None:
    assert parse_swap({"swapTotal": 0, "swapFree": 0}, "")["usedPercent"] == 0.0


def test_swap_devices_are_listed() -> None:
    text = "Filename\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/dm-1 partition\t2097148\t1024\t-2\nbroken line\n"

    assert parse_swaps(text) == [
        {"name": "/dev/dm-1", "usedBytes": 1024 * KIB, "freeBytes": (2097148 - 1024) * KIB}
    ]


def test_the_family_has_ccms_shape(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    for name in ("meminfo", "vmstat"):
        (tmp_path / "proc" / name).write_text((DATA / f"{name}_linux_6.18_x86_64.txt").read_text())
    (tmp_path / "proc/swaps").write_text("Filename Type Size Used Priority\n")

    family = memory.gather(tmp_path)

    assert set(family) == {"virtual", "swap"}
    assert family["swap"]["devices"] == []
    assert family["swap"]["info"]["total"] == 0
