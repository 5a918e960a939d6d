"""Where to connect and as whom; and what the program says when something is wrong."""

from __future__ import annotations

import json
import os
import pwd
import re
import shlex
from pathlib import Path

import pytest

from ccm_agent.bus.access.credentials import new_account, user_credentials
from ccm_agent.bus.access.permissions import Role, operator_permissions
from ccm_agent.bus.connection.settings import DEFAULT_SERVER
from ccm_agent.model.errors import NotFoundError, UsageError
from ccm_agent.resources.catalog import Catalog
from ccm_agent.version import VERSION
from ccm_ctl.__main__ import VERBS, main
from ccm_ctl.app import ConnectionOptions, bus_settings
from tests.support.controller import Desk, FakeNode


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with two contexts of the `nats` program, the first of them selected."""
    contexts = tmp_path / "nats" / "context"
    contexts.mkdir(parents=True)
    for name in ("one", "two"):
        (contexts / f"{name}.json").write_text(
            json.dumps({"url": f"nats://{name}:4222", "creds": f"/{name}.creds"})
        )
    (tmp_path / "nats" / "context.txt").write_text("one\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("reach", "environ", "servers", "creds"),
    [
        (ConnectionOptions(), {}, ("nats://one:4222",), "/one.creds"),
        (ConnectionOptions(), {"NATS_CONTEXT": "two"}, ("nats://two:4222",), "/two.creds"),
        (
            ConnectionOptions(),
            {"NATS_CONTEXT": "one", "CCM_CONTEXT": "two"},
            ("nats://two:4222",),
            "/two.creds",
        ),
        (ConnectionOptions(context="two"), {"NATS_URL": "nats://env"}, ("nats://two:4222",), "/two.creds"),
        (ConnectionOptions(), {"NATS_URL": "nats://env"}, ("nats://env:4222",), ""),
        (ConnectionOptions(server="a,b:5"), {"NATS_URL": "x"}, ("nats://a:4222", "nats://b:5"), ""),
        (ConnectionOptions(server="a", creds="/x"), {"NATS_CREDS": "/y"}, ("nats://a:4222",), "/x"),
        (ConnectionOptions(), {"NATS_CREDS": "/y"}, ("nats://one:4222",), "/y"),
    ],
)
def test_the_command_line_counts_first_then_the_environment_then_the_context(
    home: Path, reach: ConnectionOptions, environ: dict[str, str], servers: tuple[str, ...], creds: str
) -> None:
    settings = bus_settings(reach, environ)

    assert (settings.servers, settings.creds) == (servers, creds)


def test_a_lost_broker_is_tried_again_within_a_second() -> None:
    settings = bus_settings(ConnectionOptions(), {})

    assert settings.pause_s == settings.longest_pause_s == 1.0
    assert settings.longest_connect_s == settings.connect_s == 5.0


def test_without_any_context_it_is_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    assert bus_settings(ConnectionOptions(), {}).servers == (DEFAULT_SERVER,)


def test_a_context_that_is_named_must_be_there(home: Path) -> None:
    with pytest.raises(NotFoundError):
        bus_settings(ConnectionOptions(context="three"), {})


@pytest.mark.parametrize(
    ("reach", "environ", "ca", "insecure"),
    [
        (ConnectionOptions(), {}, "", False),
        (ConnectionOptions(), {"CCM_CA": "/ca.pem"}, "/ca.pem", False),
        (ConnectionOptions(ca="/own.pem"), {"CCM_CA": "/ca.pem"}, "/own.pem", False),
        (ConnectionOptions(insecure=True), {}, "", True),
        (ConnectionOptions(), {"CCM_INSECURE": "1"}, "", True),
        (ConnectionOptions(), {"CCM_INSECURE": "0"}, "", False),
        (ConnectionOptions(insecure=True), {"CCM_INSECURE": "false"}, "", True),
    ],
)
def test_the_environment_may_name_the_authority_and_accept_an_open_broker(
    home: Path, reach: ConnectionOptions, environ: dict[str, str], ca: str, insecure: bool
) -> None:
    settings = bus_settings(reach, environ)

    assert (settings.ca, settings.insecure) == (ca, insecure)


@pytest.mark.parametrize(
    ("reach", "environ", "operator"),
    [
        (ConnectionOptions(operator="me"), {"CCM_OPERATOR": "you", "USER": "root"}, "me"),
        (ConnectionOptions(), {"CCM_OPERATOR": "you", "USER": "root"}, "you"),
        (ConnectionOptions(), {"SUDO_USER": "alice", "USER": "root"}, "alice"),
        (ConnectionOptions(), {"USER": "bob"}, "bob"),
    ],
)
def test_requests_are_sent_under_an_operators_name(
    home: Path, reach: ConnectionOptions, environ: dict[str, str], operator: str
) -> None:
    settings = bus_settings(reach, environ)

    assert (settings.identity, settings.program) == (operator, "ccmctl")


@pytest.mark.parametrize(("entry", "operator"), [("carol", "carol"), (None, "uid-4711")])
def test_without_an_environment_variable_the_user_database_gives_the_name(
    home: Path, monkeypatch: pytest.MonkeyPatch, entry: str | None, operator: str
) -> None:
    def getpwuid(uid: int) -> pwd.struct_passwd:
        if entry is None:
            raise KeyError(uid)
        return pwd.struct_passwd((entry, "x", uid, uid, "", "/", "/bin/sh"))

    monkeypatch.setattr(os, "getuid", lambda: 4711)
    monkeypatch.setattr(pwd, "getpwuid", getpwuid)

    assert bus_settings(ConnectionOptions(), {}).identity == operator


def test_a_password_comes_from_the_environment_and_is_never_shown(home: Path) -> None:
    settings = bus_settings(ConnectionOptions(server="a", user="op"), {"NATS_PASSWORD": "hunter2"})

    assert settings.password is not None
    assert settings.password.reveal() == "hunter2"
    assert "hunter2" not in repr(settings)


def test_an_address_that_is_not_valid_is_refused(home: Path) -> None:
    with pytest.raises(UsageError):
        bus_settings(ConnectionOptions(server="http://x"), {})


def test_the_version_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    printed = capsys.readouterr().out
    assert re.fullmatch(rf"ccmctl {re.escape(VERSION)}( \([0-9a-f]{{8}}\))?\n", printed)
    assert Desk().ccmctl("--json", "--version").out == printed


DURATION = "`soon` is not a duration: write a number and a unit, such as 30s, 5m or 1h30m"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("aply", "unknown command `aply`, did you mean `apply`?"),
        ("zzz", "unknown command `zzz`; see `ccmctl --help`"),
        ("run wach", "unknown command `wach`, did you mean `watch`?"),
        ("nodes --target x", "unknown option `--target`, did you mean `--targets`?"),
        ("apply x --alll", "unknown option `--alll`, did you mean `--all`?"),
        ("apply x --zzz", "unknown option `--zzz`; see `ccmctl apply --help`"),
        (
            "completion",
            "missing argument '{bash|zsh|fish}'. Choose from: bash, zsh, fish; "
            "see `ccmctl completion --help`",
        ),
        ("ensure file", "missing argument 'NAME'; see `ccmctl ensure --help`"),
        (
            "init --history 99",
            "invalid value for '--history': 99 is not between 1 and 64; see `ccmctl init --help`",
        ),
        (
            "init --history x",
            "invalid value for '--history': `x` is not a whole number; see `ccmctl init --help`",
        ),
        ("plan x --out", "option `--out` needs a value; see `ccmctl plan --help`"),
        (
            "init --events-age soon",
            f"invalid value for '--events-age': {DURATION}; see `ccmctl init --help`",
        ),
        (
            "init --events-age 1h --duplicate-window 2h",
            "--duplicate-window 2h: must not be longer than events are kept (1h)",
        ),
        (
            "events --no-follow",
            "all stored events are too many; use --run, --node or --since",
        ),
    ],
)
def test_a_wrong_command_line_names_the_mistake(argv: str, said: str) -> None:
    done = Desk().ccmctl(*argv.split())

    assert (done.code, done.out, done.err) == (1, "", f"ccmctl: {said}\n")


def test_a_fault_of_ours_is_a_sentence_and_for_programs_a_record() -> None:
    desk = Desk()

    async def breaks(_broker: object) -> None:
        raise ZeroDivisionError("division by zero")

    desk.hooks.append(breaks)

    said = desk.ccmctl("node", "list", "--json")

    sentence = "internal error: ZeroDivisionError: division by zero; rerun with --debug for a traceback"
    assert (said.code, said.err) == (1, f"ccmctl: {sentence}\n")
    assert said.records == [{"record": "error", "code": "ccm.error", "message": sentence}]
    with pytest.raises(ZeroDivisionError):
        desk.ccmctl("node", "list", "--debug")


@pytest.mark.parametrize("verb", list(VERBS))
def test_every_command_has_help_with_examples(verb: str) -> None:
    said = Desk().ccmctl(verb, "--help")

    assert said.code == 0
    assert "--json" in said.out
    assert f"ccmctl {verb}" in said.out.partition("Examples:")[2]


@pytest.mark.parametrize("type_name", Catalog().names())
def test_help_of_a_type_has_an_example_of_it(type_name: str) -> None:
    desk = Desk(FakeNode("web1", {"role": "web"}))
    examples = desk.ccmctl("ensure", type_name, "--help").out.partition("Examples:")[2]

    given = [line for line in examples.splitlines() if f"ensure {type_name} " in line]
    said = [desk.ccmctl(*shlex.split(line)[1:], *([] if "--yes" in line else ["--yes"])) for line in given]
    assert [one.code for one in said] == [0] * len(given), said
    assert len(desk.nodes[0].heard) == len(given) > 0


def test_a_hash_of_a_password_has_no_flag() -> None:
    desk = Desk(FakeNode("web1", {}))

    flagged = desk.ccmctl("ensure", "user", "ann", "--password-hash", "x", "--all", "--yes")
    in_a_secret = desk.ccmctl("ensure", "user", "ann", "password_hash={{ secret('ann') }}", "--all", "--yes")

    assert "--password-hash" not in desk.ccmctl("ensure", "user", "--help").out
    assert flagged.code == 1
    assert "--password-hash: no such flag" in flagged.err
    assert (in_a_secret.code, len(desk.nodes[0].heard)) == (0, 1), in_a_secret.err


@pytest.mark.parametrize(
    ("former", "now"),
    [
        ("nodes", "node list"),
        ("assignments", "assignment list"),
        ("assignment ls", "assignment list"),
        ("data ls", "data list"),
        ("schedule delete x", "schedule rm x"),
        ("hiera explain port --node x", "data explain port --node x"),
    ],
)
def test_names_of_earlier_versions_still_work_and_are_not_listed(former: str, now: str) -> None:
    said = [Desk().ccmctl(*command.split()) for command in (former, now)]
    listed = Desk().ccmctl("--help").out

    assert (said[0].code, said[0].out, said[0].err) == (said[1].code, said[1].out, said[1].err)
    assert "  nodes " not in listed
    assert "  hiera " not in listed


@pytest.mark.parametrize("verb", ["run", "facts", "data", "node", ""])
def test_a_command_with_commands_below_shows_them(verb: str) -> None:
    said = Desk().ccmctl(*verb.split())

    assert said.code == 1
    assert ("Commands:" if verb else "Most used commands:") in said.err


@pytest.mark.parametrize("verb", [name for name in VERBS if name != "completion"])
def test_help_is_short_to_ask_for_and_cuts_no_sentence_off(verb: str) -> None:
    said = Desk().ccmctl(verb, "-h")

    commands = said.out.partition("\nCommands:\n")[2].partition("\nExamples:\n")[0]
    assert said.code == 0
    assert "..." not in commands


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete_commands(shell: str) -> None:
    said = Desk().ccmctl("completion", shell)

    assert said.code == 0
    assert "_CCMCTL_COMPLETE" in said.out


@pytest.fixture
def ann_creds(tmp_path: Path) -> str:
    """A credentials file that is limited to the inbox of operator ann."""
    made = user_credentials(new_account(), "ann", operator_permissions("ann", Role()))
    path = tmp_path / "ann.creds"
    path.write_text(made.text.reveal(), encoding="utf-8")
    return str(path)


def test_operator_name_comes_from_the_credentials(ann_creds: str) -> None:
    assert bus_settings(ConnectionOptions(creds=ann_creds), {"LOGNAME": "root"}).identity == "ann"


def test_operator_name_of_other_credentials_is_refused_before_connecting(ann_creds: str) -> None:
    assert bus_settings(ConnectionOptions(creds=ann_creds), {"CCM_OPERATOR": "ann"}).identity == "ann"
    with pytest.raises(
        UsageError, match="belong to `ann`, but the operator is set to `bob`; remove --operator"
    ):
        bus_settings(ConnectionOptions(creds=ann_creds), {"CCM_OPERATOR": "bob"})
    with pytest.raises(UsageError, match="belong to `ann`"):
        bus_settings(ConnectionOptions(creds=ann_creds, operator="ann2"), {})


def test_missing_credentials_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "missing.creds"

    assert main(["--server", "nats://127.0.0.1:1", "--creds", str(missing), "node", "list"]) == 1
    assert f"{missing}: the credentials file does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["node", "list", "--targets", "role in (a"], "role in (a"),
        (["ping", "--where", "Facts."], "Facts."),
    ],
)
def test_malformed_selector_is_refused_before_connecting(
    command: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--server", "nats://127.0.0.1:1", *command]) == 1
    err = capsys.readouterr().err
    assert said in err
    assert "cannot connect" not in err
