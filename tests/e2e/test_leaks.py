"""Secrets of data, environments and URLs: what a real run prints them into, and everything that is told of it."""

from __future__ import annotations

import base64
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.fleet import TOP, Fleet

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

SECRETS = {
    "data": """da'ta "s3cret" & more""",
    "variable": "env-v4lue/+=",
    "token": "t0k3n-of-a-url",
    "broken": "in-the-1-that-breaks",
    "named": "n4med-by-1ts-key",
    "argument": "4rgument-of-a-command",
}
COMMON = json.dumps(
    {
        "hierarchy": {"secret": ["db.*"]},
        "data": {
            "db": {"password": SECRETS["data"], "other": SECRETS["broken"]},
            "api_token": SECRETS["named"],
        },
    }
)
SCRIPT = """\
import base64, json, os, sys, urllib.parse
for secret in (os.environ["APP_VALUE"], os.environ["DATA_VALUE"], "%(token)s"):
    print(secret, json.dumps(secret), repr(secret), urllib.parse.quote(secret, safe=""))
    print(base64.b64encode(("user:" + secret).encode()).decode(), secret.encode().hex(), file=sys.stderr)
sys.exit(7)
"""
MANIFEST = json.dumps(
    {
        "ccm": {
            "resources": [
                {
                    "exec": {
                        "name": f"{sys.executable} print.py https://h/?access_token={SECRETS['token']}",
                        "command": f"{sys.executable} -c {shlex.quote(SCRIPT % SECRETS)}",
                        "environment": [
                            f"APP_VALUE={SECRETS['variable']}",
                            "DATA_VALUE={{ lookup('data.db.password') }}",
                        ],
                        "logoutput": True,
                    }
                },
                {"exec": {"name": "/bin/false {{ lookup('data.db.other') }}"}},
                {"exec": {"name": "/bin/sh -c 'echo \"$0\" \"$@\"; exit 3' {{ lookup('data.api_token') }}"}},
                {"exec": {"name": f"/bin/sh -c 'echo \"$0\"; exit 3' --password={SECRETS['argument']}"}},
                {"exec": {"name": "/bin/true", "require": [f"exec#/bin/false {SECRETS['broken']}"]}},
            ]
        }
    }
)


def forms() -> Iterator[tuple[str, str]]:
    for name, secret in SECRETS.items():
        yield name, secret
        yield f"{name} in JSON", json.dumps(secret)[1:-1]
        yield f"{name} in Python", repr(secret)[1:-1]
        yield f"{name} in a URL", quote(secret, safe="")
        yield f"{name} in hex", secret.encode().hex()
        yield f"{name} in base64", base64.b64encode(f"user:{secret}".encode()).decode()


def leaks(texts: dict[str, str]) -> list[tuple[str, str]]:
    """Which secrets stand where, in which form."""
    return [(where, name) for where, text in texts.items() for name, form in forms() if form in text]


def test_nothing_that_is_reported_a_run_holds_a_secret(trio: Fleet) -> None:
    assert trio.ctl("data", "put", "common", trio.write("common.json", COMMON)).code == 0
    path = trio.write("site.json", MANIFEST)
    command = ["apply", path, "--targets", "node=web1", "--data", "kv://CCM_DATA/common", "--yes"]

    shown = trio.ctl(*command)
    done = trio.ctl(*command, "--json")
    agent = trio.agents["web1"]
    texts = {
        "screen": shown.out + shown.err,
        "json": done.out + done.err,
        "run show": trio.ctl("run", "show", "last").out,
        "run show --json": trio.ctl("run", "show", "last", "--json").out,
        "events": trio.ctl("events", "--run", "last", "--no-follow", "--json").out,
        "nodes": trio.ctl("nodes", "--json").out + trio.ctl("why", "web1").out,
        "log": agent.log,
        "spool": "".join(
            file.read_bytes().decode(errors="replace")
            for file in (agent.directory / "state" / "spool").iterdir()
        ),
    }

    assert leaks(texts) == []
    assert done.states == {"web1": "failed"}
    failed, other, named, argument, last = done.resources
    assert (named["output"], argument["output"]) == ("***\n", "--password=***\n")
    assert (failed["failed"], failed["name"].endswith("?access_token=***")) == (True, True)
    assert failed["output"].count("***") >= 15
    assert (other["name"], last["unmet_requirements"]) == ("/bin/false ***", ["exec#/bin/false ***"])


def test_a_local_run_shows_and_writes_no_secret(tmp_path: Path) -> None:
    (tmp_path / "common.json").write_text(COMMON)
    (tmp_path / "m.json").write_text(MANIFEST)
    (tmp_path / "bad.json").write_text(
        json.dumps(
            {"ccm": {"resources": [{"file": {"name": "{{ lookup('data.db.other') }}", "ensure": "present"}}]}}
        )
    )

    def ccm(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "ccm_agent", *words],
            cwd=tmp_path, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(TOP), "HOME": str(tmp_path)},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        return done.stdout + done.stderr

    hiera = ("--hiera", str(tmp_path / "common.json"))
    texts = {
        "screen": ccm("apply", "m.json", *hiera, "--events", "events"),
        "noop": ccm("apply", "m.json", *hiera, "--noop"),
        "error": ccm("apply", "bad.json", *hiera),
        "traceback": ccm("apply", "bad.json", *hiera, "--debug"),
    }
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    texts["events"] = json.dumps(events)

    assert leaks(texts) == []
    assert "Traceback" in texts["traceback"]
    assert "***" in texts["screen"]
    assert "***" in texts["error"]
