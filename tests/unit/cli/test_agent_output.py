"""What people read of the agent at their host."""

from datetime import UTC, datetime
from typing import Any

import pytest

from ccm_agent.cli.agent.agent_output import ended_text, exit_of, status_text

NOW = datetime(2026, 11, 21, 15, 0, tzinfo=UTC)
RUN = "2zFYb0pNq7m1sJx5T8cRkWvQdLa"
RUNNING: dict[str, Any] = {
    "running": True,
    "node": "web1.example.net",
    "pid": 1234,
    "version": "1.2.3",
    "started": "2026-11-20T11:00:00Z",
    "connected": True,
    "run": RUN,
    "name": "site",
    "progress": {"resource": "package#nginx", "position": 3, "total": 12, "run_s": 75.0},
    "waits_for": {"package": "ccm (pid 77)"},
    "waiting": [{"run": RUN, "name": "db"}],
    "spool": {"events": 2, "bytes": 900, "lost": 0},
    "trouble": "",
    "scopes": ["all", "node.web1.example.net"],
    "last_run": RUN,
    "last_state": "failed",
    "last_time": "2026-11-21T14:57:30Z",
    "conflict": "",
    "disabled": None,
    "manifests": [
        {
            "name": "/etc/site.yaml",
            "digest": "0123456789abcdef",
            "trouble": "",
            "next": "2026-11-21T15:04:10Z",
        },
        {"name": "https://h/x.tar.gz", "digest": "", "trouble": "the server says 500", "next": None},
    ],
    "assignments": {
        "web": {"state": "failed", "since": "2026-11-21T14:00:00Z", "digest": "f" * 64, "reason": "no space"}
    },
}


def test_a_running_agent_is_reported_on_one_screen() -> None:
    assert status_text(RUNNING, NOW) == (
        "web1.example.net: the agent is running (process 1234, version 1.2.3, started 1d4h ago)\n"
        "  Broker:       connected\n"
        f"  Run:          site ({RUN[:8]}), at package#nginx, 3 of 12, for 1m15s\n"
        "  Waits for:    the lock `package`, held by ccm (pid 77)\n"
        f"  Waiting:      db ({RUN[:8]})\n"
        f"  Last run:     failed 2m30s ago ({RUN[:8]})\n"
        "  Spool:        2 events wait for the broker\n"
        "  Manifest:     /etc/site.yaml, digest 0123456789ab, next in 4m10s\n"
        "  Manifest:     https://h/x.tar.gz, cannot be fetched: the server says 500\n"
        "  Assignment:   web: failed for 1h, digest ffffffffffff, data newest, no space\n"
        "  Listens to:   all, node.web1.example.net\n"
    )


@pytest.mark.parametrize(
    ("policy", "line"),
    [
        (
            {"path": "/etc/choria/ccm/policy.yaml", "digest": "0123456789abcdef", "rules": 1},
            "  Policy:       /etc/choria/ccm/policy.yaml, digest 0123456789ab, 1 rule\n",
        ),
        (
            {"path": "/p", "trouble": "/p:2: unknown key"},
            "  Policy:       invalid, so the node refuses all requests from the bus: /p:2: unknown key\n",
        ),
    ],
)
def test_policy_has_a_separate_line(policy: dict[str, Any], line: str) -> None:
    assert line in status_text({**RUNNING, "policy": policy}, NOW)


def test_a_disabled_duplicate_node_reports_both_first() -> None:
    disabled = {
        "since": "2026-11-21T14:00:00Z",
        "until": "2026-11-21T18:00:00Z",
        "why": "disk",
        "by": "maria",
    }
    trouble: dict[str, Any] = {
        "connected": False, "trouble": "no broker at nats://b:4222", "conflict": "another agent uses this identity",
        "disabled": disabled, "run": "", "waiting": [], "waits_for": {}, "last_run": "", "manifests": [], "assignments": {},
    }  # fmt: skip

    assert status_text(RUNNING | trouble, NOW) == (
        "web1.example.net: the agent is running (process 1234, version 1.2.3, started 1d4h ago)\n"
        "  Disabled:     until 2026-11-21 18:00:00Z by maria: disk\n"
        "  Conflict:     another agent uses this identity\n"
        "  Broker:       not connected; no broker at nats://b:4222\n"
        "  Run:          none\n"
        "  Last run:     none since the agent started\n"
        "  Spool:        2 events wait for the broker\n"
        "  Listens to:   all, node.web1.example.net\n"
    )


@pytest.mark.parametrize(
    ("left", "headline"),
    [
        ({}, "web1: the agent is not running"),
        (
            {"time": "2026-11-21T14:00:00Z", "holder": 0},
            "web1: the agent is not running; this status was saved 1h ago",
        ),
        ({"holder": 77}, "web1: the agent (process 77) does not answer; see its log"),
        ({"time": "soon"}, "web1: the agent is not running"),
    ],
    ids=["nothing is left", "a file is left", "it hangs", "a file that is damaged"],
)
def test_a_missing_agent_leaves_its_last_status(left: dict[str, Any], headline: str) -> None:
    text = status_text({"node": "web1", "running": False, **left}, NOW)

    assert text.splitlines()[0] == headline
    assert "Broker:" not in text


def test_untrusted_names_cannot_control_the_terminal() -> None:
    text = status_text(RUNNING | {"name": "\x1b[2Jsite\nRun: none"}, NOW)

    assert "\x1b" not in text
    assert len(text.splitlines()) == len(status_text(RUNNING, NOW).splitlines())


ENDED = [
    {"name": "/etc/site.yaml", "state": "changed", "run": RUN, "changed": 1, "failed": 0, "total": 3},
    {
        "name": "web", "state": "failed", "run": RUN, "failed": 1, "total": 2,
        "resources": [{"resource": "file#/etc/motd", "error": ["no space left", "really"]}],
    },
    {"name": "db", "state": "refused", "reason": "was not begun"},
]  # fmt: skip


def test_a_convergence_is_summarized_by_manifest_with_failures() -> None:
    assert ended_text(ENDED) == (
        "/etc/site.yaml: changed: 1 changed, 0 failed of 3\n"
        "web: failed: 0 changed, 1 failed of 2\n"
        "  file#/etc/motd: no space left; really\n"
        "db: refused; was not begun\n"
    )


@pytest.mark.parametrize(
    ("ended", "code"),
    [(ENDED[:1], 0), (ENDED, 2), ([ENDED[0], ENDED[2]], 1), ([], 0)],
    ids=["changed", "one failed", "one was not begun", "nothing to do"],
)
def test_the_status_of_the_program_follows_from_how_it_ended(ended: list[dict[str, Any]], code: int) -> None:
    assert exit_of(ended) == code


def test_where_there_is_nothing_to_converge_on_that_is_said() -> None:
    assert ended_text([]).startswith("nothing to converge on: ")
