"""Every row of the user type's decision table, and what undoes a change."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ccm_agent.model.ports import FileInfo, KeyFile
from ccm_agent.model.records.undo import EarlierFile
from ccm_agent.model.resource_diff import PropertyChange
from ccm_agent.resources.contract import Decision, DecisionContext, HostAccess
from ccm_agent.resources.user.checks import check
from ccm_agent.resources.user.model import UserMetadata, UserProperties, UserSecrets, UserState
from ccm_agent.resources.user.passwords import is_expired_by_lock, locks_of
from ccm_agent.resources.user.providers.reading import absent, present
from ccm_agent.resources.user.resource import decide, reach
from ccm_agent.resources.user.undo import earlier, identify
from tests.unit.resources.user.test_key_lines import A, B
from tests.unit.resources.user.test_passwords import HASH, YESCRYPT

ABSENT = absent("alice")
FILE = KeyFile(content=f"{A}\n".encode())


def user(**properties: Any) -> UserProperties:
    return UserProperties(**{"name": "alice", "ensure": "present", **properties})


def found(
    password: str | None = HASH,
    expires: str = "never",
    keys: KeyFile | None = FILE,
    home: FileInfo | None = None,
    home_users: tuple[str, ...] = (),
    **metadata: Any,
) -> UserState:
    values: dict[str, Any] = {
        "uid": 1000, "gid": 1001, "group": "alice", "groups": ["audio", "games"], "home": "/home/alice",
        "shell": "/bin/bash", "comment": "Alice", "expires": expires,
        "locked": locks_of(password or "") > 0 or is_expired_by_lock(expires), **metadata,
    }  # fmt: skip
    secrets = UserSecrets(password=password, keys=keys, home=home, home_users=home_users)
    return present(UserMetadata(name="alice", provider="shadow", **values), secrets)


def home(kind: str = "directory", uid: int = 1000, **values: Any) -> FileInfo:
    return FileInfo(path="/home/alice", kind=kind, uid=uid, owner=f"u{uid}", **values)


PRESENT = found()
HOME_ELSEWHERE = msgspec.structs.replace(
    PRESENT, metadata=msgspec.structs.replace(PRESENT.metadata, home="/srv/a")
)
LOCKED = found(f"!{HASH}", "1970-01-02")
EXPIRED, HALF_LOCKED = found(HASH, "1970-01-02"), found(f"!{HASH}")

ROWS: list[tuple[UserProperties, UserState, list[str]]] = [
    (user(), ABSENT, ["Would have created the user"]),
    (user(groups=["web"], uid=5), ABSENT, ["Would have created the user"]),
    (
        user(password_hash=HASH, locked=True, authorized_keys=[A]),
        ABSENT,
        [
            "Would have created the user", "Would have set the password hash", "Would have locked the user",
            "Would have added the SSH keys",
        ],
    ),
    (user(locked=False), ABSENT, ["Would have created the user"]),
    (user(), PRESENT, []),
    (user(uid=1000, group="alice", home="/home/alice", shell="/bin/bash", comment="Alice"), PRESENT, []),
    (user(gid=1001), PRESENT, []),
    (user(group="01001"), PRESENT, []),
    (user(uid=7, shell="/bin/sh"), PRESENT, ["Would have changed uid, shell"]),
    (user(group="web"), PRESENT, ["Would have changed group"]),
    (user(uid=7, home="/srv/a"), HOME_ELSEWHERE, ["Would have changed uid"]),
    (user(uid=1000, group="alice"), HOME_ELSEWHERE, []),
    (user(gid=7), PRESENT, ["Would have changed group"]),
    (user(home="/srv/a"), PRESENT, ["Would have changed home"]),
    (
        user(home="/srv/a", create_home=True),
        PRESENT,
        ["Would have changed home", "Would have created the home directory"],
    ),
    (user(comment=""), PRESENT, ["Would have changed comment"]),
    (user(expires="2030-01-31"), PRESENT, ["Would have changed expires"]),
    (user(expires="never"), PRESENT, []),
    (user(expires="never"), found(expires="2030-01-31"), ["Would have changed expires"]),
    (user(create_home=True), found(home=home()), []),
    (user(create_home=True), found(home=home("absent", -1)), ["Would have created the home directory"]),
    (user(create_home=True), found(home=home("absent", -1, link="/x")), []),
    (user(), found(home=home("absent", -1)), []),
    (user(groups=["games"]), PRESENT, []),
    (user(groups=["web"]), PRESENT, ["Would have added groups"]),
    (user(groups=["games", "audio"], groups_exclusive=True), PRESENT, []),
    (user(groups=[], groups_exclusive=True), PRESENT, ["Would have set the groups"]),
    (user(password_hash=HASH), PRESENT, []),
    (user(password_hash=YESCRYPT), PRESENT, ["Would have set the password hash"]),
    (user(password_hash="*"), PRESENT, ["Would have set the password hash"]),
    (user(password_hash="*"), found("!"), []),
    (user(password_hash="*"), found(""), ["Would have set the password hash"]),
    (user(password_hash=HASH), LOCKED, []),
    (user(locked=True), PRESENT, ["Would have locked the user"]),
    (user(locked=True), LOCKED, []),
    (user(locked=True), EXPIRED, ["Would have locked the user"]),
    (user(locked=True), HALF_LOCKED, ["Would have locked the user"]),
    (user(locked=True), found("!", "1970-01-02"), []),
    (user(locked=True, expires="2030-01-31"), LOCKED, []),
    (user(locked=False), PRESENT, []),
    (user(locked=False), found("!"), []),
    (user(locked=False), LOCKED, ["Would have unlocked the user"]),
    (user(locked=False), EXPIRED, ["Would have unlocked the user"]),
    (user(locked=False), HALF_LOCKED, ["Would have unlocked the user"]),
    (user(authorized_keys=[A]), PRESENT, []),
    (user(authorized_keys=[A]), found(keys=KeyFile()), ["Would have added the SSH keys"]),
    (user(authorized_keys=[B]), PRESENT, ["Would have added the SSH keys"]),
    (user(authorized_keys=[A], authorized_keys_exclusive=True), PRESENT, []),
    (user(authorized_keys=[B], authorized_keys_exclusive=True), PRESENT, ["Would have set the SSH keys"]),
    (user(authorized_keys=[], authorized_keys_exclusive=True), PRESENT, ["Would have set the SSH keys"]),
    (user(authorized_keys=[], authorized_keys_exclusive=True), found(keys=KeyFile()), []),
    (user(authorized_keys=[]), PRESENT, []),
    (
        user(authorized_keys=[A]),
        found(keys=KeyFile(content=FILE.content, fault="~/.ssh has mode 0755")),
        ["Would have added the SSH keys"],
    ),
    (
        user(authorized_keys=[A], home="/srv/a"),
        PRESENT,
        ["Would have changed home", "Would have added the SSH keys"],
    ),
    (user(ensure="absent"), ABSENT, []),
    (user(ensure="absent"), PRESENT, ["Would have removed the user"]),
    (user(ensure="absent", purge_home=True), found(home=home("absent", -1)), ["Would have removed the user"]),
    (
        user(ensure="absent", purge_home=True),
        found(home=home()),
        ["Would have removed the user", "Would have removed the home directory"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("wanted", "state", "steps"), ROWS, ids=range(len(ROWS)))
def test_a_difference_is_a_step(wanted: UserProperties, state: UserState, steps: list[str]) -> None:
    check(wanted)

    decision = decide(wanted, state, DecisionContext())

    assert decision.error is None
    assert [step.noop for step in decision.steps] == steps
    assert bool(decision.reason) is bool(steps)


@pytest.mark.parametrize(
    ("wanted", "state", "why"),
    [
        (user(ensure="absent"), found(uid=0), "has uid 0, so it is not removed"),
        (user(uid=5), found(uid=0), "has uid 0, so it is not given another number"),
        (user(locked=True), found(uid=0), "has uid 0, so it is not locked"),
        (user(password_hash=HASH), found(password=None), "no readable entry for alice"),
        (user(locked=False), found(password=None), "no readable entry for alice"),
        (user(expires="never"), found(password=None), "no readable entry for alice"),
        (user(authorized_keys=[A]), found(keys=KeyFile(error="x: is a symlink")), "x: is a symlink"),
        (user(uid=7), HOME_ELSEWHERE, "files in /srv/a would also change owner or group; to allow this, set `home: /srv/a`"),
        (user(gid=7), HOME_ELSEWHERE, "the numbers of the user alice are not changed"),
        (user(group="web"), HOME_ELSEWHERE, "the numbers of the user alice are not changed"),
        (
            user(ensure="absent", purge_home=True),
            found(home=home(uid=0)),
            "the home directory /home/alice is not removed, because it belongs to u0",
        ),
        (
            user(ensure="absent", purge_home=True),
            found(home=home("symlink")),
            "is not removed, because it is symlink",
        ),
        (
            user(ensure="absent", purge_home=True),
            found(home=home(), home_users=("bob", "carol")),
            "is not removed, because it contains the home of bob, carol",
        ),
        (
            user(ensure="absent", purge_home=True),
            found(home=FileInfo(path="/", kind="directory", uid=1000)),
            "the home directory / is not removed, because it is the root",
        ),
        (
            user(ensure="absent", purge_home=True, home="/srv/alice"),
            found(home=home()),
            "the home directory /home/alice is not removed, because `home` names /srv/alice",
        ),
    ],
)  # fmt: skip
def test_what_would_do_harm_is_an_error_before_any_step(
    wanted: UserProperties, state: UserState, why: str
) -> None:
    if state.secrets.home is not None:
        state.metadata.home = state.secrets.home.path

    decision = decide(wanted, state, DecisionContext())

    assert decision.steps == ()
    assert why in str(decision.error)


def test_a_user_whose_shadow_entry_is_not_readable_is_managed_in_all_other_ways() -> None:
    decision = decide(user(shell="/bin/sh"), found(password=None), DecisionContext())

    assert decision.error is None
    assert len(decision.steps) == 1


def test_the_diff_shows_fingerprints_and_no_hash() -> None:
    wanted = user(uid=7, password_hash=YESCRYPT, groups=["web"], authorized_keys=[f"{B} b"], locked=True)

    decision = decide(wanted, PRESENT, DecisionContext())

    changes = {one.property: one for one in decision.changes}
    assert changes["uid"] == PropertyChange(property="uid", before="1000", after="7")
    assert changes["password_hash"] == PropertyChange(property="password_hash", before="***", after="***")
    assert changes["groups"].after == "audio,games,web"
    assert changes["locked"] == PropertyChange(property="locked", before="false", after="true")
    assert changes["authorized_keys"].after.count("ssh-ed25519 SHA256:") == 2
    text = decision.reason + repr(decision.changes)
    assert HASH not in text
    assert YESCRYPT not in text


def test_a_comment_that_a_user_wrote_cannot_spoil_an_event_or_a_terminal() -> None:
    state = found(keys=KeyFile(content=f"{A} ".encode() + b"\xff\x1b[2Jx\n"))

    decision = decide(user(authorized_keys=[B]), state, DecisionContext())

    assert msgspec.json.encode(decision.changes)
    assert decision.changes[0].before.endswith(" \ufffd\ufffd[2Jx")


async def test_a_new_user_that_is_locked_never_has_an_open_hash() -> None:
    written = []

    class Provider:
        async def set_password(self, name: str, field: str) -> None:
            written.append((name, field))

    decision = decide(user(password_hash=HASH, locked=True), ABSENT, DecisionContext())
    await next(one for one in decision.steps if "password" in one.noop).action(Provider())

    assert written == [("alice", f"!{HASH}")]


def test_hash_and_keys_are_in_no_output_of_the_state() -> None:
    shown = f"{msgspec.json.encode(PRESENT)!r} {msgspec.to_builtins(PRESENT)} {PRESENT!r}"

    assert PRESENT.secrets.password == HASH
    assert HASH not in shown
    assert A.split()[1] not in shown


def test_the_policy_sees_files_and_home() -> None:
    accounts = ("/etc/passwd", "/etc/shadow", "/etc/group", "/etc/gshadow")

    assert reach(user()) == HostAccess(paths=accounts)
    assert reach(user(home="/h")) == HostAccess(paths=(*accounts, "/h"))
    assert reach(user(home="/h", authorized_keys=[A])) == HostAccess(
        paths=(*accounts, "/h", "/h/.ssh/authorized_keys")
    )
    assert reach(user(uid=7, home="/h")) == HostAccess(paths=(*accounts, "/h"), trees=("/h",))
    for renumbered in (user(uid=7), user(gid=7), user(group="web")):
        assert reach(renumbered) == HostAccess(paths=accounts, trees=("/home/alice",))
    assert reach(user(uid=7, ignore=["uid"])) == HostAccess(paths=accounts)
    assert reach(user(uid=7, home="/h", ignore=["home"])).trees == ("/home/alice",)
    assert reach(user(ensure="absent", uid=7)) == HostAccess(paths=accounts)
    assert reach(user(authorized_keys=[A])) == HostAccess(paths=accounts, trees=("/",))
    assert reach(user(ensure="absent", purge_home=True, home="/h")).trees == ("/h",)
    assert reach(user(ensure="absent", purge_home=True)).trees == ("/",)
    assert reach(user(home="/h", authorized_keys=[A], ignore=["home"])).trees == ("/",)


async def keep(path: str, *, with_content: bool) -> EarlierFile:
    raise AssertionError("a user has no files to keep")


EARLIER = [
    PRESENT, ABSENT, LOCKED, EXPIRED, HALF_LOCKED, found("*"), found("!!"), found(expires="2030-01-31"), found(keys=KeyFile()),
    found(groups=[], shell="", comment=""),
]  # fmt: skip


@pytest.mark.parametrize("before", EARLIER, ids=range(len(EARLIER)))
async def test_the_earlier_state_is_stable_once_it_is_there(before: UserState) -> None:
    managed = user(
        uid=7, gid=8, shell="/x", comment="x", groups=[], home="/home/alice", locked=True, password_hash=YESCRYPT,
        authorized_keys=[B],
    )  # fmt: skip
    for wanted in (managed, user(ensure="absent")):
        kept = await earlier(wanted, before, Decision(), keep)

        assert kept.why_not == ""
        restored = user(**kept.properties)
        check(restored)
        assert decide(restored, before, DecisionContext()).steps == ()


async def test_a_removed_user_is_made_again_with_numbers_groups_and_hash() -> None:
    kept = await earlier(user(ensure="absent"), found(expires="2030-01-31"), Decision(), keep)

    assert kept.properties == {
        "ensure": "present", "create_home": False, "uid": 1000, "gid": 1001, "home": "/home/alice", "shell": "/bin/bash",
        "comment": "Alice", "groups": ["audio", "games"], "groups_exclusive": True, "password_hash": HASH,
        "expires": "2030-01-31", "locked": False,
    }  # fmt: skip


async def test_only_what_the_resource_manages_is_kept_of_a_changed_user() -> None:
    kept = await earlier(user(shell="/bin/sh"), found(password=None), Decision(), keep)

    assert kept.properties == {"ensure": "present", "create_home": False, "shell": "/bin/bash"}


async def test_keys_come_back_without_what_sshd_ignores() -> None:
    state = found(keys=KeyFile(content=f"# by hand\n{A} alice\n\xff\x01\nnonsense\n\n".encode("latin-1")))

    kept = await earlier(user(authorized_keys=[B]), state, Decision(), keep)

    assert kept.properties["authorized_keys"] == ["# by hand", f"{A} alice"]


@pytest.mark.parametrize("password", ["", "abJnggxhB/yWI"])
async def test_a_form_of_hash_that_is_not_written_is_named(password: str) -> None:
    kept = await earlier(user(ensure="absent"), found(password), Decision(), keep)

    assert kept.why_not == "its earlier password_hash has a value that this type does not write"


def test_a_state_is_recognized_by_everything_that_a_run_may_change() -> None:
    states = [
        *EARLIER, found(YESCRYPT), found(uid=5), found(gid=5), found(shell="/x"),
        found(comment="x"), found(groups=["x"]),
    ]  # fmt: skip

    identities = [str(sorted(identify(state).items())) for state in states]

    assert len(set(identities)) == len(states)
    assert HASH not in str(identities)
