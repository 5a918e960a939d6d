"""Groups and users with the shadow tools of a Debian and of a dnf system."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import testenv

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

KINDS = ["apt", "dnf"]


def declare(machine: testenv.Node, resources: list[dict[str, Any]]) -> None:
    machine.path("/root/m.yaml").write_text(json.dumps({"ccm": {"resources": resources}}))


def apply(
    machine: testenv.Node, program: str, resources: list[dict[str, Any]], *options: str
) -> dict[str, Any]:
    """Apply resources; returns each one's error, or whether it changed, by `type#name`."""
    declare(machine, resources)
    machine.run(
        program, "apply", "/root/m.yaml", "--events", "/root/events", *options, check=False, timeout=120
    )
    events = [json.loads(line) for line in machine.path("/root/events").read_text().splitlines()]
    machine.path("/root/events").unlink()
    return {
        f"{one['type']}#{one['name']}": (one["error"] or one["changed"])
        for one in events
        if one["protocol"].endswith("transaction.event")
    }


def group_of(machine: testenv.Node, name: str) -> str:
    """The entry of a group; "" if there is none."""
    return str(machine.run("getent", "group", name, check=False).stdout).strip()


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_is_made_kept_repaired_and_removed(
    only: Callable[[str], testenv.Node], program: str, kind: str
) -> None:
    machine = only(kind)
    wanted = [{"group": [{"cm-web": {"gid": 4900, "members": ["daemon", "bin"]}}]}]

    planned = apply(machine, program, wanted, "--noop")
    assert (planned, group_of(machine, "cm-web")) == ({"group#cm-web": True}, "")
    assert apply(machine, program, wanted) == {"group#cm-web": True}
    assert group_of(machine, "cm-web") == "cm-web:x:4900:bin,daemon"
    assert apply(machine, program, wanted) == {"group#cm-web": False}

    machine.run("groupmod", "-g", "4901", "cm-web")
    machine.run("gpasswd", "-M", "games,bin", "cm-web")
    assert apply(machine, program, wanted) == {"group#cm-web": True}
    assert group_of(machine, "cm-web") == "cm-web:x:4900:games,bin,daemon"

    exact = [{"group": [{"cm-web": {"members": ["bin"], "members_exclusive": True}}]}]
    assert apply(machine, program, exact) == {"group#cm-web": True}
    assert group_of(machine, "cm-web") == "cm-web:x:4900:bin"

    gone = [{"group": [{"cm-web": {"ensure": "absent"}}]}]
    assert apply(machine, program, gone) == {"group#cm-web": True}
    assert apply(machine, program, gone) == {"group#cm-web": False}
    assert group_of(machine, "cm-web") == ""


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_tools_refuse_is_a_clear_error(
    only: Callable[[str], testenv.Node], program: str, kind: str
) -> None:
    machine = only(kind)
    before = machine.path("/etc/group").read_text()

    assert apply(machine, program, [{"group": [
        {"daemon": {"ensure": "absent"}},
        {"root": {"ensure": "absent"}},
        {"cm-taken": {"gid": 1}},
        {"bin": {"members": ["nobody-has-this-name"]}},
    ]}]) == {
        "group#daemon": ["could not remove the group daemon: groupdel: cannot remove the primary group of user 'daemon'"],
        "group#root": ["the group root has gid 0, so it is not removed"],
        "group#cm-taken": ["could not create the group cm-taken: groupadd: GID '1' already exists"],
        "group#bin": [
            "could not add nobody-has-this-name to the group bin: gpasswd: user 'nobody-has-this-name' does not exist"
        ],
    }  # fmt: skip
    assert machine.path("/etc/group").read_text() == before


HASH = "$6$saltsaltsalt$" + "Hh./" * 21 + "ab"
OTHER_HASH = "$y$j9T$abcdefghijklmnopqrstuv$" + "y" * 43
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 42 + "B alice@laptop"
OTHER_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + "C" * 43 + " alice@desk"


def user_of(machine: testenv.Node, name: str) -> list[str]:
    """The entry of a user without its password field, and the names of its groups."""
    entry = str(machine.run("getent", "passwd", name, check=False).stdout).strip().split(":")
    groups = str(machine.run("id", "-nG", name, check=False).stdout).split()
    return [*entry[:1], *entry[2:], ",".join(sorted(groups))]


def shadow_of(machine: testenv.Node, name: str) -> tuple[str, str]:
    """The password field and the expiry of a user."""
    for line in machine.path("/etc/shadow").read_text().splitlines():
        fields = line.split(":")
        if fields[0] == name:
            return fields[1], fields[7]
    return "", ""


def keys_of(machine: testenv.Node, home: str) -> str:
    """Owners and modes of ~/.ssh and authorized_keys, and the content of the file."""
    shown = machine.run("stat", "-c", "%U %a", f"{home}/.ssh", f"{home}/.ssh/authorized_keys").stdout
    return str(shown) + machine.path(f"{home}/.ssh/authorized_keys").read_text()


ALICE = {
    "uid": 4500, "gid": 4501, "groups": ["games"], "home": "/home/alice", "shell": "/bin/bash", "comment": "Alice Ü",
    "password_hash": HASH, "authorized_keys": [KEY], "create_home": True,
}  # fmt: skip


@pytest.fixture
def alice(only: Callable[[str], testenv.Node], request: pytest.FixtureRequest) -> testenv.Node:
    """A machine of a kind without the user of the tests."""
    machine = only(request.param)
    machine.run(
        "sh", "-c", "pkill -u alice; userdel alice; groupdel alice; rm -rf /home/alice; true", check=False
    )
    return machine


each_kind = pytest.mark.parametrize("alice", KINDS, indirect=True)


def one(**properties: Any) -> list[dict[str, Any]]:
    return [{"user": [{"alice": properties}]}]


@each_kind
def test_a_user_is_made_kept_and_repaired(alice: testenv.Node, program: str) -> None:
    assert apply(alice, program, one(**ALICE), "--noop") == {"user#alice": True}
    assert user_of(alice, "alice")[0] == ""
    assert apply(alice, program, one(**ALICE)) == {"user#alice": True}
    assert apply(alice, program, one(**ALICE)) == {"user#alice": False}
    made = ["alice", "4500", "4501", "Alice Ü", "/home/alice", "/bin/bash", "alice,games"]
    keys = f"alice 700\nalice 600\n{KEY}\n"
    assert user_of(alice, "alice") == made
    assert shadow_of(alice, "alice") == (HASH, "")
    assert keys_of(alice, "/home/alice") == keys
    assert alice.path("/home/alice/.bashrc").exists()

    alice.run("usermod", "-u", "4600", "-s", "/bin/sh", "-c", "x", "-p", OTHER_HASH, "-G", "", "alice")
    alice.run("chmod", "755", "/home/alice/.ssh")
    alice.run("chown", "-R", "daemon", "/home/alice/.ssh/authorized_keys")
    assert apply(alice, program, one(**ALICE)) == {
        "user#alice": [
            "/home/alice/.ssh/authorized_keys: belongs to daemon and not to alice, so no SSH keys are managed there"
        ]
    }
    alice.run("chown", "-R", "alice", "/home/alice/.ssh/authorized_keys")
    assert apply(alice, program, one(**ALICE)) == {"user#alice": True}
    assert apply(alice, program, one(**ALICE)) == {"user#alice": False}
    assert user_of(alice, "alice") == made
    assert shadow_of(alice, "alice") == (HASH, "")
    assert keys_of(alice, "/home/alice") == keys

    alice.run("rm", "-r", "/home/alice")
    assert apply(alice, program, one(**ALICE)) == {"user#alice": True}
    assert keys_of(alice, "/home/alice") == keys
    assert alice.path("/home/alice/.bashrc").exists()


@each_kind
def test_a_new_uid_is_that_of_the_home_and_the_mailbox_and_of_nothing_else(
    alice: testenv.Node, program: str
) -> None:
    apply(alice, program, one(**ALICE))
    mailbox, crontab, elsewhere = "/var/mail/alice", "/var/spool/cron/crontabs/alice", "/srv/of-alice"
    alice.run(
        "sh",
        "-c",
        "mkdir -p /var/mail /var/spool/cron/crontabs /srv; touch /home/alice/mine /home/alice/other",
    )
    for path in (mailbox, crontab, elsewhere):
        alice.run("touch", path)
    alice.run("chown", "alice:mail", mailbox)
    alice.run("chown", "alice", crontab, elsewhere, "/home/alice/mine")

    assert apply(alice, program, one(**{**ALICE, "uid": 4700})) == {"user#alice": True}

    paths = (mailbox, "/home/alice", "/home/alice/mine", "/home/alice/other", crontab, elsewhere)
    owners = alice.run("stat", "-c", "%u %n", *paths).stdout
    alice.run("rm", mailbox, crontab, elsewhere)
    assert [line.split()[0] for line in str(owners).splitlines()] == [
        "4700",
        "4700",
        "4700",
        "0",
        "4500",
        "4500",
    ]


@each_kind
def test_no_hash_is_in_an_event_or_on_a_command_line(alice: testenv.Node, program: str) -> None:
    spy = "/usr/local/sbin/useradd"
    tools = ("useradd", "usermod", "chpasswd", "groupadd")
    for tool in tools:
        path = alice.path(f"/usr/local/sbin/{tool}")
        path.write_text(f'#!/bin/sh\necho "$0 $*" >> /root/argv\nexec /usr/sbin/{tool} "$@"\n')
        path.chmod(0o755)
    try:
        declare(alice, one(**ALICE, locked=True))
        told = alice.run(program, "apply", "/root/m.yaml", "--events", "/root/events", "--diff", check=False)
        shown = alice.run(program, "status", "user", "alice", "--json", check=False).stdout
        events = alice.path("/root/events").read_text()
        argv = alice.path("/root/argv").read_text()
    finally:
        alice.run("sh", "-c", "rm -f /root/argv /root/events /usr/local/sbin/*")

    assert spy in argv
    assert "chpasswd -e" in argv
    for text in (argv, events, told.stdout, told.stderr, shown):
        assert HASH not in text
        assert HASH[-40:] not in text
    assert shadow_of(alice, "alice") == (f"!{HASH}", "1")


@each_kind
def test_a_lock_stays_with_a_new_hash_and_is_removed(alice: testenv.Node, program: str) -> None:
    apply(alice, program, one(password_hash=HASH, locked=True))
    assert shadow_of(alice, "alice") == (f"!{HASH}", "1")
    assert apply(alice, program, one(password_hash=HASH, locked=True)) == {"user#alice": False}
    assert apply(alice, program, one(password_hash=OTHER_HASH)) == {"user#alice": True}
    assert shadow_of(alice, "alice") == (f"!{OTHER_HASH}", "1")

    assert apply(alice, program, one(locked=False)) == {"user#alice": True}
    assert shadow_of(alice, "alice") == (OTHER_HASH, "")
    assert apply(alice, program, one(locked=False)) == {"user#alice": False}

    assert apply(alice, program, one(expires="2030-01-31", password_hash="*")) == {"user#alice": True}
    assert shadow_of(alice, "alice") == ("*", "21945")
    assert apply(alice, program, one(expires="2030-01-31", password_hash="*")) == {"user#alice": False}


@each_kind
def test_groups_and_keys_are_added_or_exact(alice: testenv.Node, program: str) -> None:
    apply(alice, program, one(groups=["games"], authorized_keys=[KEY]))
    assert apply(alice, program, one(groups=["audio"], authorized_keys=[OTHER_KEY])) == {"user#alice": True}
    assert user_of(alice, "alice")[-1] == "alice,audio,games"
    assert keys_of(alice, "/home/alice") == f"alice 700\nalice 600\n{KEY}\n{OTHER_KEY}\n"

    exact = one(groups=["audio"], groups_exclusive=True, authorized_keys=[], authorized_keys_exclusive=True)
    assert apply(alice, program, exact) == {"user#alice": True}
    assert apply(alice, program, exact) == {"user#alice": False}
    assert user_of(alice, "alice")[-1] == "alice,audio"
    assert not alice.path("/home/alice/.ssh/authorized_keys").exists()


@each_kind
def test_a_link_in_the_home_directory_is_not_followed(alice: testenv.Node, program: str) -> None:
    apply(alice, program, one(create_home=True))
    for trap in (
        "ln -s /root .ssh",
        "mkdir .ssh; ln -s /root/.bashrc .ssh/authorized_keys",
        "mkdir .ssh; ln -s /root/new .ssh/authorized_keys",
        "mkdir .ssh; mkfifo .ssh/authorized_keys",
    ):
        alice.run("su", "alice", "-c", f"cd && rm -rf .ssh && {trap}")
        before = alice.run("sh", "-c", "stat -c '%n %U %a %Y' /root /root/.bashrc; ls -A /root | sort").stdout

        (error,) = apply(alice, program, one(authorized_keys=[KEY]))["user#alice"]

        assert "/home/alice/.ssh" in error
        after = alice.run("sh", "-c", "stat -c '%n %U %a %Y' /root /root/.bashrc; ls -A /root | sort").stdout
        assert [line for line in str(after).splitlines() if not line.startswith("/root ")] == [
            line for line in str(before).splitlines() if not line.startswith("/root ")
        ]
        assert alice.run("stat", "-c", "%U %a", "/root").stdout == "root 700\n"


@each_kind
def test_a_removed_user_keeps_its_home_unless_it_is_purged(alice: testenv.Node, program: str) -> None:
    apply(alice, program, one(**ALICE))
    sleeper = alice.popen("su", "alice", "-c", "exec sleep 1000")
    alice.run("sh", "-c", "until pgrep -u alice sleep; do sleep 0.05; done", timeout=20)

    (error,) = apply(alice, program, one(ensure="absent", purge_home=True))["user#alice"]

    assert error.startswith(
        "could not remove the user alice: userdel: user alice is currently used by process "
    )
    assert error.endswith("; end its sessions and processes first")
    assert user_of(alice, "alice")[0] == "alice"
    assert alice.path("/home/alice/.bashrc").exists()

    alice.run("pkill", "-u", "alice")
    sleeper.wait(timeout=20)
    alice.run("su", "alice", "-c", "ln -s /etc /home/alice/link")
    assert apply(alice, program, one(ensure="absent")) == {"user#alice": True}
    assert apply(alice, program, one(ensure="absent")) == {"user#alice": False}
    assert alice.path("/home/alice/.bashrc").exists()

    apply(alice, program, one(**ALICE))
    assert apply(alice, program, one(ensure="absent", purge_home=True)) == {"user#alice": True}
    assert not alice.path("/home/alice").exists()
    assert alice.path("/etc/passwd").exists()


@each_kind
def test_what_would_harm_the_host_is_refused(alice: testenv.Node, program: str) -> None:
    files = [alice.path(f"/etc/{name}") for name in ("passwd", "shadow", "group")]
    before = [file.read_text() for file in files]

    told = apply(alice, program, [{"user": [
        {"root": {"ensure": "absent"}},
        {"daemon": {"ensure": "absent", "purge_home": True}},
        {"games": {"uid": 1, "home": "/usr/games"}},
        {"news": {"uid": 4999}},
        {"bin": {"groups": ["no-such-group"]}},
        {"sync": {"authorized_keys": [KEY]}},
    ]}])  # fmt: skip

    assert told == {
        "user#root": ["the user root has uid 0, so it is not removed"],
        "user#daemon": ["the home directory /usr/sbin is not removed, because it belongs to root"],
        "user#games": ["could not change the user games: usermod: UID '1' already exists"],
        "user#news": [
            "the numbers of the user news are not changed, because its files in /var/spool/news would also change owner or "
            "group; to allow this, set `home: /var/spool/news`"
        ],
        "user#bin": ["could not add the user bin to groups: usermod: group 'no-such-group' does not exist"],
        "user#sync": ["/bin: belongs to root and not to sync, so no SSH keys are managed there"],
    }
    assert not alice.path("/usr/bin/.ssh").exists()
    assert [file.read_text() for file in files] == before
