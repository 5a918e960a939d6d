"""`ccmctl notify`: manage rules that report events in the fleet to people and other programs."""

from __future__ import annotations

import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from ccm_agent.clikit.options import Options, takes
from ccm_agent.clikit.table import Column
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.ids import new_id
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import group, verb
from ccm_ctl.notify.happenings import Happening
from ccm_ctl.notify.messages import format_message
from ccm_ctl.notify.rules import (
    DEFAULT_AFTER,
    RULES_LIMIT,
    NotificationRule,
    check_rule,
    default_rules_path,
    read_rules,
    write_rules,
)
from ccm_ctl.render.record_types.administration import MadeLine, NotificationRuleLine

URL_LIMIT = 4096


class NotifyAddOptions(Options, frozen=True, kw_only=True):
    """The options of `ccmctl notify add`."""

    name: str
    on: str
    webhook: str
    command: str
    smtp: str
    to: tuple[str, ...]
    sender: str
    password_file: str
    template: str
    after: str
    replace: bool
    file: str


def _file_option() -> click.Option:
    return click.Option(
        ["--file"],
        metavar="FILE",
        default="",
        type=click.Path(),
        help="File with the rules. [CCM_NOTIFY; /etc/choria/ccm/notify.yaml for root, else ~/.config/choria/ccm/notify.yaml]",
    )


@group(
    "notify",
    no_args_is_help=True,
    examples=[
        "ccmctl notify add pager --on 'run.failed || drift || stale' --webhook -",
        "ccmctl notify test pager",
        "ccmctl rollout serve                 # delivers the notifications",
    ],
)
def notify(application: Application) -> None:
    """
    Report failed runs, drift and stale nodes to a webhook, a command or by mail.

    `ccmctl rollout serve` on this host delivers them. Rules are stored in a local file, because they may contain secrets and
    commands.
    """


@verb(
    "add",
    examples=[
        "ccmctl notify add pager --on 'run.failed || stale' --webhook - < url.txt",
        "ccmctl notify add log --on 'drift' --exec '/usr/local/bin/ticket --queue ops'",
        "ccmctl notify add mail --on failed --smtp smtp://mail.example.com --to ops@example.com --from ccm@example.com",
        "ccmctl notify add late --on stale --after 6h --webhook https://hooks.example.com/x",
    ],
    options=[
        click.Argument(["name"], metavar="NAME"),
        click.Option(
            ["--on"],
            metavar="EXPR",
            required=True,
            help="Condition on run.failed, run.missing, run.name, failed, drift, stale, paused, node, manifest or assignment.",
        ),
        click.Option(
            ["--webhook"],
            metavar="URL",
            default="",
            help="POST a JSON document to this URL; `-` reads it from standard input.",
        ),
        click.Option(
            ["--exec", "command"],
            metavar="CMD",
            default="",
            help="Run this command with the JSON document on standard input. No shell.",
        ),
        click.Option(
            ["--smtp"], metavar="URL", default="", help="Mail server: smtp://host or smtps://user@host."
        ),
        click.Option(["--to"], metavar="ADDRESS", multiple=True, help="Mail recipient. May be repeated."),
        click.Option(["--from", "sender"], metavar="ADDRESS", default="", help="Mail sender."),
        click.Option(
            ["--password-file"],
            metavar="FILE",
            default="",
            type=click.Path(),
            help="Password for the mail server.",
        ),
        click.Option(
            ["--template"],
            metavar="TEXT",
            default="",
            help="Jinja template of the message, such as '{{ node }}: {{ reason }}'.",
        ),
        click.Option(
            ["--after"],
            metavar="DURATION",
            default=DEFAULT_AFTER,
            show_default=True,
            help="How long a node may differ from its assignment before it is stale.",
        ),
        click.Option(["--replace"], is_flag=True, help="Replace a rule of this name."),
        _file_option(),
    ],
)
@takes(NotifyAddOptions)
def _add(application: Application, given: NotifyAddOptions) -> Exit:
    """Add a rule. A running server reads it within seconds."""
    name, rule = given.name, _rule(given)
    check_rule(name, rule)
    if rule.template:
        format_message(rule.template, [_test_happening()])
    path = _path(application, given.file)
    rules = read_rules(path)
    if name in rules and not given.replace:
        raise UsageError(f"rule {name} exists; use --replace to change it")
    if len(rules | {name: rule}) > RULES_LIMIT:
        raise UsageError(f"{path}: at most {RULES_LIMIT} rules are allowed")
    write_rules(path, rules | {name: rule})
    action = "replaced" if name in rules else "created"
    application.terminal.record(MadeLine, name=name, kind="notification rule", action=action)
    application.terminal.show(f"rule {name}: {action} in {path}\n")
    application.terminal.note(f"try it: ccmctl notify test {name}")
    return Exit.OK


def _rule(given: NotifyAddOptions) -> NotificationRule:
    webhook = given.webhook
    if webhook == "-":
        webhook = sys.stdin.readline(URL_LIMIT).strip()
        if not webhook:
            raise UsageError(
                "--webhook -: no URL on standard input; use --webhook - < FILE, or write the URL"
            )
    try:
        command = shlex.split(given.command)
    except ValueError as err:
        raise UsageError(
            f"--exec {given.command}: a quotation mark is not closed, or nothing follows the last `\\`"
        ) from err
    return NotificationRule(
        on=given.on,
        webhook=webhook,
        exec=command,
        smtp=given.smtp,
        to=list(given.to),
        sender=given.sender,
        password_file=given.password_file,
        template=given.template,
        after=given.after,
    )


@verb("list", examples=["ccmctl notify list", "ccmctl notify list --json"], options=[_file_option()])
def _list(application: Application, file: str) -> Exit:
    """List the rules. Secrets in URLs are not shown."""
    rows: list[list[Any]] = []
    path = _path(application, file)
    for name, rule in sorted(read_rules(path).items()):
        application.terminal.record(
            NotificationRuleLine, name=name, on=rule.on, channel=rule.channel, after=rule.after
        )
        rows.append([name, rule.on, rule.channel])
    columns = [Column("NAME"), Column("ON", fold=True), Column("CHANNEL", fold=True)]
    application.terminal.table(columns, rows, f"no notification rules in {path}\n")
    return Exit.OK


@verb(
    "rm",
    examples=["ccmctl notify rm pager"],
    options=[click.Argument(["name"], metavar="NAME"), _file_option()],
)
def _rm(application: Application, name: str, file: str) -> Exit:
    """Remove a rule. Its undelivered notifications are dropped."""
    path = _path(application, file)
    rules = read_rules(path)
    _need(rules, name, path)
    write_rules(path, {other: rule for other, rule in rules.items() if other != name})
    application.terminal.record(MadeLine, name=name, kind="notification rule", action="removed")
    application.terminal.show(f"rule {name}: removed\n")
    return Exit.OK


@verb(
    "test",
    examples=["ccmctl notify test pager"],
    options=[click.Argument(["name"], metavar="NAME"), _file_option()],
)
def _test(application: Application, name: str, file: str) -> Exit:
    """
    Deliver a test notification now.

    Exit codes: 0 delivered; 1 not delivered.
    """
    from ccm_ctl.notify.channels import Notification, deliver

    path = _path(application, file)
    rules = read_rules(path)
    rule = _need(rules, name, path)
    happening = _test_happening()
    notification = Notification(
        id=new_id(),
        rule=name,
        message=format_message(rule.template, [happening]),
        time=datetime.now(UTC).isoformat(),
        happenings=[happening.variables()],
    )

    async def work() -> Exit:
        await deliver(rule, notification)
        application.terminal.record(MadeLine, name=name, kind="notification", action="delivered")
        application.terminal.show(f"delivered: {rule.channel}\n")
        return Exit.OK

    return application.run_alone(work)


def _test_happening() -> Any:
    return Happening(kind="test", reason="test of a notification rule by ccmctl notify test")


def _path(application: Application, file: str) -> Path:
    return Path(file) if file else default_rules_path(application.environ)


def _need(rules: dict[str, NotificationRule], name: str, path: Path) -> NotificationRule:
    if name not in rules:
        raise UsageError(f"{path}: there is no rule {name}; `ccmctl notify list` lists the rules")
    return rules[name]


for _command in (_add, _list, _rm, _test):
    notify.add_command(_command)
