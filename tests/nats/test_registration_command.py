"""`ccm registration` on a real broker, and manifests that ask it who is registered."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ccm_agent.cli import main
from ccm_agent.testing.nats_server import NatsServer
from tests.support.ccm_json import checked
from tests.support.nats_server import WAIT_S, running_server

pytestmark = pytest.mark.nats

TOP = Path(__file__).resolve().parents[2]
WEB = (
    "--cluster",
    "prod",
    "--service",
    "web",
    "--protocol",
    "http",
    "--address",
    "10.0.0.5",
    "--port",
    "8080",
)
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with running_server(tmp_path / "nats") as server:
        yield server


@pytest.fixture
def ccm(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Runs a command line in a folder of its own, with a context CCM; its status and what it said."""
    context = tmp_path / "config" / "nats" / "context" / "CCM.json"
    context.parent.mkdir(parents=True)
    context.write_text(json.dumps({"url": server.url}))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in (
        "NATS_CONTEXT",
        "NATS_URL",
        "CCM_SERVER",
        "CCM_CONTEXT",
        "CCM_SESSION_STORE",
        "CCM_HIERA_DATA",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main.run(arguments)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def stream(ccm: Run) -> None:
    """The stream is there, and keeps entries longer than a test takes."""
    assert ccm("registration", "init", "--max-age", "1h")[0] == 0


def test_created_stream_is_reported(ccm: Run) -> None:
    code, out, err = ccm("registration", "init", "--max-age", "5m")

    assert (code, err) == (0, "")
    assert out == (
        "INFO  Registration stream ready stream=REGISTRATION "
        "subjects=choria.ccm.registration.v1.> replicas=1\n"
    )


def test_an_entry_is_created_shown_and_removed(ccm: Run, stream: None) -> None:
    created = ccm(
        "registration",
        "create",
        *WEB,
        "--priority",
        "10",
        "--ttl",
        "5m",
        "-A",
        "version=1.2.3",
        "-A",
        "host=web-05",
    )
    shown = ccm("reg", "q", "prod", "http", "web")
    removed = ccm("r", "delete", *WEB, "--force")
    again = ccm("registration", "rm", *WEB, "--force")
    gone = ccm("registration", "query")

    fields = "cluster=prod service=web protocol=http address=10.0.0.5 port=8080"
    assert created == (0, f"INFO  Registration entry created {fields} priority=10\n", "")
    assert shown == (
        0,
        "Service: web @ prod\n"
        "\n"
        "       Cluster: prod\n"
        "      Protocol: http\n"
        "       Service: web\n"
        "       Address: 10.0.0.5\n"
        "          Port: 8080\n"
        "      Priority: 10\n"
        "   Annotations:\n"
        "                host: web-05\n"
        "                version: 1.2.3\n",
        "",
    )
    assert removed == (0, f"INFO  Registration entry removed {fields}\n", "")
    assert again == (0, f"WARN  No matching registration entry {fields}\n", "")
    assert gone == (0, "No results found\n", "")


def test_entries_are_shown_as_data(ccm: Run, stream: None) -> None:
    ccm("registration", "create", *WEB, "--ttl", "never")
    entry = {
        "cluster": "prod",
        "service": "web",
        "protocol": "http",
        "address": "10.0.0.5",
        "port": 8080,
        "priority": 100,
        "ttl": "never",
    }

    assert checked("ccm_registration_query", ccm("registration", "query", "prod", "--json")[1]) == [entry]
    assert json.loads(ccm("registration", "query", "test", "--json")[1]) == []
    assert ccm("registration", "query", "prod", "http", "web", "*", "--yaml")[1] == (
        "- address: 10.0.0.5\n  cluster: prod\n  port: 8080\n  priority: 100\n  protocol: http\n"
        "  service: web\n  ttl: never\n"
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("create", *WEB[:-1], "0"), "`port` of a registration must be a whole number from 1 to 65535"),
        (("create", *WEB, "--priority", "256"), "`priority` of a registration"),
        (("create", *WEB, "--ttl", "soon"), "`soon` is not a duration"),
        (("create", *WEB, "-A", "x"), "--annotation x: write NAME=VALUE"),
        (("create", "--cluster", "prod"), "missing option '--service'"),
        (("query", "a.b"), "'a.b': not valid in a registration"),
        (("init", "--replicas", "7"), "--replicas 7"),
        (("init", "--max-age", "x"), "--max-age: `x` is not a duration"),
        (("query", "--context", "OTHER"), "nats context OTHER"),
        (("query", "-R", "NOWHERE"), "the broker has no stream NOWHERE"),
    ],
)
def test_failed_operations_report_the_reason(
    ccm: Run, stream: None, arguments: tuple[str, ...], sentence: str
) -> None:
    code, out, err = ccm("registration", *arguments)

    assert (code, out) == (1, "")
    assert sentence in err


def test_an_entry_is_removed_only_when_that_is_targeted(
    ccm: Run, stream: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ccm("registration", "create", *WEB)
    monkeypatch.setattr("click.confirm", lambda question, default: "10.0.0.5:8080" not in question)

    assert ccm("registration", "rm", *WEB) == (0, "", "")

    assert "10.0.0.5" in ccm("registration", "query")[1]


def test_the_broker_is_found_in_the_environment_as_ccmctl_finds_it(
    ccm: Run, stream: None, server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ccm("registration", "create", *WEB)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "empty"))
    monkeypatch.setenv("NATS_URL", server.url)

    code, out, _ = ccm("registration", "query")

    assert (code, "10.0.0.5" in out) == (0, True)


def test_the_context_may_stand_before_the_verb(ccm: Run, stream: None) -> None:
    code, _, err = ccm("registration", "--context", "OTHER", "query")

    assert code == 1
    assert "nats context OTHER" in err


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_changes_are_shown_as_they_come(
    ccm: Run, stream: None, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    ccm("registration", "create", *WEB, "--ttl", "1h")
    out = tmp_path / "watched"
    with out.open("wb") as sink:
        watching = subprocess.Popen(
            [sys.executable, "-m", "ccm_agent", "registration", "watch", "prod", *flags],
            stdout=sink,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(TOP)},
        )
    try:
        until(lambda: "10.0.0.5" in out.read_text())
        ccm("registration", "rm", *WEB, "--force")
        until(lambda: "Remove" in out.read_text())
    finally:
        watching.send_signal(signal.SIGINT)
        watching.wait(WAIT_S)

    first, second = out.read_text().splitlines()
    entry = {
        "cluster": "prod",
        "service": "web",
        "protocol": "http",
        "address": "10.0.0.5",
        "port": 8080,
        "priority": 100,
        "ttl": "1h0m0s",
    }
    if flags:
        assert checked("ccm_registration_watch", first) == {"action": "register", "entry": entry}
        assert checked("ccm_registration_watch", second) == {
            "action": "remove",
            "entry": entry,
            "reason": "Remove",
        }
    else:
        fields = "cluster=prod service=web protocol=http address=10.0.0.5 port=8080"
        assert first == f"INFO  Updated entry {fields} ttl=1h0m0s"
        assert second == f"WARN  Removed entry {fields} reason=Remove"


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# ---- manifests


def pool(tmp_path: Path) -> Path:
    """A manifest that lists who is registered in a file, after one that asks nobody."""
    (tmp_path / "pool.jet").write_text(
        '[[ range _, e := registrations("prod", "http", "web", "*") ]]server [[ e.Address ]]:[[ e.Port ]]\n[[ end ]]'
    )
    files = [("/other", "x"), ("/pool", "{{ template('pool.jet') }}")]
    owner = {"owner": str(os.getuid()), "group": str(os.getgid()), "mode": "0644", "ensure": "present"}
    resources = [{"file": {"name": f"{tmp_path}{name}", "content": text, **owner}} for name, text in files]
    (tmp_path / "m.yaml").write_text(json.dumps({"ccm": {"resources": resources}}))
    return tmp_path / "pool"


def test_a_manifest_lists_the_registered_nodes(ccm: Run, stream: None, tmp_path: Path) -> None:
    made = pool(tmp_path)
    ccm("registration", "create", *WEB, "--ttl", "5m")

    assert ccm("apply", "m.yaml")[0] == 0

    assert made.read_text() == "server 10.0.0.5:8080\n"


def test_an_expression_gets_the_registered_nodes(ccm: Run, stream: None) -> None:
    ccm("registration", "create", *WEB, "--ttl", "5m")

    assert ccm("eval", "registrations('prod', '*', '*', '*')[0].Port + 1") == (0, "8081\n", "")


def test_a_pool_survives_a_broker_without_data_until_settled(
    ccm: Run, stream: None, server: NatsServer, tmp_path: Path
) -> None:
    made = pool(tmp_path)
    ccm("registration", "create", *WEB, "--ttl", "5m")
    ccm("apply", "m.yaml")

    server.kill()
    away = ccm("apply", "m.yaml")
    server.start()
    forget(server, ccm)
    doubted = ccm("apply", "m.yaml")
    kept = made.read_text()
    believed = ccm("apply", "m.yaml", "--registration-settle", "0s")

    assert (away[0], doubted[0], believed[0]) == (2, 2, 0)
    assert "1 known entries are missing" in doubted[1]
    assert kept == "server 10.0.0.5:8080\n"
    assert made.read_text() == ""


def forget(server: NatsServer, ccm: Run) -> None:
    """What becomes of a stream in memory: it is there again, and empty."""
    import asyncio

    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.bus.streams import call
    from tests.support.nats_server import settings

    async def purge() -> None:
        async with Connection(settings(server, "op")) as connection:
            await connection.connect_now()
            await call(connection, "STREAM.PURGE.REGISTRATION")

    asyncio.run(purge())


def test_a_template_that_asks_a_bucket_that_does_not_exist_fails_only_its_resource(
    ccm: Run, tmp_path: Path
) -> None:
    (tmp_path / "site.yaml").write_text(
        "ccm:\n  resources:\n    - exec:\n"
        "        - asks: {command: \"echo {{ kvGet('NOPE', 'greeting') }}\"}\n"
        f'        - other: {{command: "touch {tmp_path}/ran"}}\n'
    )

    code, out, err = ccm("apply", "site.yaml")

    assert code == 2
    assert "NOPE" in out + err
    assert "$JS.API" not in out + err
    assert (tmp_path / "ran").exists()
