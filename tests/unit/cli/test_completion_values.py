"""What a shell completes for `ccm`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster
from click.shell_completion import ShellComplete

from ccm_agent.cli.completion_values import list_names
from ccm_agent.cli.program import program
from ccm_agent.testing.runner import FakeRunner


@pytest.fixture(autouse=True)
def own_calls(blockbuster: BlockBuster) -> Iterator[None]:
    """The program's own blocking calls."""
    blockbuster.deactivate()
    yield
    blockbuster.activate()


def completed(line: str) -> list[str]:
    *before, last = line.split(" ")
    found = ShellComplete(program, {}, "ccm", "_X").get_completions(before, last)
    return [item.value if item.type == "plain" else item.type for item in found]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("ens", ["ensure"]),
        ("apply s", ["file"]),
        ("lint s", ["file"]),
        ("ensure fi", ["file"]),
        ("ensure file /e", ["file"]),
        ("ensure file /etc/motd ", ["absent", "directory", "present"]),
        ("ensure package nginx ", ["absent", "latest", "present"]),
        ("ensure service cron s", ["stopped"]),
        ("status pa", ["package"]),
        ("status file /e", ["file"]),
        ("schema ex", ["exec"]),
        ("facts host.info.platformF", ["host.info.platformFamily"]),
        ("apply m --fact host.info.platformF", ["host.info.platformFamily="]),
        ("completion z", ["zsh"]),
        ("help agent pol", ["policy"]),
        ("ensure exec tr", []),
    ],
)
def test_words_are_those_that_fit(line: str, offered: list[str]) -> None:
    assert completed(line) == offered


async def test_names_of_packages_are_those_of_the_first_program_that_knows_any() -> None:
    runner = FakeRunner()
    runner.when("apt-cache", "--no-generate", stdout="", code=100)
    runner.when("dpkg-query", "-W", stdout="curl\ncurl-dev\n")

    assert await list_names(runner, "package", "cur") == ["curl", "curl-dev"]


async def test_names_of_services_are_the_units_of_this_host() -> None:
    runner = FakeRunner()
    runner.when("systemctl", "list-unit-files", stdout="cron.service enabled enabled\n\n")

    assert await list_names(runner, "service", "cr") == ["cron.service"]
    assert await list_names(runner, "exec", "tr") == []
