"""The connection to a real broker: credentials, refusals, losses and returns."""

from __future__ import annotations

import asyncio
import logging
import socket

import pytest

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import replaced, settings_for, settings_from_context
from ccm_agent.model.errors import BusDeniedError, BusSetupError, BusUnavailableError, ProtocolError
from ccm_agent.model.secret import Secret
from tests.support.nats_keys import operator_mode, user_seed
from tests.support.nats_server import (
    WAIT_S,
    Heard,
    prepare,
    running_cluster,
    running_server,
    settings,
)

pytestmark = pytest.mark.nats

USERS = """
authorization {
  users = [
    { user: web1, password: "s3cret:@/",
      permissions: { publish: ["open.>"], subscribe: ["mine.>", "_INBOX_web1.>"] } }
    { user: op, password: "0perat0r" }
  ]
}
"""


async def test_a_broker_that_is_missing_is_an_error_with_its_address_at_once() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"nats://127.0.0.1:{unused.getsockname()[1]}"

        async with asyncio.timeout(WAIT_S), Connection(settings_for(url)) as connection:
            with pytest.raises(BusUnavailableError, match=url):
                await connection.connect_now()


async def test_a_host_that_does_not_exist_is_an_error_with_its_name() -> None:
    async with asyncio.timeout(WAIT_S), Connection(settings_for("nats://nowhere.invalid")) as connection:
        with pytest.raises(BusUnavailableError, match=r"nowhere\.invalid:4222"):
            await connection.connect_now()


async def test_the_broker_may_come_later(tmp_path) -> None:
    with running_server(tmp_path) as server:
        server.stop()

        async with asyncio.timeout(WAIT_S), Connection(settings(server, "web1")) as connection:
            with pytest.raises(BusUnavailableError):
                await connection.connect_now()
            await asyncio.to_thread(server.start)
            await connection.wait_connected()

            assert connection.last_error is None
            assert connection.server.version >= (2, 14, 0)
            assert connection.server.has_jetstream


async def test_the_second_server_is_taken_when_the_first_is_down(tmp_path) -> None:
    with running_server(tmp_path / "a") as down, running_server(tmp_path / "b") as up:
        down.stop()

        async with Connection(settings([down, up], "web1")) as connection:
            await connection.connect_now()

            assert connection.server.url == up.url


async def test_a_wrong_password_is_refused_and_never_shown(tmp_path, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    with running_server(tmp_path, USERS) as server:
        url = server.url.replace("nats://", "nats://web1:wr0ng-pass@")

        async with Connection(settings_for(url, pause_s=0.05)) as connection:
            with pytest.raises(BusDeniedError) as caught:
                await connection.connect_now()

    assert "the user is web1" in str(caught.value)
    assert "wr0ng-pass" not in str(caught.value) + caplog.text + repr(connection.settings)


@pytest.mark.parametrize("way", ["url", "fields"])
async def test_user_and_password_are_taken_from_url_or_settings(tmp_path, way) -> None:
    with running_server(tmp_path, USERS) as server:
        if way == "url":
            chosen = settings_for(server.url.replace("//", "//web1:s3cret%3A%40%2F@"), identity="web1")
        else:
            chosen = settings(server, "web1", user="web1", password=Secret("s3cret:@/"))

        async with Connection(chosen) as connection:
            await connection.connect_now()

            assert connection.server.url == server.url


async def test_a_token_opens_a_broker(tmp_path) -> None:
    with running_server(tmp_path, 'authorization { token: "t0ken" }') as server:
        async with Connection(settings(server, "web1", token=Secret("t0ken"))) as connection:
            await connection.connect_now()

        async with Connection(settings(server, "web1", token=Secret("other"))) as connection:
            with pytest.raises(BusDeniedError, match="a token was sent"):
                await connection.connect_now()


async def test_an_nkey_opens_a_broker(tmp_path) -> None:
    seed, public = user_seed()
    path = tmp_path / "web1.nk"
    path.write_bytes(seed + b"\n")

    with running_server(tmp_path, f"authorization {{ users = [ {{ nkey: {public} }} ] }}") as server:
        async with Connection(settings(server, "web1", nkey=str(path))) as connection:
            await connection.connect_now()


async def test_credentials_of_a_file_open_a_broker(tmp_path) -> None:
    extra, creds = operator_mode()
    path = tmp_path / "web1.creds"
    path.write_text(creds)

    with running_server(tmp_path, extra) as server:
        async with Connection(settings(server, "web1", creds=str(path))) as connection:
            await connection.connect_now()


async def test_credentials_that_arrive_later_are_read_then(tmp_path) -> None:
    extra, creds = operator_mode()
    path = tmp_path / "web1.creds"

    with running_server(tmp_path, extra) as server:
        async with (
            asyncio.timeout(WAIT_S),
            Connection(settings(server, "web1", creds=str(path), pause_s=0.05)) as connection,
        ):
            with pytest.raises(BusSetupError, match=r"web1\.creds"):
                await connection.connect_now()
            await asyncio.to_thread(path.write_text, creds)
            await connection.wait_connected()


async def test_a_context_of_the_nats_program_leads_to_the_broker(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    contexts = tmp_path / "nats" / "context"
    contexts.mkdir(parents=True)

    with running_server(tmp_path, USERS) as server:
        (contexts / "site.json").write_text(
            f'{{"url": "{server.url}", "user": "op", "password": "0perat0r", "nsc": ""}}'
        )
        (tmp_path / "nats" / "context.txt").write_text("site\n")

        async with Connection(settings_from_context(identity="op")) as connection:
            await connection.connect_now()


async def test_a_broker_without_authentication_elsewhere_is_refused(tmp_path, monkeypatch) -> None:
    from ccm_agent.bus.connection.client import BusClient

    monkeypatch.setattr(BusClient, "is_loopback", False)
    with running_server(tmp_path) as server:
        async with Connection(settings(server, "web1")) as connection:
            with pytest.raises(BusDeniedError, match="insecure: true"):
                await connection.connect_now()

        async with Connection(settings(server, "web1", insecure=True)) as connection:
            await connection.connect_now()


async def test_a_broker_elsewhere_without_tls_is_refused(tmp_path, monkeypatch) -> None:
    from ccm_agent.bus.connection.client import BusClient

    monkeypatch.setattr(BusClient, "is_loopback", False)
    with running_server(tmp_path, USERS) as server:
        chosen = settings(server, "op", user="op", password=Secret("0perat0r"))
        async with Connection(chosen) as connection:
            with pytest.raises(BusDeniedError, match=r"does not offer TLS.*insecure: true"):
                await connection.connect_now()

        async with Connection(replaced(chosen, insecure=True)) as connection:
            await connection.connect_now()


@pytest.mark.parametrize("kind", ["creds", "password"])
async def test_a_process_that_takes_the_brokers_port_commands_no_node_with_credentials(
    tmp_path, kind
) -> None:
    if kind == "creds":
        (tmp_path / "web1.creds").write_text(operator_mode()[1])
        proof = {"creds": str(tmp_path / "web1.creds")}
    else:
        proof = {"user": "web1", "password": Secret("s3cret")}

    with running_server(tmp_path / "impostor") as server:
        async with Connection(settings(server, "web1", **proof)) as connection:
            with pytest.raises(
                BusDeniedError,
                match="requires no credentials, but you supplied some, so it may be an impostor",
            ):
                await connection.connect_now()

            assert not connection.connected


async def test_a_changed_password_closes_the_connection_and_the_right_one_brings_it_back(tmp_path) -> None:
    with running_server(tmp_path, USERS) as server:
        chosen = settings(server, "op", user="op", password=Secret("0perat0r"), pause_s=0.05)
        async with asyncio.timeout(WAIT_S), Connection(chosen) as connection:
            await connection.connect_now()

            await asyncio.to_thread(server.reload, USERS.replace("0perat0r", "changed"))
            await connection.wait_lost()
            with pytest.raises(BusUnavailableError):
                await connection.publish("any", b"")
            await asyncio.to_thread(server.reload, USERS)
            await connection.wait_connected()

            assert connection.reconnects == 1


async def test_a_lost_broker_fails_every_question_at_once(tmp_path) -> None:
    with running_server(tmp_path) as server:
        async with Connection(settings(server, "web1", answer_s=60.0)) as connection:
            await connection.connect_now()
            await connection.subscribe(["silent"], lambda _message: None)
            asking = asyncio.ensure_future(connection.request("silent"))
            await connection.publish("other", b"", confirm=True)

            await asyncio.to_thread(server.kill)

            async with asyncio.timeout(WAIT_S):
                with pytest.raises(BusUnavailableError):
                    await asking


async def test_a_lost_broker_fails_pending_confirmations_at_once(tmp_path) -> None:
    with running_server(tmp_path) as server:
        async with asyncio.timeout(WAIT_S), Connection(settings(server, "web1", answer_s=60.0)) as connection:
            await connection.connect_now()
            server.pause()
            confirming = asyncio.ensure_future(connection.publish("any", b"x", confirm=True))
            subscribing = asyncio.ensure_future(connection.subscribe(["any"], lambda _message: None))
            await asyncio.sleep(0)

            await asyncio.to_thread(server.kill)

            with pytest.raises(BusUnavailableError):
                await confirming
            assert len(await subscribing) == 1  # it stands, and begins with the next connection


async def test_a_silent_broker_counts_as_lost(tmp_path) -> None:
    with running_server(tmp_path) as server:
        quick = settings(server, "web1", ping_s=0.05, connect_s=0.2)
        async with asyncio.timeout(WAIT_S), Connection(quick) as connection:
            await connection.connect_now()

            server.pause()
            await connection.wait_lost()
            server.resume()
            await connection.wait_connected()

            await connection.publish("any", b"", confirm=True)


async def test_a_question_without_an_answer_ends(tmp_path) -> None:
    with running_server(tmp_path) as server:
        async with Connection(settings(server, "web1", answer_s=0.05)) as connection:
            await connection.connect_now()
            await connection.subscribe(["silent"], lambda _message: None)

            with pytest.raises(BusUnavailableError, match="no answer"):
                await connection.request("silent")


async def test_a_request_without_responders_raises(tmp_path) -> None:
    with running_server(tmp_path) as server:
        async with Connection(settings(server, "web1")) as connection:
            await connection.connect_now()

            with pytest.raises(BusUnavailableError, match="no stream stores this subject"):
                await connection.request("nobody")


async def test_a_cancelled_question_does_not_hurt_the_connection(tmp_path) -> None:
    with running_server(tmp_path) as server:
        async with Connection(settings(server, "web1")) as connection:
            await connection.connect_now()

            for turns in range(40):
                doing = asyncio.ensure_future(connection.publish("any", b"", confirm=True))
                for _ in range(turns % 10):
                    await asyncio.sleep(0)
                doing.cancel()
                await asyncio.wait([doing])
            await connection.publish("any", b"", confirm=True)

            assert connection.reconnects == 0
            assert connection.connected


async def test_a_confirmed_subscription_misses_nothing(tmp_path) -> None:
    with running_server(tmp_path) as server:
        async with Connection(settings(server, "a")) as one, Connection(settings(server, "b")) as other:
            await one.connect_now()
            await other.connect_now()

            for number in range(100):
                heard = Heard()
                await one.subscribe([f"s.{number}"], heard)
                await other.publish(f"s.{number}", b"x")
                await heard.wait(1)


async def test_a_publish_that_is_not_allowed_is_an_error_when_confirmed(tmp_path) -> None:
    with running_server(tmp_path, USERS) as server:
        chosen = settings(server, "web1", user="web1", password=Secret("s3cret:@/"))
        async with Connection(chosen) as connection:
            await connection.connect_now()

            await connection.publish("open.door", b"", confirm=True)
            with pytest.raises(BusDeniedError, match=r"Closed\.Door: .*web1 to publish"):
                await connection.publish("Closed.Door", b"", confirm=True)

            assert connection.denials == 1


async def test_a_question_that_is_not_allowed_fails_at_once(tmp_path) -> None:
    with running_server(tmp_path, USERS) as server:
        chosen = settings(server, "web1", user="web1", password=Secret("s3cret:@/"), answer_s=60.0)
        async with asyncio.timeout(WAIT_S), Connection(chosen) as connection:
            await connection.connect_now()

            with pytest.raises(BusDeniedError):
                await connection.request("$JS.API.STREAM.INFO.CCM_EVENTS")


async def test_credentials_that_receive_no_answers_are_an_error_at_once(tmp_path) -> None:
    with running_server(tmp_path, USERS) as server:
        chosen = settings(server, "eve", user="web1", password=Secret("s3cret:@/"), answer_s=60.0)
        async with asyncio.timeout(WAIT_S), Connection(chosen) as connection:
            with pytest.raises(BusDeniedError, match="does not deliver answers for `eve`"):
                await connection.connect_now()


async def test_a_request_to_a_stream_without_jetstream_raises(tmp_path) -> None:
    with running_server(tmp_path, "jetstream: disabled") as server:
        async with Connection(settings(server, "web1")) as connection:
            await connection.connect_now()

            with pytest.raises(BusUnavailableError, match="JetStream is off"):
                await connection.request("$JS.API.DIRECT.GET.KV_CCM_DATA")


async def test_a_subscription_that_is_not_allowed_is_an_error_and_not_kept(tmp_path) -> None:
    with running_server(tmp_path, USERS) as server:
        chosen = settings(server, "web1", user="web1", password=Secret("s3cret:@/"))
        async with Connection(chosen) as connection:
            await connection.connect_now()

            await connection.subscribe(["mine.door"], lambda _message: None)
            with pytest.raises(BusDeniedError, match="subscribe"):
                await connection.subscribe(["mine.window", "Yours.door"], lambda _message: None)


@pytest.mark.parametrize(
    "headers", [{"A": "b\r\nNats-Stream: CCM_SCHEDULES"}, {"A": "b\nC: d"}, {"A\r\nB": "c"}]
)
async def test_a_header_that_would_be_two_is_not_sent(tmp_path, headers) -> None:
    with running_server(tmp_path) as server:
        async with Connection(settings(server, "web1")) as connection:
            await connection.connect_now()

            with pytest.raises(ProtocolError, match="a header contains a line break"):
                await connection.publish("any", b"x", headers, confirm=True)


async def test_a_message_larger_than_the_broker_takes_is_refused_here(tmp_path) -> None:
    with running_server(tmp_path, "max_payload: 2048") as server:
        async with Connection(settings(server, "web1")) as connection:
            await connection.connect_now()

            await connection.publish("any", b"x" * 2048, confirm=True)
            with pytest.raises(ProtocolError, match="2048"):
                await connection.publish("any", b"x" * 2049)
            with pytest.raises(ProtocolError):
                await connection.publish("any", b"x" * 2040, {"Header": "counts too"})
            await connection.publish("any", b"", confirm=True)

            assert connection.reconnects == 0


async def test_a_callback_that_fails_does_not_end_its_subscription(tmp_path, caplog) -> None:
    heard = Heard()

    def fail_once(message) -> None:
        heard(message.body)
        if len(heard.items) == 1:
            raise RuntimeError("first")

    with running_server(tmp_path) as server:
        async with Connection(settings(server, "web1")) as connection:
            await connection.connect_now()
            await connection.subscribe(["any"], fail_once)

            await connection.publish("any", b"one")
            await connection.publish("any", b"two")

            assert await heard.wait(2) == [b"one", b"two"]
    assert "a message could not be handled" in caplog.text


async def test_a_hook_that_fails_does_not_end_the_connection(tmp_path, caplog) -> None:
    heard = Heard()

    def fail() -> None:
        raise RuntimeError("hook")

    with running_server(tmp_path) as server:
        async with Connection(settings(server, "web1")) as connection:
            connection.on_connect(fail)
            connection.on_connect(lambda: heard("other"))
            await connection.connect_now()
            await connection.publish("any", b"", confirm=True)

            assert await heard.wait(1) == ["other"]
            assert connection.reconnects == 0
    assert "a hook of the connection failed" in caplog.text


async def test_the_last_published_message_is_sent_before_the_connection_ends(tmp_path) -> None:
    heard = Heard()
    with running_server(tmp_path) as server:
        async with Connection(settings(server, "a")) as reader:
            await reader.connect_now()
            await reader.subscribe(["goodbye"], lambda message: heard(message.body))

            async with Connection(settings(server, "b")) as writer:
                await writer.connect_now()
                await writer.publish("goodbye", b"x")

            assert await heard.wait(1) == [b"x"]


async def test_leaving_is_quick_when_the_broker_is_silent(tmp_path) -> None:
    with running_server(tmp_path) as server:
        async with asyncio.timeout(WAIT_S), Connection(settings(server, "web1")) as connection:
            await connection.connect_now()
            server.pause()
        server.resume()


async def test_nothing_is_left_running_after_a_connection_ended(tmp_path) -> None:
    with running_server(tmp_path) as server:
        async with Connection(settings(server, "web1")) as connection:
            await connection.connect_now()
            await connection.subscribe(["a", "b"], lambda _message: None)
            await asyncio.to_thread(server.kill)
            await connection.wait_lost()
            await asyncio.to_thread(server.start)
            await connection.wait_connected()

    left = {task.get_name() for task in asyncio.all_tasks()} - {asyncio.current_task().get_name()}
    assert left == set()


async def test_a_connection_lives_through_the_loss_of_its_server_in_a_cluster(tmp_path) -> None:
    with running_cluster(tmp_path) as servers:
        await prepare(servers)
        by_url = {server.url: server for server in servers}
        heard, back = Heard(), Heard()
        async with asyncio.timeout(60), Connection(settings(servers[0], "web1")) as connection:
            await connection.connect_now()
            await connection.subscribe(["any"], lambda message: heard(message.body))
            assert connection.server.cluster == "test"
            connection.on_connect(lambda: back(connection.server.url))

            # Only the first server was named; the others were learned from it.
            await asyncio.to_thread(by_url[servers[0].url].kill)
            [url] = await back.wait(1)

            assert url in {servers[1].url, servers[2].url}
            async with Connection(settings(by_url[url], "op")) as operator:
                await operator.connect_now()
                await operator.publish("any", b"x")
                assert await heard.wait(1) == [b"x"]


async def test_settings_with_no_server_at_the_other_end_are_shown_without_secrets() -> None:
    chosen = replaced(settings_for("nats://user:hidden@127.0.0.1:1"), password=Secret("hidden"))

    assert "hidden" not in repr(chosen) + chosen.address + str(chosen.servers)
