from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.facts import cpu
from ccm_agent.facts.cpu import parse_cpuinfo

DATA = Path(__file__).parent / "data"


def _without_flags(processor: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in processor.items() if key != "flags"}


def test_a_thread_of_an_x86_processor_is_an_entry() -> None:
    processors = parse_cpuinfo((DATA / "cpuinfo_linux_6.18_x86_64.txt").read_text())

    assert [_without_flags(one) for one in processors] == [
        {
            "cpu": number,
            "vendorId": "AuthenticAMD",
            "family": "26",
            "model": "2",
            "stepping": 1,
            "physicalId": "0",
            "coreId": "0",
            "cores": 1,
            "modelName": "AMD EPYC",
            "mhz": 2596.098,
            "cacheSize": 1024,
            "microcode": "0x1000065",
        }
        for number in (0, 1)
    ]
    assert processors[0]["flags"][:3] == ["fpu", "vme", "de"]


def test_an_arm_processor_is_named_by_its_part() -> None:
    (processor,) = parse_cpuinfo((DATA / "cpuinfo_raspberry_pi_4.txt").read_text())

    assert processor == {
        "cpu": 0,
        "vendorId": "ARM",
        "family": "",
        "model": "0xd08",
        "stepping": 3,
        "physicalId": "",
        "coreId": "",
        "cores": 1,
        "modelName": "Cortex-A72",
        "mhz": 0.0,
        "cacheSize": 0,
        "flags": ["fp", "asimd", "evtstrm", "crc32", "cpuid"],
        "microcode": "",
    }


def test_the_clock_is_the_fastest_that_the_machine_can_do(tmp_path: Path) -> None:
    folder = tmp_path / "sys/devices/system/cpu/cpu0"
    (folder / "cpufreq").mkdir(parents=True)
    (folder / "topology").mkdir()
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor : 0\ncpu MHz : 800.0\n")
    (folder / "cpufreq/cpuinfo_max_freq").write_text("3600000\n")
    (folder / "topology/core_id").write_text("7\n")

    (processor,) = cpu.gather(tmp_path)["info"]

    assert (processor["mhz"], processor["coreId"]) == (3600.0, "7")


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("cpu : POWER9 (architected)", "vendorId", "IBM"),
        ("revision : 2.2 (pvr 004e 1202)", "stepping", 2),
        ("stepping : unknown", "stepping", 0),
        ("clock : 2800.000000MHz", "mhz", 2800.0),
        ("CPU implementer : 0x99", "vendorId", ""),
    ],
)
def test_other_architectures_have_other_words(line: str, field: str, value: object) -> None:
    (processor,) = parse_cpuinfo(f"processor : 0\n{line}\n")

    assert processor[field] == value


@given(
    st.lists(st.sampled_from(["processor", "stepping", "cpu MHz", "cache size", "flags", "CPU part"])),
    st.text(),
)
def test_no_text_makes_it_fail(names: list[str], value: str) -> None:
    text = "\n".join(f"{name} : {value}" for name in ["processor : 0", *names])

    assert isinstance(parse_cpuinfo(text), list)
