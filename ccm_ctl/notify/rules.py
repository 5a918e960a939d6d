"""
Notification rules: the happenings in the fleet that are reported, and where they are reported.

The rules are in a local file on the host that delivers notifications, not on the broker. A rule may contain a command or a URL
with a secret, but other operators can read and write documents on the broker.

    pager:
      on: run.failed || drift || stale
      webhook: https://hooks.example.com/services/T000/B000
      after: 1h
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ccm_agent.model.codec import as_text, convert_as, decode_document
from ccm_agent.model.errors import DocumentError, ExpressionError, UsageError
from ccm_agent.model.formats.durations import parse_duration
from ccm_agent.model.formats.yaml_writer import write_yaml
from ccm_agent.templates.expr.program import ExpressionNames, Program, compile_expression
from ccm_ctl.fleet.whole_file import write_whole

SIZE_LIMIT_BYTES = 256 * 1024
RULES_LIMIT = 100
LENGTH_LIMIT = 4096
"""The maximum length of a condition or a message template."""

DEFAULT_AFTER = "1h"
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,63}")

VARIABLES = {
    "kind": "text",
    "run": "map",
    "failed": "any",
    "drift": "any",
    "stale": "any",
    "paused": "any",
    "node": "text",
    "manifest": "text",
    "assignment": "text",
    "reason": "text",
}
"""The variables of conditions, with their types in the expression language."""

RUN_FIELDS = (
    "id",
    "name",
    "action",
    "operator",
    "message",
    "targets",
    "nodes",
    "counts",
    "failed",
    "missing",
)
"""The fields of `run` in conditions."""


class NotificationRule(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """
    A rule. It has exactly one destination: `webhook`, `exec` or `smtp`.

    Attributes:
        on: A condition on one happening, in the expression language. See VARIABLES.
        webhook: A URL for POST requests with a JSON document.
        exec: A command and its arguments, without a shell. It receives the JSON document on standard input.
        smtp: The mail server, `smtp://[user@]host[:port]` or `smtps://`.
        to: The recipients' mail addresses.
        sender: The sender's mail address.
        password_file: The file with the password for the mail server; "" for no login.
        template: The Jinja template of the message; "" for the default sentence.
        after: The time for which a node must be behind its assignment to be stale, such as `1h`.
    """

    on: str
    webhook: str = ""
    exec: list[str] = []
    smtp: str = ""
    to: list[str] = []
    sender: str = ""
    password_file: str = ""
    template: str = ""
    after: str = DEFAULT_AFTER

    @property
    def after_s(self) -> float:
        """The value of `after` in seconds."""
        return parse_duration(self.after)

    @property
    def channel(self) -> str:
        """The destination without secrets. The path and query of a webhook often contain a password."""
        if self.webhook:
            url = urlsplit(self.webhook)
            return f"webhook {url.scheme}://{url.hostname or ''}{f':{url.port}' if url.port else ''}/…"
        if self.exec:
            return f"exec {self.exec[0]}"
        return f"mail to {', '.join(self.to)}"


def compile_condition(text: str) -> Program:
    """
    Compile the condition of a rule.

    Raises:
        UsageError: The condition cannot be parsed, uses an unknown name, or does not result in true or false.
    """
    if not text or len(text) > LENGTH_LIMIT:
        raise UsageError(f"a condition must have 1 to {LENGTH_LIMIT} characters")
    try:
        names = ExpressionNames(VARIABLES, members={"run": RUN_FIELDS})
        return compile_expression(text, names, is_condition=True)
    except ExpressionError as err:
        raise UsageError(f"--on {text}: {err}") from err


def check_rule(name: str, rule: NotificationRule) -> None:
    """
    Check a rule as far as possible without using it.

    Raises:
        UsageError: The rule is not valid. The message contains its name.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"`{name}` is not a valid rule name; use letters, digits, `.`, `_` and `-`, up to 64 characters"
        )
    compile_condition(rule.on)
    if sum(map(bool, (rule.webhook, rule.exec, rule.smtp))) != 1:
        raise UsageError(f"rule {name}: specify exactly one of --webhook, --exec and --smtp")
    if rule.webhook:
        _check_url(name, rule.webhook, ("https", "http"))
    if rule.smtp:
        _check_url(name, rule.smtp, ("smtp", "smtps"))
        if not rule.to or not rule.sender:
            raise UsageError(f"rule {name}: --smtp needs --to and --from")
        for address in (*rule.to, rule.sender):
            if not _is_mail_address(address):
                raise UsageError(f"rule {name}: {address!r} is not a valid mail address")
    elif rule.to or rule.sender or rule.password_file:
        raise UsageError(f"rule {name}: --to, --from and --password-file need --smtp")
    try:
        is_positive = rule.after_s > 0
    except DocumentError as err:
        raise UsageError(f"rule {name}: --after {rule.after}: {err}") from err
    if not is_positive:
        raise UsageError(f"rule {name}: --after must be more than zero")
    if len(rule.template) > LENGTH_LIMIT:
        raise UsageError(f"rule {name}: a message template must have at most {LENGTH_LIMIT} characters")


def _is_mail_address(text: str) -> bool:
    from email.errors import MessageError
    from email.headerregistry import Address

    if not text.isascii() or not text.isprintable() or " " in text:
        return False
    try:
        return bool(Address(addr_spec=text).domain)
    except (MessageError, ValueError, IndexError, AttributeError):  # the last two are bugs in the parser
        return False


def _check_url(name: str, url: str, schemes: tuple[str, ...]) -> None:
    """Check a URL. Errors do not contain the URL, because it may contain a secret."""
    problem = ""
    try:
        parts = urlsplit(url)
        if parts.scheme not in schemes:
            problem = f"the URL must begin with {' or '.join(f'{scheme}://' for scheme in schemes)}"
        elif not parts.hostname or parts.port == 0:
            problem = "the URL has no valid host"
        elif not url.isprintable() or " " in url:
            problem = "the URL contains a space or a control character"
    except ValueError:
        problem = "the URL is not valid"
    if problem:
        raise UsageError(f"rule {name}: {problem}")


def read_rules(path: Path) -> dict[str, NotificationRule]:
    """
    Return the rules in a file, by name; {} if the file does not exist.

    Raises:
        UsageError: Other users can read the file, it is too large, or a rule is not valid.
        DocumentError: The file is not YAML, or has an unknown key. The error has the file and line.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            body = file.read(SIZE_LIMIT_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as err:
        raise UsageError(f"{path}: cannot be read: {err.strerror}") from err
    if mode & (stat.S_IRWXG | stat.S_IRWXO) & ~stat.S_IRGRP:
        raise UsageError(
            f"{path}: other users may read or write it, and it may contain secrets; run chmod 600 {path}"
        )
    if len(body) > SIZE_LIMIT_BYTES:
        raise UsageError(f"{path}: larger than {SIZE_LIMIT_BYTES // 1024} KiB")
    text = as_text(body, str(path))
    if not text.strip():
        return {}
    rules = convert_as(decode_document(text, str(path)), dict[str, NotificationRule], str(path), text)
    if len(rules) > RULES_LIMIT:
        raise UsageError(f"{path}: {len(rules)} rules; at most {RULES_LIMIT} are allowed")
    for name, rule in rules.items():
        try:
            check_rule(name, rule)
        except UsageError as err:
            raise UsageError(f"{path}: {err.message}") from err
    return rules


def write_rules(path: Path, rules: Mapping[str, NotificationRule]) -> None:
    """
    Replace the file atomically. Only its owner can read it.

    Raises:
        InputError: The file cannot be written.
    """
    documents: dict[str, Any] = {name: msgspec.to_builtins(rules[name]) for name in sorted(rules)}
    text = write_yaml(documents) if documents else ""
    write_whole(path, text.encode())


def default_rules_path(environ: Mapping[str, str]) -> Path:
    """
    Return the default path of the rules: CCM_NOTIFY, for root /etc/choria/ccm/notify.yaml, otherwise the user's configuration.
    """
    if named := environ.get("CCM_NOTIFY", ""):
        return Path(named)
    if os.geteuid() == 0:
        return Path("/etc/choria/ccm/notify.yaml")
    home = environ.get("XDG_CONFIG_HOME", "")
    base = Path(home) if home.startswith("/") else Path.home() / ".config"
    return base / "choria" / "ccm" / "notify.yaml"
