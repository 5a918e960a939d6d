"""Which distribution, which guest, which machine: told from texts, so every distribution can be tried here."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.facts import host
from ccm_agent.facts.host import Guest, Platform, host_id, parse_assignments, parse_guest, parse_platform


@pytest.mark.parametrize(
    ("etc", "platform"),
    [
        pytest.param(
            {"debian_version": "12.11\n", "os-release": 'ID=debian\nVERSION_ID="12"\n'},
            Platform("debian", "debian", "12.11"),
            id="Debian 12",
        ),
        pytest.param(
            {
                "debian_version": "trixie/sid\n",
                "lsb-release": 'DISTRIB_ID=Ubuntu\nDISTRIB_RELEASE=24.04\nDISTRIB_DESCRIPTION="Ubuntu 24.04.1 LTS"\n',
            },
            Platform("ubuntu", "debian", "24.04"),
            id="Ubuntu 24.04",
        ),
        pytest.param(
            {"debian_version": "kali-rolling\n"},
            Platform("debian", "debian", "kali-rolling"),
            id="other Debians",
        ),
        pytest.param(
            {"redhat-release": "Rocky Linux release 9.3 (Blue Onyx)\n"},
            Platform("rocky", "rhel", "9.3"),
            id="Rocky 9",
        ),
        pytest.param(
            {"redhat-release": "AlmaLinux release 9.4 (Seafoam Ocelot)\n"},
            Platform("almalinux", "rhel", "9.4"),
            id="AlmaLinux 9",
        ),
        pytest.param(
            {"redhat-release": "Red Hat Enterprise Linux release 8.10 (Ootpa)\n"},
            Platform("redhat", "rhel", "8.10"),
            id="RHEL 8",
        ),
        pytest.param(
            {"redhat-release": "CentOS Stream release 9\n"},
            Platform("centos", "rhel", "9"),
            id="CentOS Stream",
        ),
        pytest.param(
            {"redhat-release": "Fedora release 40 (Forty)\n"}, Platform("fedora", "fedora", "40"), id="Fedora"
        ),
        pytest.param(
            {
                "oracle-release": "Oracle Linux Server release 9.3\n",
                "redhat-release": "Red Hat Enterprise Linux release 9.3\n",
            },
            Platform("oracle", "rhel", "9.3"),
            id="Oracle Linux, which has Red Hat's file too",
        ),
        pytest.param(
            {"system-release": "Amazon Linux release 2023 (Amazon Linux)\n"},
            Platform("amazon", "rhel", "2023"),
            id="Amazon Linux",
        ),
        pytest.param(
            {"os-release": 'ID="opensuse-leap"\nVERSION_ID="15.6"\n'},
            Platform("opensuse-leap", "suse", "15.6"),
            id="openSUSE Leap",
        ),
        pytest.param({"alpine-release": "3.20.1\n"}, Platform("alpine", "alpine", "3.20.1"), id="Alpine"),
        pytest.param({"arch-release": "\n"}, Platform("arch", "arch", ""), id="Arch has no version"),
        pytest.param(
            {"os-release": 'ID=virtuozzo\nID_LIKE="rhel fedora"\nVERSION_ID=9\n'},
            Platform("virtuozzo", "rhel", "9"),
            id="an unknown one belongs to the family it says it is like",
        ),
        pytest.param(
            {"lsb-release": "DISTRIB_ID=Nobody\n"}, Platform("nobody", "", ""), id="only lsb-release"
        ),
        pytest.param({}, Platform("", "", ""), id="nothing is known"),
    ],
)
def test_the_distribution_is_detected_from_release_files(etc: dict[str, str], platform: Platform) -> None:
    assert parse_platform(etc) == platform


@pytest.mark.parametrize(
    ("files", "guest"),
    [
        pytest.param({}, Guest("", ""), id="bare metal"),
        pytest.param(
            {"proc/modules": "kvm_intel 4 0\nkvm 8 1\n"}, Guest("kvm", "host"), id="runs virtual machines"
        ),
        pytest.param({"proc/modules": "vboxguest 4 0\n"}, Guest("vbox", "guest"), id="VirtualBox guest"),
        pytest.param(
            {"proc/cpuinfo": "model name : QEMU Virtual CPU version 2.5+\n"},
            Guest("kvm", "guest"),
            id="KVM guest",
        ),
        pytest.param(
            {"proc/modules": "kvm 8 1\n", "proc/self/cgroup": "0::/docker/abc\n"},
            Guest("docker", "guest"),
            id="a container on a virtualization host is a container",
        ),
        pytest.param({"proc/1/environ": "container=lxc\0"}, Guest("lxc", "guest"), id="LXC"),
        pytest.param({".dockerenv": ""}, Guest("docker", "guest"), id="Docker's own mark"),
        pytest.param(
            {"proc/xen": "", "proc/xen/capabilities": "control_d\n"},
            Guest("xen", "host"),
            id="Xen's first domain",
        ),
        pytest.param({"proc/vz": ""}, Guest("openvz", "guest"), id="OpenVZ"),
    ],
)
def test_virtual_machine_is_detected_from_kernel_files(files: dict[str, str], guest: Guest) -> None:
    assert parse_guest(lambda name: files.get(name, ""), files.__contains__) == guest


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(
            {"sys/class/dmi/id/product_uuid": "4C4C4544-0042\n", "etc/machine-id": "0" * 32},
            "4c4c4544-0042",
            id="the firmware's",
        ),
        pytest.param(
            {"etc/machine-id": "0123456789abcdef0123456789abcdef\n"},
            "01234567-89ab-cdef-0123-456789abcdef",
            id="else the installation's",
        ),
        pytest.param(
            {"etc/machine-id": "short\n", "proc/sys/kernel/random/boot_id": "ABC\n"},
            "abc",
            id="else the boot's",
        ),
    ],
)
def test_a_machine_has_an_id(files: dict[str, str], expected: str) -> None:
    assert host_id(lambda name: files.get(name, "")) == expected


def test_this_machine_is_described(tmp_path: Path) -> None:
    for name, content in {
        "etc/debian_version": "12.1\n",
        "proc/uptime": "12.55 40.00\n",
        "proc/stat": "cpu 1 2\nbtime 1700000000\n",
        "proc/17/stat": "",
        "proc/self/status": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)

    info = host.gather(tmp_path)["info"]

    known = {
        key: info[key]
        for key in ("uptime", "bootTime", "procs", "os", "platform", "platformFamily", "hostId")
    }
    assert known == {
        "uptime": 12,
        "bootTime": 1700000000,
        "procs": 1,
        "os": "linux",
        "platform": "debian",
        "platformFamily": "debian",
        "hostId": "",
    }
    assert set(info) - set(known) == {
        "hostname",
        "platformVersion",
        "kernelVersion",
        "kernelArch",
        "virtualizationSystem",
        "virtualizationRole",
    }


@given(st.dictionaries(st.sampled_from(host.PLATFORM_FILES), st.text(max_size=40)))
def test_no_release_file_makes_it_fail(etc: dict[str, str]) -> None:
    assert all(isinstance(one, str) for one in parse_platform(etc))


@given(st.text(max_size=60))
def test_assignments_are_text(text: str) -> None:
    assert all(isinstance(value, str) for value in parse_assignments(text).values())
