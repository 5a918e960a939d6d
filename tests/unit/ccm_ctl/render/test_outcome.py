"""A run as people see it: whole screens, at several widths."""

from __future__ import annotations

from collections import Counter

from ccm_agent.clikit.table import LONG, Style
from ccm_agent.model.wire import NodeState
from ccm_ctl.render.outcome import (
    At,
    Failure,
    NodeResult,
    ResourceResult,
    end_line,
    live_line,
    run_report,
)

RUN = "2zFXzzzzzzzzzzzzzzzzzzzzzzz"


def changed(node: str, seconds: float = 0.2, **more: object) -> NodeResult:
    resources = (ResourceResult("file#/etc/motd", "changed"), ResourceResult("service#nginx", "refreshed"))
    return NodeResult(node=node, state=NodeState.CHANGED, seconds=seconds, resources=resources, **more)  # type: ignore[arg-type]


def failed(node: str, output: str = "line 1\nline 2\n") -> NodeResult:
    return NodeResult(
        node=node,
        state=NodeState.FAILED,
        seconds=3,
        resources=(
            ResourceResult("file#/etc/motd", "changed"),
            ResourceResult("exec#migrate", "failed"),
            ResourceResult("file#/a", "skipped"),
            ResourceResult("file#/b", "skipped"),
        ),
        failures=(Failure("exec#migrate", "ended with 3, expected 0", output),),
    )


MIXED = [
    failed("db1"),
    changed("web1.example.net", 0.2),
    changed("web2.example.net", 0.4),
    NodeResult(node="db2", state=NodeState.OFFLINE),
    NodeResult(node="db7", state=NodeState.STABLE, stable=7, seconds=0.1),
    NodeResult(
        node="x", state=NodeState.LOST, reason="silent for 16s; it was last at package#nginx (4 of 9)"
    ),
    NodeResult(node="late", state=NodeState.REFUSED, reason="no longer matches", joined=True),
]

WIDE = """\
NODES                 STATE             WHAT                                                      TIME
db7                   stable            7 resources                                              100ms
web[1-2].example.net  changed           file#/etc/motd, service#nginx refreshed                ≤ 400ms
db2                   offline
x                     lost              silent for 16s; it was last at package#nginx (4 of 9)
late                  refused (joined)  no longer matches
db1                   failed            file#/etc/motd, exec#migrate failed, 2 skipped            3.0s

db1: exec#migrate failed
  ended with 3, expected 0
  │ line 1
  │ line 2
"""


def test_equal_nodes_are_one_row_and_failures_come_last() -> None:
    assert run_report(MIXED, Style(), plan=False) == WIDE


def test_a_narrow_terminal_folds_long_texts_without_loss() -> None:
    wide = run_report(MIXED, Style(), plan=False)
    narrow = run_report(MIXED, Style(width=60), plan=False)

    assert max(len(line) for line in narrow.splitlines()) <= 60
    assert narrow.partition("\n\n")[2] == wide.partition("\n\n")[2]
    assert Counter("".join(narrow.split())) == Counter("".join(wide.split()))


def test_color_adds_escape_sequences_and_nothing_else() -> None:
    import re

    plain = run_report(MIXED, Style(width=120), plan=False)
    colored = run_report(MIXED, Style(width=120, color=True), plan=False)

    bare = re.sub(r"\x1b\[[0-9;]*m", "", colored)
    assert [line.rstrip() for line in bare.splitlines()] == plain.splitlines()
    assert colored != plain


def test_in_a_plan_nothing_has_changed() -> None:
    note = "Would have created the file"
    result = NodeResult(
        node="web1",
        state=NodeState.CHANGED,
        seconds=0.1,
        resources=(ResourceResult("file#/etc/motd", "changed", note),),
    )

    assert run_report([result], Style(), plan=True) == (
        "NODES  STATE         WHAT                                          TIME\n"
        "web1   would change  file#/etc/motd: Would have created the file  100ms\n"
    )
    assert end_line("plan motd", {NodeState.CHANGED: 1}, 0.3, RUN, Style(), plan=True) == (
        f"plan motd: 1 node: 1 would change in 300ms (run {RUN[:8]})\n"
    )


def test_many_resources_are_counted() -> None:
    resources = tuple(ResourceResult(f"file#/{number}", "changed") for number in range(50))
    result = NodeResult(node="web1", state=NodeState.CHANGED, resources=resources, missing=1)

    assert run_report([result], Style(), plan=False) == (
        "NODES  STATE    WHAT\n"
        "web1   changed  file#/0, file#/1, file#/2, file#/3, and 46 more, 1 event missing\n"
    )


def test_resources_with_long_names_do_not_make_a_row_of_hundreds_of_columns() -> None:
    long = "a" * 90
    resources = tuple(ResourceResult(f"file#/{number}/{long}", "changed") for number in range(6))
    result = NodeResult(node="web1", state=NodeState.CHANGED, resources=resources)

    *_, row = run_report([result], Style(), plan=False).splitlines()

    assert row == f"web1   changed  file#/0/{long}, and 5 more"


def test_texts_of_nodes_cannot_move_the_cursor() -> None:
    report = run_report(
        [failed("db1", output="\x1b[2J\x1b[31mred\r\n" + "\n".join(map(str, range(30))))], Style(), plan=False
    )

    assert "\x1b" not in report
    assert report.splitlines()[-12:] == [f"  │ {number}" for number in range(18, 30)]


def test_equal_failures_are_reported_once() -> None:
    report = run_report([failed("db1"), failed("db2"), failed("db3", "other")], Style(), plan=False)

    assert report.partition("\n\n")[2] == (
        "db[1-2]: exec#migrate failed\n"
        "  ended with 3, expected 0\n"
        "  │ line 1\n"
        "  │ line 2\n"
        "\n"
        "db3: exec#migrate failed\n"
        "  ended with 3, expected 0\n"
        "  │ other\n"
    )


def test_an_empty_list_prints_no_table() -> None:
    assert run_report([], Style(), plan=False) == ""
    assert end_line("apply x", {}, 0, RUN, Style(), plan=False) == (
        f"apply x: 0 nodes: nothing to do in 0ms (run {RUN[:8]})\n"
    )


def test_the_live_line_fits_the_width() -> None:
    counts = {NodeState.CHANGED: 3, NodeState.RUNNING: 4}
    slowest = [
        At(node="db1", resource="package#nginx", seconds=12, position=4, total=9),
        At(node="web3", resource="exec#long", seconds=7.2),
    ]

    lines = {
        width: live_line("apply site", counts, slowest, "", Style(width=width), plan=False)
        for width in (20, 40, 80, 200)
    }

    assert lines == {
        20: "apply site  3/7",
        40: "apply site  3/7 · 4 running, 3 changed",
        80: "apply site  3/7 · 4 running, 3 changed · db1 package#nginx (4/9) 12s",
        200: "apply site  3/7 · 4 running, 3 changed · db1 package#nginx (4/9) 12s · web3 exec#long 7.2s",
    }
    assert live_line("apply site", counts, [], "waiting for the broker", Style(width=60), plan=False) == (
        "apply site  3/7 · waiting for the broker"
    )


def test_a_part_of_a_long_report_names_the_command_that_shows_all_of_it_and_not_the_run_again() -> None:
    results = [failed(f"node{number:04}", f"output {number}") for number in range(LONG + 1)]
    style = Style(width=100, height=24, merges=False)

    part = run_report(results, style, plan=False, run=RUN)
    whole = run_report(results, style, plan=False)

    assert "the last 19 of 2,001 rows; show all with `ccmctl run show 2zFXzzzz | less`\n" in part
    assert sum(line.startswith("node") and " failed " in line for line in whole.splitlines()) == LONG + 1
