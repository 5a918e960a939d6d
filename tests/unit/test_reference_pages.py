"""The generated pages of docs/reference: each has everything that the code has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest

from ccm_agent.agent.process.config import AgentConfig, NatsConfig, TlsConfig
from ccm_agent.bus.trust import Signer
from ccm_agent.cli.program import program
from ccm_agent.model.exits import Exit
from ccm_ctl.__main__ import VERBS
from ccm_ctl.commands.command_tree import CtlProgram

TOP = Path(__file__).resolve().parents[2]
REFERENCE = TOP / "docs/reference"

PROGRAMS: dict[str, click.Command] = {"ccm": program, "ccmctl": CtlProgram(VERBS)}


def walk(name: str, command: click.Command, parent: click.Context | None) -> Iterator[click.Context]:
    """The context of each command that help shows, with all below it."""
    with click.Context(command, info_name=name, parent=parent) as context:
        yield context
        if isinstance(command, click.Group):
            for child in command.list_commands(context):
                below = command.get_command(context, child)
                if below is not None and not below.hidden:
                    yield from walk(child, below, context)


def sections(page: str) -> dict[str, str]:
    """The text below each heading of a page."""
    parts = re.split(r"^#+ (.*)\n", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("name", PROGRAMS)
def test_page_has_every_command_with_its_options_and_no_other(name: str) -> None:
    page = sections((REFERENCE / f"{name}-commands.md").read_text())
    shown = {context.command_path: context for context in walk(name, PROGRAMS[name], None)}

    assert {title for title in page if title.split()[0] == name} == set(shown)
    for path, context in shown.items():
        for option in context.command.get_params(context):
            if not isinstance(option, click.Option) or option.hidden or "--help" in option.opts:
                continue
            for spelling in (*option.opts, *option.secondary_opts):
                words = re.escape(spelling)
                assert re.search(rf"^\| `.*(?<![\w-]){words}(?![\w-]).*` \|", page[path], re.MULTILINE), (
                    f"{path} {spelling}"
                )


@pytest.mark.parametrize(
    ("kind", "above"),
    [(AgentConfig, ""), (NatsConfig, "nats."), (TlsConfig, "nats.tls."), (Signer, "trusted_signers[].")],
)
def test_page_has_every_setting_of_the_agent_with_its_meaning(kind: type[msgspec.Struct], above: str) -> None:
    page = (REFERENCE / "agent-yaml.md").read_text()

    for field in msgspec.structs.fields(kind):
        row = rf"^\| `{re.escape(above + field.name)}` \| [^|]+ \| [^|]* \| \S.* \|$"
        assert re.search(row, page, re.MULTILINE), field.name


CODE = re.compile(r"""["']([a-z]+\.[a-z_]+)["']""")


def test_page_has_every_error_code_with_its_meaning() -> None:
    page = (REFERENCE / "error-codes.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z_.]+)` \| (\S.*) \|$", page, re.MULTILINE))
    areas = {code.partition(".")[0] for code in rows if "." in code}

    written = {
        (code, path)
        for package in ("ccm_agent", "ccm_ctl")
        for path in (TOP / package).rglob("*.py")
        for code in CODE.findall(path.read_text())
        if code.partition(".")[0] in areas
    }

    assert {"input.document", "run.expired", "policy.source"} <= set(rows)
    missing = {(code, path.name) for code, path in written if code not in rows and code not in NO_CODES}
    assert not missing


NO_CODES = {
    *("agent.lock", "agent.sock", "policy.yaml", "resource.py", "dashboard.key", "ccm.json"),  # files
    *("ccm.types", "ccm.providers"),  # entry points
}
"""Texts in the code that look like error codes and are something else."""


def test_page_of_error_codes_has_the_exit_codes_of_both_programs() -> None:
    page = sections((REFERENCE / "error-codes.md").read_text())

    numbers = [re.findall(r"^\| (\d) \|", page[f"Exit codes of {name}"], re.MULTILINE) for name in PROGRAMS]
    assert numbers == [["0", "1", "2"], [str(code.value) for code in Exit]]
