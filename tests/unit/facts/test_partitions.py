from pathlib import Path

from ccm_agent.facts import partitions
from ccm_agent.facts.partitions import parse_filesystems, parse_mountinfo

DATA = Path(__file__).parent / "data"


def test_filesystems_that_keep_data_are_detected_from_the_others() -> None:
    assert parse_filesystems("nodev\tproc\n\text4\nnodev\tzfs\n\tbtrfs\n") == {"ext4", "zfs", "btrfs"}


def test_only_file_systems_with_data_are_partitions() -> None:
    kinds = parse_filesystems((DATA / "filesystems_debian_12_linux_6.18.txt").read_text())

    found = parse_mountinfo((DATA / "mountinfo_debian_12_linux_6.18.txt").read_text(), kinds)

    assert found == [
        {"device": "/dev/vda", "mountpoint": "/", "fstype": "ext4", "opts": ["rw", "relatime"]},
    ]


def test_subvolumes_are_partitions_and_bind_mounts_are_not() -> None:
    text = (DATA / "mountinfo_fedora_btrfs.txt").read_text()

    found = parse_mountinfo(text, frozenset({"btrfs", "ext4", "xfs", "zfs"}))

    assert found == [
        {"device": "/dev/vda3", "mountpoint": "/", "fstype": "btrfs", "opts": ["rw", "relatime"]},
        {"device": "/dev/vda3", "mountpoint": "/home", "fstype": "btrfs", "opts": ["rw", "relatime"]},
        {"device": "/dev/vda2", "mountpoint": "/boot", "fstype": "ext4", "opts": ["ro", "relatime"]},
        {"device": "/dev/sdb1", "mountpoint": "/mnt/with space", "fstype": "xfs", "opts": ["ro", "relatime"]},
        {"device": "tank/data", "mountpoint": "/tank", "fstype": "zfs", "opts": ["rw", "noatime"]},
    ]


def test_lines_that_are_not_valid_are_left_out() -> None:
    assert parse_mountinfo("\n1 2\n1 2 3 4 5 6 - ext4\n - \n", frozenset({"ext4"})) == []


def test_how_full_a_partition_is_adds_up(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self/mountinfo").write_text(
        f"1 0 8:1 / {tmp_path} rw - ext4 /dev/sda1 rw\n2 0 8:2 / /nowhere/at/all rw - ext4 /dev/sda2 rw\n"
    )
    (proc / "filesystems").write_text("\text4\n")

    family = partitions.gather(tmp_path)

    assert [one["mountpoint"] for one in family["partitions"]] == [str(tmp_path), "/nowhere/at/all"]
    (usage,) = family["usage"]
    assert (usage["path"], usage["fstype"]) == (str(tmp_path), "ext4")
    assert usage["used"] + usage["free"] <= usage["total"]
    assert 0 <= usage["usedPercent"] <= 100
