"""The destinations of notifications: a webhook, a command, or mail. Each either delivers or raises DeliveryError."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import ssl
from email.message import EmailMessage
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from ccm_agent.model.errors import CcmError
from ccm_agent.model.formats.durations import format_duration
from ccm_ctl.fleet.http_problems import describe_http_problem

if TYPE_CHECKING:
    from ccm_ctl.notify.rules import NotificationRule

DELIVERY_S = 30.0
"""The time limit of one delivery attempt, in seconds."""

PASSWORD_LIMIT_BYTES = 4096
EXEC_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME")
"""The environment variables that a command receives. They do not include CCM_CREDS, NATS_PASSWORD or other secrets."""


class DeliveryError(CcmError):
    """A notification was not delivered; it will be retried."""

    code = "not_delivered"


class Notification(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A message for one rule about all matching events of one scan of the fleet.

    Attributes:
        id: An ID that does not change when delivery is retried, so that receivers can drop duplicates.
        rule: The name of the rule.
        message: The text for people.
        time: The time of creation, in RFC 3339.
        count: The number of happenings (fleet events) in the notification.
        happenings: The first of these happenings, as JSON objects.
        attempts: The number of failed deliveries.
        not_before: The earliest time of the next attempt, in seconds since the epoch.
    """

    id: str
    rule: str
    message: str
    time: str
    count: int = 1
    happenings: list[dict[str, Any]] = []
    attempts: int = 0
    not_before: float = 0

    def document(self) -> bytes:
        """Return the JSON document for webhooks and commands. Chat services show its field `text`."""
        return msgspec.json.encode(
            {
                "protocol": "io.choria.ccm.v1.notification",
                "id": self.id,
                "rule": self.rule,
                "time": self.time,
                "text": self.message,
                "count": self.count,
                "happenings": self.happenings,
            }
        )


async def deliver(rule: NotificationRule, notification: Notification) -> None:
    """
    Deliver one notification.

    Raises:
        DeliveryError: Delivery failed or could not be confirmed. The message contains none of the rule's secrets.
    """
    send = _post if rule.webhook else _execute if rule.exec else _mail
    try:
        async with asyncio.timeout(DELIVERY_S):
            await send(rule, notification)
    except TimeoutError:
        raise DeliveryError(f"{rule.channel}: not delivered within {format_duration(DELIVERY_S)}") from None


async def _post(rule: NotificationRule, notification: Notification) -> None:
    from aiohttp import ClientError, ClientSession, DummyCookieJar

    headers = {"Content-Type": "application/json", "User-Agent": "ccmctl", "Idempotency-Key": notification.id}
    try:
        async with (
            ClientSession(cookie_jar=DummyCookieJar(), trust_env=True) as session,
            session.post(
                rule.webhook, data=notification.document(), headers=headers, allow_redirects=False
            ) as response,
        ):
            status = response.status
    except (ClientError, ValueError, OSError) as err:
        why = describe_http_problem(err) or f"the request failed: {type(err).__name__}"
        raise DeliveryError(f"{rule.channel}: {why}") from None
    if not 200 <= status < 300:
        raise DeliveryError(f"{rule.channel}: the server answered with HTTP status {status}")


async def _execute(rule: NotificationRule, notification: Notification) -> None:
    environment = {name: value for name in EXEC_ENVIRONMENT if (value := os.environ.get(name)) is not None}
    environment |= {"CCM_NOTIFY_RULE": notification.rule, "CCM_NOTIFY_ID": notification.id}
    try:
        process = await asyncio.create_subprocess_exec(
            *rule.exec,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    except (OSError, ValueError) as err:
        reason = err.strerror if isinstance(err, OSError) else "the command line is not valid"
        raise DeliveryError(f"{rule.channel}: cannot be started: {reason}") from None
    try:
        await process.communicate(notification.document())
    finally:
        if process.returncode is None:
            # kill the process group, because it includes the command's children
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())
    if process.returncode != 0:
        raise DeliveryError(f"{rule.channel}: ended with exit code {process.returncode}")


async def _mail(rule: NotificationRule, notification: Notification) -> None:
    mail = EmailMessage()
    mail["Subject"] = _subject(notification)
    mail["From"], mail["To"] = rule.sender, ", ".join(rule.to)
    domain = rule.sender.rpartition("@")[2]
    mail["Message-ID"] = f"<{notification.id}@{domain}>"
    mail.set_content(notification.message)
    await asyncio.to_thread(_send_mail, rule, mail)


def _subject(notification: Notification) -> str:
    """
    Return the subject of a mail: one line, without encoded words (RFC 2047).

    Parts of a message come from nodes. `EmailMessage` decodes encoded words in a subject, and does not remove line breaks in
    them. A node could otherwise add headers to a mail.
    """
    line = f"ccm {notification.rule}: {notification.message.splitlines()[0][:120]}".replace("=?", "= ?")
    return "".join(character if character.isprintable() else " " for character in line)


def _send_mail(rule: NotificationRule, mail: EmailMessage) -> None:
    import smtplib

    from ccm_ctl.notify.mail_client import MailClient, SlowMailServerError, TlsMailClient

    url = urlsplit(rule.smtp)
    host = url.hostname or ""
    try:
        password = _read_password(rule)
        context = ssl.create_default_context()
        if url.scheme == "smtps":
            server: MailClient = TlsMailClient(host, url.port or 465, limit_s=DELIVERY_S, context=context)
        else:
            server = MailClient(host, url.port or 25, limit_s=DELIVERY_S)
        with server:
            server.ehlo()
            if url.scheme == "smtp" and server.has_extn("starttls"):
                server.starttls(context=context)
                server.ehlo()
                is_encrypted = True
            else:
                is_encrypted = url.scheme == "smtps"
            if password:
                if not is_encrypted:
                    raise DeliveryError(f"{rule.channel}: {host} offers no TLS, so the password is not sent")
                server.login(unquote(url.username or ""), password)
            server.send_message(mail)
    except SlowMailServerError:
        # a thread cannot be cancelled, so the session limits its own time
        raise DeliveryError(f"{rule.channel}: not delivered within {format_duration(DELIVERY_S)}") from None
    except smtplib.SMTPResponseException as err:
        raise DeliveryError(f"{rule.channel}: {host} answered with SMTP code {err.smtp_code}") from None
    except (smtplib.SMTPException, ssl.SSLError) as err:
        raise DeliveryError(f"{rule.channel}: {host}: {type(err).__name__}") from None
    except OSError as err:
        raise DeliveryError(f"{rule.channel}: {host}: {err.strerror or type(err).__name__}") from None


def _read_password(rule: NotificationRule) -> str:
    if not rule.password_file:
        return ""
    try:
        with Path(rule.password_file).open("rb") as file:
            password = file.read(PASSWORD_LIMIT_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError):
        raise DeliveryError(
            f"{rule.channel}: the password file {rule.password_file} cannot be read"
        ) from None
    if not password.isascii() or not unquote(urlsplit(rule.smtp).username or "").isascii():
        raise DeliveryError(f"{rule.channel}: user and password of the mail server must be ASCII")
    return password
