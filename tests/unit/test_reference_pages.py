"""The generated pages of docs/reference: each has everything that the code has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest

from ccm_agent.agent.state.settings import AgentConfig, NatsConfig, TlsConfig
from ccm_agent.bus.signatures.trust import Signer
from ccm_agent.cli.program import program
from ccm_agent.model import outcome, wire
from ccm_agent.model.exits import Exit
from ccm_agent.model.health import HealthResult
from ccm_agent.model.resource_diff import FileDiff, PropertyChange, ResourceDiff
from ccm_ctl.__main__ import VERBS
from ccm_ctl.commands.command_tree import CtlProgram

TOP = Path(__file__).resolve().parents[2]
REFERENCE = TOP / "docs/reference"

PROGRAMS: dict[str, click.Command] = {"ccm": program, "ccmctl": CtlProgram(VERBS)}


def walk(name: str, command: click.Command, parent: click.Context | None) -> Iterator[click.Context]:
    """The context of each command that help shows, with all below it."""
    with click.Context(command, info_name=name, parent=parent, **command.context_settings) as context:
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


def command_sections(name: str) -> dict[str, str]:
    """The text below each heading of the pages of a program."""
    found: dict[str, str] = {}
    for path in (REFERENCE / "commands").glob("*.md"):
        if path.stem == name or path.stem.startswith(f"{name}-"):
            found |= sections(path.read_text())
    return found


def in_row(spelling: str, part: str) -> bool:
    """Whether a table explains an option."""
    return bool(re.search(rf"^\| `.*(?<![\w-]){re.escape(spelling)}(?![\w-]).*` \| \S", part, re.MULTILINE))


WITHOUT = re.compile(r" \(without (?P<names>[^)]*)\)")


def options_of_groups(named: str, parts: dict[str, str]) -> Iterator[str]:
    """The rows of the sections that a command names, without those that it excludes."""
    for link in re.finditer(rf"\[([\w ]+)\]\(\w+\.md#[\w-]+\)({WITHOUT.pattern})?", named):
        lacks = re.findall(r"--[\w-]+", link["names"] or "")
        if link[1] != "Common options":
            yield from (
                row
                for row in parts[link[1]].splitlines(keepends=True)
                if not any(in_row(name, row) for name in lacks)
            )


@pytest.mark.parametrize("name", PROGRAMS)
def test_pages_have_every_command_with_its_options_and_no_other(name: str) -> None:
    parts = command_sections(name)
    by_all = {*re.findall(r"--\w+", parts["Common options"].partition(". ")[0])}
    of_program = (REFERENCE / "commands" / f"{name}.md").read_text()
    shown = {context.command_path: context for context in walk(name, PROGRAMS[name], None)}

    assert {title for title in parts if title.split()[0] == name} == set(shown)
    for path, context in shown.items():
        group = " ".join(path.split()[:2])
        lines = [
            *parts[path].splitlines(),
            *(line for line in parts[group].splitlines() if " on this page: " in line),
        ]
        named = "".join(line for line in lines if line.startswith("[Common options]"))
        groups = "".join(options_of_groups(named, parts))
        properties = "".join(line for line in lines if line.startswith("[Properties of "))
        for option in context.command.get_params(context):
            if not isinstance(option, click.Option) or option.hidden or by_all & {*option.opts}:
                continue
            for spelling in (*option.opts, *option.secondary_opts):
                whole = rf"(?<![\w-]){re.escape(spelling)}(?![\w-])"
                is_named = in_row(spelling, groups) or (
                    re.search(whole, WITHOUT.sub("", named)) and in_row(spelling, of_program)
                )
                is_property = re.search(whole, properties)
                assert in_row(spelling, parts[path]) or is_named or is_property, f"{path} {spelling}"


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
    *(
        "agent.lock",
        "data.layers",
        "agent.sock",
        "join.seed",
        "policy.yaml",
        "resource.py",
        "dashboard.key",
        "ccm.json",
    ),  # files
    *("agent.log", "agent.yaml", "dashboard.err", "dashboard.out"),  # files of the demo
    "data.greeting",  # a key of a first manifest
    *("ccm.types", "ccm.providers"),  # entry points
}
"""Texts in the code that look like error codes and are something else."""


def test_page_of_error_codes_has_the_exit_codes_of_both_programs() -> None:
    page = sections((REFERENCE / "error-codes.md").read_text())

    numbers = [re.findall(r"^\| (\d) \|", page[f"Exit codes of {name}"], re.MULTILINE) for name in PROGRAMS]
    assert numbers == [["0", "1", "2"], [str(code.value) for code in Exit]]


def names_read(tree: ast.AST) -> Iterator[str]:
    """The variables that a module reads from the environment; "?" for a name that is not written where it is read."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr="get"), args=[name, *_]):
                asked = [name] if is_environment(owner) else []
            case ast.Subscript(value=owner, slice=name):
                asked = [name] if is_environment(owner) else []
            case ast.Compare(left=name, ops=[ast.In()], comparators=[owner]):
                asked = [name] if is_environment(owner) else []
            case ast.keyword(arg="envvar", value=name):
                asked = [name]
            case ast.Assign(targets=[ast.Name(id=constant)], value=value) if constant in CONSTANTS:
                asked = [
                    one
                    for one in ast.walk(value)
                    if isinstance(one, ast.Constant) and str(one.value).isupper()
                ]
            case _:
                continue
        yield from (str(one.value) if isinstance(one, ast.Constant) else "?" for one in asked)


def is_environment(owner: ast.expr) -> bool:
    """Whether an expression is a mapping of environment variables, by its name."""
    name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
    return name in ("environ", "_environ")


CONSTANTS = ("CONTEXT_VARIABLES", "SERVER_VARIABLES", "CREDS_VARIABLES")
"""Constants that hold names of variables which are read by way of another name."""

READ_BY_ANOTHER_NAME = {
    "ccm_agent/bus/connection/choose_broker.py": CONSTANTS,
    "ccm_agent/cli/plugins.py": (),  # a flag of a plugin names it
    "ccm_agent/clikit/program.py": ("_CCM_COMPLETE", "_CCMCTL_COMPLETE"),
    "ccm_agent/system/render_process.py": ("TZ",),
    "ccm_agent/templates/engines/go/__init__.py": (),  # a template names it
    "ccm_ctl/app.py": ("SUDO_USER", "LOGNAME", "USER"),
    "ccm_ctl/fleet/data/git_commit.py": (),  # handed to git
    "ccm_ctl/notify/channels.py": (),  # handed to a command
}
"""The modules that read variables whose names are not written there, and these names or the constants that hold them."""


def test_page_has_every_environment_variable_that_the_programs_read() -> None:
    page = (REFERENCE / "environment.md").read_text()
    listed = set(re.findall(r"^\| `(\w+)` \| \S.* \| \S.* \|$", page, re.MULTILINE))
    read: dict[str, set[str]] = {}
    for package in ("ccm_agent", "ccm_ctl"):
        for path in (TOP / package).rglob("*.py"):
            text = path.read_text()
            if not any(word in text for word in ("environ", "envvar", *CONSTANTS)):
                continue
            for name in names_read(ast.parse(text)):
                read.setdefault(name, set()).add(str(path.relative_to(TOP)))

    assert read.pop("?") == set(READ_BY_ANOTHER_NAME)
    others = {one for names in READ_BY_ANOTHER_NAME.values() for one in names if one not in CONSTANTS}
    assert {"CCM_SERVER", "CCM_SESSION_STORE", "XDG_STATE_HOME", "NO_COLOR"} <= set(read)
    assert (set(read) | others) - listed == set()


@pytest.mark.parametrize("name", PROGRAMS)
def test_variables_in_help_are_on_the_page_of_variables(name: str) -> None:
    help_texts = "".join(command_sections(name).values())
    page = (REFERENCE / "environment.md").read_text()

    named = set(re.findall(r"\b(?:CCM|NATS|HIERA|HTTP)_[A-Z_]+\b", help_texts)) - BUCKETS
    assert {variable for variable in named if f"`{variable}`" not in page} == set()


BUCKETS = {
    "CCM_DATA",
    "CCM_FACTS",
    "CCM_EVENTS",
    "CCM_RUNS",
    "CCM_MANIFESTS",
    "CCM_ASSIGNMENTS",
    "CCM_NODE_DATA",
}
"""Buckets and streams that help screens name."""


@pytest.mark.parametrize(
    ("title", "kind"),
    [
        (outcome.SESSION_START, outcome.SessionStart),
        (outcome.TRANSACTION_EVENT, outcome.TransactionEvent),
        (outcome.SESSION_SUMMARY, outcome.SessionSummary),
        (wire.SESSION_PROGRESS, wire.Progress),
        (f"{wire.PROTOCOL}.agent.WORD", wire.AgentEvent),
        ("A failed resource", outcome.FailedResource),
        ("A health check", HealthResult),
        ("A diff", ResourceDiff),
        ("A property in a diff", PropertyChange),
        ("A file in a diff", FileDiff),
    ],
)
def test_page_has_every_field_of_an_event_with_its_meaning(title: str, kind: type[msgspec.Struct]) -> None:
    parts = sections((REFERENCE / "json.md").read_text())
    also = re.findall(r"`(\w+)`", parts[title].partition(" Also ")[2].partition("\n")[0])

    for field in msgspec.structs.fields(kind):
        part = parts["Events"] if field.encode_name in also else parts[title]
        row = rf"^\| (`\w+`, )*`{field.encode_name}`(, `\w+`)* \| \S.* \|$"
        assert re.search(row, part, re.MULTILINE), field.name


def test_page_has_every_word_that_agents_publish() -> None:
    part = sections((REFERENCE / "json.md").read_text())["Words of agents"]
    prefix = f"{wire.PROTOCOL}.agent."

    words = {value.removeprefix(prefix) for value in vars(wire).values() if str(value).startswith(prefix)}
    assert len(words) > 5
    assert set(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)) == words
