"""What people read."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.cli import output
from ccm_agent.clikit.table import Style
from ccm_agent.model.outcome import SESSION_SUMMARY, SessionSummary
from tests.unit.sessions.test_memory import NOON, event


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        pytest.param({}, "INFO  file#/a stable ensure=present runtime=2s provider=posix", id="stable"),
        pytest.param(
            {"changed": True, "duration": 3_900_000},
            "WARN  file#/a changed ensure=present runtime=3ms provider=posix",
            id="changed",
        ),
        pytest.param(
            {"changed": True, "refreshed": True, "duration": 0},
            "WARN  file#/a refreshed ensure=present runtime=0s provider=posix",
            id="refreshed",
        ),
        pytest.param(
            {"failed": True, "changed": True, "error": ["no", "never"], "duration": 0},
            'ERROR file#/a failed ensure=present runtime=0s provider=posix errors="no, never"',
            id="failed",
        ),
        pytest.param(
            {"skipped": True, "unmet_requirements": ["file#/b", "file#/c"], "duration": 0},
            "ERROR file#/a skipped due to unmet requirement ensure=present runtime=0s provider=posix unmet=file#/b "
            "unmet=file#/c",
            id="unmet",
        ),
        pytest.param(
            {"skipped": True, "duration": 0},
            "WARN  file#/a skipped ensure=present runtime=0s provider=posix",
            id="skipped",
        ),
        pytest.param(
            {"changed": True, "noop": True, "noop_message": "Would have created the file", "duration": 0},
            'WARN  file#/a changed ensure=present runtime=0s provider=posix noop="Would have created the file"',
            id="noop",
        ),
        pytest.param(
            {
                "skipped": True,
                "error": ["no longer in the manifest, and not removed: it existed before"],
                "duration": 0,
            },
            "WARN  file#/a skipped ensure=present runtime=0s provider=posix "
            'reason="no longer in the manifest, and not removed: it existed before"',
            id="released",
        ),
        pytest.param(
            {"changed": True, "pruned": "created by an earlier run", "duration": 0},
            'WARN  file#/a changed ensure=present runtime=0s provider=posix pruned="created by an earlier run"',
            id="pruned",
        ),
        pytest.param(
            {"alias": "motd", "duration": 0},
            "INFO  file#motd (alias) stable ensure=present runtime=0s provider=posix",
            id="alias",
        ),
    ],
)
def test_an_outcome_is_one_line(fields: dict[str, Any], line: str) -> None:
    assert output.event_line(event("/a", **fields)) == line


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        pytest.param(
            {"failed": True, "error": ["exit code 3"]}, ["      │ a", "      │     \\u001b[2Jb"], id="failed"
        ),
        pytest.param(
            {"failed": True, "error": ["exit code 3: a\n\t\x1b[2Jb"], "output": "x\nb\n"}, [], id="told"
        ),
        pytest.param({"changed": True}, [], id="not failed"),
        pytest.param({"failed": True, "output": "\n"}, [], id="nothing said"),
        pytest.param(
            {"failed": True, "output": "".join(f"{i}\n" for i in range(20))},
            [f"      │ {i}" for i in range(8, 20)],
            id="its end",
        ),
    ],
)
def test_a_failed_commands_output_is_printed_below(fields: dict[str, Any], said: list[str]) -> None:
    assert output.output_lines(event("/a", **({"output": "a\n\t\x1b[2Jb\n\n"} | fields))) == said


def test_a_name_or_an_error_cannot_break_the_line_or_command_the_terminal() -> None:
    told = event("/a\nERROR file#/b failed\x1b[2J", failed=True, error=["one\ntwo\x1b[0m"], duration=0)

    assert output.event_line(told) == (
        "ERROR file#/a\\nERROR file#/b failed\\u001b[2J failed ensure=present runtime=0s provider=posix "
        'errors="one\\ntwo\\u001b[0m"'
    )


def test_color_is_on_the_level_alone() -> None:
    assert output.note_line("info", "Executing manifest", {"manifest": "m.yaml"}, color=True) == (
        "\x1b[32mINFO \x1b[0m Executing manifest manifest=m.yaml"
    )


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_500, "1.5µs"),
        (3_000_000, "3ms"),
        (999_999_999, "999.999999ms"),
        (1_000_000_000, "1s"),
        (1_234_000_000, "1.234s"),
        (62_500_000_000, "1m2.5s"),
        (7_200_000_000_000, "2h0m0s"),
    ],
)
def test_durations_are_written_as_go_writes_them(nanoseconds: int, text: str) -> None:
    assert output.duration_text(nanoseconds) == text


def test_the_summary_of_a_manifest() -> None:
    summary = SessionSummary(
        protocol=SESSION_SUMMARY,
        event_id="e",
        timestamp=NOON,
        total_duration=1_500_400_000,
        total_resources=6,
        stable_resources=1,
        changed_resources=2,
        failed_resources=2,
        skipped_resources=1,
        refreshed_count=1,
        requirements_unmet_count=1,
        health_checked_count=4,
        health_check_ok_count=1,
        health_check_critical_count=2,
        health_check_warning_count=1,
        total_errors=2,
    )

    assert output.summary_text(summary) == (
        "Manifest Run Summary\n"
        "\n"
        "             Run Time: 1.5s\n"
        "      Total Resources: 6\n"
        "     Stable Resources: 1\n"
        "    Changed Resources: 2\n"
        "     Failed Resources: 2\n"
        "    Skipped Resources: 1\n"
        "  Refreshed Resources: 1\n"
        "   Unmet Requirements: 1\n"
        "    Checked Resources: 4 (ok: 1, critical: 2, warning: 1 unknown: 0)\n"
        "         Total Errors: 2\n"
    )


def test_the_report_of_a_session() -> None:
    summary = SessionSummary(
        protocol=SESSION_SUMMARY, event_id="e", timestamp=NOON, total_resources=2, unique_resources=1
    )

    assert output.report_text(summary) == (
        "Session Summary\n"
        "\n"
        "      Total Resources: 2\n"
        "     Unique Resources: 1\n"
        "     Stable Resources: 0\n"
        "    Changed Resources: 0\n"
        "     Failed Resources: 0\n"
        "    Skipped Resources: 0\n"
        "  Refreshed Resources: 0\n"
        "         Total Errors: 0\n"
    )


@pytest.mark.parametrize(
    ("numbers", "line", "color"),
    [
        pytest.param({"stable_resources": 2}, "2 resources: 2 stable", 32, id="stable is green"),
        pytest.param(
            {"stable_resources": 1, "changed_resources": 1},
            "2 resources: 1 stable, 1 changed",
            33,
            id="changed is yellow",
        ),
        pytest.param(
            {"changed_resources": 2, "noop": True},
            "2 resources: 2 would change",
            33,
            id="a plan has changed nothing",
        ),
        pytest.param(
            {"changed_resources": 1, "failed_resources": 1},
            "2 resources: 1 changed, 1 failed",
            31,
            id="failed is red",
        ),
        pytest.param(
            {"skipped_resources": 2, "requirements_unmet_count": 1},
            "2 resources: 2 skipped, 1 with unmet requirements",
            31,
            id="unmet is red",
        ),
    ],
)
def test_the_summary_of_a_manifest_fits_into_a_colored_line(
    numbers: dict[str, Any], line: str, color: int
) -> None:
    summary = SessionSummary(
        protocol=SESSION_SUMMARY,
        event_id="e",
        timestamp=NOON,
        total_duration=42_000_000,
        total_resources=2,
        **numbers,
    )

    shown = output.summary_line("site\x1b.yaml", summary, Style(color=True))

    assert shown == f"site\\u001b.yaml: \x1b[{color}m{line}\x1b[0m in 42ms\n"
