"""Delivery over a real HTTP server, a real command and a mail server on loopback."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email import policy
from email.parser import Parser
from pathlib import Path

import pytest
from aiohttp import web
from msgspec.structs import replace

from ccm_ctl.notify import channels
from ccm_ctl.notify.channels import DeliveryError, Notification, deliver
from ccm_ctl.notify.rules import NotificationRule

ONE = Notification(
    id="id1",
    rule="pager",
    message="web1 failed\nand more",
    time="2026-11-22T12:00:00Z",
    happenings=[{"node": "web1"}],
)


@asynccontextmanager
async def a_server(
    status: int = 200, **headers: str
) -> AsyncIterator[tuple[str, list[web.Request], list[bytes]]]:
    requests: list[web.Request] = []
    bodies: list[bytes] = []

    async def take(request: web.Request) -> web.Response:
        requests.append(request)
        bodies.append(await request.read())
        return web.Response(status=status, headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/T0/secret", requests, bodies
    finally:
        await runner.cleanup()


async def test_a_webhook_gets_the_document_once() -> None:
    async with a_server(204) as (url, requests, bodies):
        await deliver(NotificationRule(on="drift", webhook=url), ONE)

    assert [one.method for one in requests] == ["POST"]
    assert requests[0].headers["Idempotency-Key"] == "id1"
    assert json.loads(bodies[0]) == {
        "protocol": "io.choria.ccm.v1.notification",
        "id": "id1",
        "rule": "pager",
        "time": "2026-11-22T12:00:00Z",
        "text": "web1 failed\nand more",
        "count": 1,
        "happenings": [{"node": "web1"}],
    }


@pytest.mark.parametrize("status", [301, 307, 400, 500])
async def test_a_webhook_that_does_not_take_it_is_an_error_without_the_url(status: int) -> None:
    async with a_server(status, Location="http://127.0.0.1:1/elsewhere") as (url, requests, _):
        with pytest.raises(DeliveryError, match=f"HTTP status {status}") as caught:
            await deliver(NotificationRule(on="drift", webhook=url), ONE)

    assert len(requests) == 1
    assert "secret" not in str(caught.value)


async def test_a_server_that_is_missing_is_an_error_without_the_url() -> None:
    async with a_server() as (url, _, _):
        pass

    with pytest.raises(DeliveryError, match="no connection: ") as caught:
        await deliver(NotificationRule(on="drift", webhook=url), ONE)

    assert "secret" not in str(caught.value)


async def test_a_command_gets_the_document_and_no_secrets_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_PASSWORD", "hidden")
    script = tmp_path / "script"
    script.write_text(
        f'#!/bin/sh\ncat > {tmp_path}/body\nenv > {tmp_path}/env\necho "$#:$1" > {tmp_path}/args\n'
    )
    script.chmod(0o700)

    await deliver(NotificationRule(on="drift", exec=[str(script), "a; b $(c)"]), ONE)

    assert json.loads((tmp_path / "body").read_text())["text"] == ONE.message
    assert "hidden" not in (tmp_path / "env").read_text()
    assert "CCM_NOTIFY_RULE=pager" in (tmp_path / "env").read_text()
    assert (tmp_path / "args").read_text() == "1:a; b $(c)\n"


@pytest.mark.parametrize(
    ("command", "message"), [(["/bin/false"], "exit code 1"), (["/nonexistent/x"], "cannot be started")]
)
async def test_a_command_that_fails_is_an_error(command: list[str], message: str) -> None:
    with pytest.raises(DeliveryError, match=message):
        await deliver(NotificationRule(on="drift", exec=command), ONE)


async def test_a_command_that_hangs_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "DELIVERY_S", 0.5)
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\nsleep 1000 &\necho $! > {tmp_path}/child\nwait\n")
    script.chmod(0o700)

    with pytest.raises(DeliveryError, match=r"not delivered within 500ms"):
        await deliver(NotificationRule(on="drift", exec=[str(script)]), ONE)

    child = int((tmp_path / "child").read_text())
    for _ in range(500):
        if not _is_running(child):
            break
        await asyncio.sleep(0.01)
    assert not _is_running(child)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


@asynccontextmanager
async def a_mail_server(answer: str = "250 ok") -> AsyncIterator[tuple[str, list[str]]]:
    """A mail server without TLS, which accepts everything, and answers the end of a mail as told."""
    lines: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 test\r\n")
        is_data = False
        while line := (await reader.readline()).decode():
            lines.append(line.rstrip("\r\n"))
            word = line.strip().upper()
            if is_data:
                if line != ".\r\n":
                    continue
                is_data, reply = False, answer
            elif word == "DATA":
                is_data, reply = True, "354 go on"
            elif word == "QUIT":
                writer.write(b"221 bye\r\n")
                break
            else:
                reply = "250 ok"
            writer.write(f"{reply}\r\n".encode())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", lines


async def test_a_mail_has_one_recipient_line_and_the_first_line_as_subject() -> None:
    async with a_mail_server() as (host, lines):
        rule = NotificationRule(
            on="drift",
            smtp=f"smtp://{host}",
            to=["ops@example.com", "b@example.com"],
            sender="ccm@example.com",
        )
        await deliver(rule, ONE)

    assert "Subject: ccm pager: web1 failed" in lines
    assert "To: ops@example.com, b@example.com" in lines
    assert "Message-ID: <id1@example.com>" in lines
    assert lines[-3:-1] == ["and more", "."]


@pytest.mark.parametrize(
    "message",
    [
        pytest.param("web1 failed\r\nBcc: evil@example.net\r\n\r\nread this", id="lines of a header"),
        pytest.param("web1\rBcc: evil@example.net", id="carriage return"),
        pytest.param("web1\x0bBcc: evil@example.net", id="vertical tab"),
        pytest.param("web1\x0cBcc: evil@example.net", id="form feed"),
        pytest.param("web1\x85Bcc: evil@example.net", id="next line"),
        pytest.param("web1\u2028Bcc: evil@example.net", id="line separator"),
        pytest.param("web1\x00Bcc: evil@example.net", id="zero byte"),
        pytest.param(
            "x\r\n.\r\nRCPT TO:<evil@example.net>\r\nDATA\r\nBcc: evil@example.net", id="end of a mail"
        ),
        pytest.param("\r\n\r\nBcc: evil@example.net", id="nothing before"),
        pytest.param("=?utf-8?q?x=0ABcc:_evil=40example.net?=", id="encoded word"),
        pytest.param("x" * 2000 + "\nBcc: evil@example.net", id="long line"),
    ],
)
async def test_what_a_node_says_adds_no_header_and_no_recipient_to_a_mail(message: str) -> None:
    async with a_mail_server() as (host, lines):
        rule = NotificationRule(
            on="drift", smtp=f"smtp://{host}", to=["ops@example.com"], sender="c@example.com"
        )
        await deliver(rule, replace(ONE, message=message))

    head = lines[lines.index("data") + 1 : lines.index("", lines.index("data"))]
    parsed = Parser(policy=policy.default).parsestr("\r\n".join(head))
    # versions of smtplib differ in upper and lower case
    envelope = [line.lower() for line in lines[: lines.index("data")]]
    assert [line for line in envelope if line.startswith("rcpt")] == ["rcpt to:<ops@example.com>"]
    assert sorted(name.lower() for name in parsed) == [
        *("content-transfer-encoding", "content-type", "from", "message-id", "mime-version", "subject", "to")
    ]
    assert str(parsed["To"]) == "ops@example.com"
    assert lines.count(".") == 1
    assert lines[lines.index(".") + 1 :] == ["QUIT"]


@pytest.mark.parametrize(
    "target", ["http://127.0.0.1:{port}/latest/meta-data", "http://169.254.169.254/latest"]
)
async def test_a_webhook_is_not_led_to_another_address(target: str) -> None:
    """A redirect would turn the server of a webhook into a reader of what only this host can reach."""
    async with a_server() as (inner, reached, _):
        port = inner.split(":")[2].partition("/")[0]
        async with a_server(307, Location=target.format(port=port)) as (url, asked, _):
            with pytest.raises(DeliveryError, match="HTTP status 307"):
                await deliver(NotificationRule(on="drift", webhook=url), ONE)
        assert (len(asked), reached) == (1, [])

        await deliver(NotificationRule(on="drift", webhook=inner), ONE)
        assert len(reached) == 1


async def test_the_secret_of_a_webhook_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "-".join(("hidden", "part"))  # a traceback shows the lines of this test
    rule = NotificationRule(
        on="drift", webhook=f"http://me:{secret}-1@127.0.0.1:1/T0/{secret}-2?token={secret}-3"
    )
    async with a_server(500) as (url, requests, _):
        with pytest.raises(DeliveryError) as missing:
            await deliver(rule, ONE)
        with pytest.raises(DeliveryError) as refused:
            await deliver(replace(rule, webhook=f"{url}/{secret}-2?token={secret}-3"), ONE)

    logged = "".join(record.getMessage() for record in caplog.records if record.name != "aiohttp.access")
    shown = "".join(traceback.format_exception(missing.value) + traceback.format_exception(refused.value))
    assert secret not in logged + shown
    assert requests[0].query_string == f"token={secret}-3"


async def test_a_mail_server_that_refuses_is_an_error() -> None:
    async with a_mail_server("554 no") as (host, _):
        rule = NotificationRule(on="drift", smtp=f"smtp://{host}", to=["a@b.c"], sender="d@e.f")
        with pytest.raises(DeliveryError, match="SMTP code 554"):
            await deliver(rule, ONE)


@pytest.mark.parametrize(
    "piece",
    [
        pytest.param(b"2", id="a line without an end"),
        pytest.param(b"220-wait\r\n", id="lines without an end"),
    ],
)
async def test_a_mail_server_that_never_ends_its_reply_is_given_up(
    monkeypatch: pytest.MonkeyPatch, piece: bytes
) -> None:
    monkeypatch.setattr(channels, "DELIVERY_S", 0.5)
    hung_up = asyncio.Event()

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.02)
        except ConnectionError:
            hung_up.set()
        finally:
            writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    async with server:
        host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        rule = NotificationRule(on="drift", smtp=f"smtp://{host}", to=["a@b.c"], sender="d@e.f")

        with pytest.raises(DeliveryError, match="not delivered within 500ms"):
            await deliver(rule, ONE)

        async with asyncio.timeout(
            10
        ):  # before, the thread that delivers read on for as long as bytes arrived
            await hung_up.wait()


async def test_a_password_is_not_sent_without_tls(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("hidden\n")
    os.chmod(password, 0o600)
    async with a_mail_server() as (host, lines):
        rule = NotificationRule(
            on="drift", smtp=f"smtp://me@{host}", to=["a@b.c"], sender="d@e.f", password_file=str(password)
        )
        with pytest.raises(DeliveryError, match="offers no TLS"):
            await deliver(rule, ONE)

    assert not any("AUTH" in line or "hidden" in line for line in lines)


async def test_a_password_that_mail_servers_cannot_take_is_an_error_that_does_not_show_it(
    tmp_path: Path,
) -> None:
    password = tmp_path / "password"
    password.write_text("hidden\u00e4\n")
    async with a_mail_server() as (host, lines):
        rule = NotificationRule(
            on="drift", smtp=f"smtp://me@{host}", to=["a@b.c"], sender="d@e.f", password_file=str(password)
        )
        with pytest.raises(DeliveryError, match="must be ASCII") as caught:
            await deliver(rule, ONE)

    assert lines == []
    assert "\u00e4" not in str(caught.value)
