"""`ccmctl exec`: what is sent, and what is shown of the results."""

from __future__ import annotations

import pytest

from tests.support.controller import Desk, FakeNode, event


def ran(output: str, code: int = 0, **fields: object) -> list[object]:
    """The event of a command."""
    more = {"failed": True, "error": ["exit code 3 is not a success code: expected 0"]} if code else {}
    return [event("uptime", 2, type="exec", output=output, exit_code=code, **more, **fields)]


def a_node(name: str, *does: object, **fields: object) -> FakeNode:
    return FakeNode(name, {"role": "web"}, *does, **fields)  # type: ignore[arg-type]


def test_words_are_sent_as_they_are_and_options_after_the_first_one_belong_to_the_command() -> None:
    desk = Desk(a_node("web1", ran("up\n")))

    done = desk.ccmctl("exec", "-t", "role=web", "--yes", "ls", "-l", "it's", "{{ Facts.x }}")

    assert done.code == 0, done.err
    request = desk.nodes[0].heard[0]
    assert request["protocol"] == "io.choria.ccm.v1.resource.exec.request"
    assert (request["argv"], request["timeout_s"]) == (["ls", "-l", "it's", "{{ Facts.x }}"], 60.0)


def test_a_shell_reads_the_command_only_when_it_is_asked_for() -> None:
    desk = Desk(a_node("web1", ran("1\n")))

    done = desk.ccmctl("exec", "--all", "--yes", "--shell", "--timeout", "5s", "--", "ls | wc", "-l")

    assert done.code == 0, done.err
    request = desk.nodes[0].heard[0]
    assert (request["argv"], request["timeout_s"]) == (["/bin/sh", "-c", "ls | wc -l"], 5.0)


@pytest.mark.parametrize("words", [("ls", "--json"), ("--", "ls", "--json")])
def test_json_option_of_the_command_is_not_ours(words: tuple[str, ...]) -> None:
    desk = Desk(a_node("web1", ran("up\n")))

    done = desk.ccmctl("exec", "--all", "--yes", *words)

    assert desk.nodes[0].heard[0]["argv"] == ["ls", "--json"]
    assert not done.out.startswith("{")


def test_nodes_with_the_same_result_share_a_block_and_failures_stand_last() -> None:
    desk = Desk(
        a_node("web1", ran("up 3 days\n")),
        a_node("web2", ran("up 3 days\n")),
        a_node("web3", ran("\x1b[2Jbroken\n", 3)),
        a_node("web4", "refused: this agent knows no such request"),
        a_node("web5", is_present=False),
    )

    done = desk.ccmctl("exec", "--all", "--yes", "--", "uptime", "-p")

    assert done.code == 2
    assert done.out.partition("\nexec uptime -p: ")[0] == (
        "web[1-2]\n"
        "  │ up 3 days\n"
        "\n"
        "web3: exit code 3\n"
        "  │ \\x1b[2Jbroken\n"
        "\n"
        "web4: refused: this agent knows no such request\n"
        "\n"
        "web5: offline\n"
    )
    assert "exec uptime -p: 5 nodes: 2 changed, 1 offline, 1 refused, 1 failed in " in done.out


@pytest.mark.parametrize(
    ("nodes", "code"),
    [
        pytest.param([a_node("web1", ran(""))], 0, id="it succeeded everywhere"),
        pytest.param([a_node("web1", ran("", 3))], 2, id="it failed on a node"),
        pytest.param([a_node("web1", ran("")), a_node("web2", is_present=False)], 3, id="a node is offline"),
    ],
)
def test_exit_code_is_for_scripts(nodes: list[FakeNode], code: int) -> None:
    assert Desk(*nodes).ccmctl("exec", "--all", "--yes", "--", "true").code == code


def test_programs_get_one_record_for_each_node() -> None:
    desk = Desk(a_node("web1", ran("a" * 70_000, 3, cut=["output"])))

    done = desk.ccmctl("exec", "--all", "--yes", "--json", "--", "uptime")

    assert [one["record"] for one in done.records] == ["run", "output", "result", "end"]
    output = done.records[1]
    assert output.items() >= {"node": "web1", "exit_code": 3, "cut": True}.items()
    assert output["output"] == "a" * 65_536
    assert output["error"] == "exit code 3 is not a success code: expected 0"


def test_run_shows_the_command_again() -> None:
    desk = Desk(a_node("web1", ran("up 3 days\n")))
    run = desk.ccmctl("exec", "--all", "--yes", "--json", "--", "uptime").records[0]["run"]

    shown = desk.ccmctl("run", "show", run)

    assert "web1\n  │ up 3 days\n" in shown.out


def test_credentials_in_urls_are_not_on_record() -> None:
    desk = Desk(a_node("web1", ran("")))

    done = desk.ccmctl("exec", "--all", "--yes", "--", "curl", "--url=https://anna:hush@example.net/x")

    assert done.code == 0, done.err
    assert desk.nodes[0].heard[0]["argv"][1] == "--url=https://anna:hush@example.net/x"
    assert "hush" not in done.out + done.err
    assert "hush" not in desk.ccmctl("run", "show", "last", "--json").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--all",), "no command: write it after `--`, as in `ccmctl exec -t role=web -- uptime`"),
        (("--all", "--", ""), "no command: write it after `--`, as in `ccmctl exec -t role=web -- uptime`"),
        (("--all", "--", "x" * 65_536), "the command is longer than 64 KiB; use a file in a manifest"),
        (("--all", "--", "\udcff"), "the command is not UTF-8; use --shell with printf escapes"),
    ],
)
def test_a_resource_that_no_node_supports_is_not_sent(words: tuple[str, ...], said: str) -> None:
    desk = Desk(a_node("web1", ran("")))

    done = desk.ccmctl("exec", "--yes", *words)

    assert (done.code, done.err, desk.nodes[0].heard) == (1, f"ccmctl: {said}\n", [])


def test_command_is_confirmed() -> None:
    done = Desk(a_node("web1", ran(""))).ccmctl("exec", "--all", "--", "reboot", "now")

    assert done.code == 1
    assert "run `reboot now` on 1 node?" in done.err


@pytest.mark.parametrize(
    ("words", "options", "line"),
    [
        pytest.param(
            ("uptime", "-t", "role=web"),
            "-t role=web",
            "ccmctl exec -t role=web -- uptime",
            id="the selector stands after the command",
        ),
        pytest.param(
            ("--yes", "--", "systemctl", "restart", "nginx", "--targets=role=web", "--batch", "10%"),
            "--targets=role=web --batch 10%",
            "ccmctl exec --yes --targets=role=web --batch 10% -- systemctl restart nginx",
            id="the options before the command are kept",
        ),
        pytest.param(
            ("ls", "-l", "--all"),
            "--all",
            "ccmctl exec --all -- ls -l",
            id="options of the command stay there",
        ),
    ],
)
def test_options_of_ours_after_the_command_are_named_with_the_line_that_works(
    words: tuple[str, ...], options: str, line: str
) -> None:
    desk = Desk(a_node("web1", ran("up\n")))
    program = next(word for word in words if not word.startswith("-"))

    done = desk.ccmctl("exec", *words)
    heard = list(desk.nodes[0].heard)
    control = desk.ccmctl("exec", "-t", "role=web", "--yes", "--", "uptime", "-t", "x")

    assert (done.code, done.err) == (
        1,
        f"ccmctl: no nodes selected: `{options}` is after the command, so it is passed to `{program}`; "
        f"options of exec precede the command: `{line}`\n",
    )
    assert (heard, control.code, desk.nodes[0].heard[-1]["argv"]) == ([], 0, ["uptime", "-t", "x"])


def test_long_option_of_ours_after_the_command_is_noted_unless_the_command_is_separated() -> None:
    desk = Desk(a_node("web1", ran("up\n")))

    noted = desk.ccmctl("exec", "--all", "--yes", "apt-get", "install", "vim", "--yes")
    separated = desk.ccmctl("exec", "--all", "--yes", "--", "apt-get", "install", "vim", "--yes")

    assert noted.err.startswith(
        "note: `--yes` is after the command, so it is passed to `apt-get`; write `--` before the command to hide this note\n"
    )
    assert "note:" not in separated.err
    assert {tuple(one["argv"]) for one in desk.nodes[0].heard} == {("apt-get", "install", "vim", "--yes")}
