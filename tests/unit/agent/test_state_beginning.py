"""Since when a node knows what it carried out."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from ccm_agent.agent.state.state_folder import LEDGER, state_began
from ccm_agent.agent.trust.authentication import BEFORE_STATE_MS, EarlierRequestError
from ccm_agent.bus.requests import SCHEDULES_STREAM
from ccm_agent.bus.subjects import due_subject, request_subject
from ccm_agent.model.ports import IncomingRequest
from ccm_agent.model.wire import MANIFEST_APPLY, NODE_PING
from tests.support.signing import FULL, Keyring, authenticator, now_ms

BODY = b'{"protocol":"x","run":"y"}'


def incoming(protocol: str, headers: dict[str, str], *, scheduled: bool = False) -> IncomingRequest:
    subject = request_subject(protocol, "all")
    return IncomingRequest(
        subject=subject, protocol=protocol, scope="all", body=BODY, headers=headers, scheduled=scheduled
    )


def test_state_begins_with_its_log_of_requests(tmp_path: Path) -> None:
    assert state_began(tmp_path, 1000) == 1000
    (tmp_path / LEDGER).touch()

    assert state_began(tmp_path, 2000) == 1000
    (tmp_path / LEDGER).unlink()
    assert state_began(tmp_path, 3000) == 3000


def test_log_of_an_earlier_version_began_at_an_unknown_time(tmp_path: Path) -> None:
    (tmp_path / LEDGER).touch()

    assert state_began(tmp_path, 2000) == 0


@pytest.mark.parametrize(
    ("protocol", "age_ms", "is_refused"),
    [
        pytest.param(MANIFEST_APPLY, BEFORE_STATE_MS + 1000, True, id="before"),
        pytest.param(MANIFEST_APPLY, BEFORE_STATE_MS - 1000, False, id="by a clock that is behind"),
        pytest.param(MANIFEST_APPLY, -1000, False, id="afterwards"),
        pytest.param(NODE_PING, BEFORE_STATE_MS + 1000, False, id="a question"),
    ],
)
async def test_request_that_was_signed_before_the_state_began_is_refused(
    tmp_path: Path, protocol: str, age_ms: int, is_refused: bool
) -> None:
    keys = Keyring(lambda: now_ms() - 60_000)
    ann = keys.operator("ann", **FULL)
    node = authenticator(tmp_path, keys.trust())
    sent = incoming(protocol, ann.request(request_subject(protocol, "all"), BODY))
    node.began_ms = now_ms() - 60_000 + age_ms

    if is_refused:
        with pytest.raises(EarlierRequestError, match="was signed"):
            await node.request(sent)
    else:
        assert (await node.request(sent)).name == "ann"


@pytest.mark.parametrize("late_s", [60, -60], ids=["before", "afterwards"])
async def test_schedule_counts_by_the_time_at_which_it_was_due(tmp_path: Path, late_s: int) -> None:
    keys = Keyring()
    ann = keys.operator("ann", **FULL)
    node = authenticator(tmp_path, keys.trust())
    subject = request_subject(MANIFEST_APPLY, "all")
    signed = ann.schedule(subject, BODY, name="n", when="@every 1h", zone="", expires_ms=now_ms() + 10**7)
    moment = datetime.now(UTC)
    headers = signed | {
        "Nats-Stream": SCHEDULES_STREAM,
        "Nats-Subject": due_subject(subject),
        "Nats-Sequence": "1",
        "Nats-Time-Stamp": moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    node.began_ms = now_ms() + late_s * 1000
    sent = incoming(MANIFEST_APPLY, headers, scheduled=True)

    if late_s > 0:
        with pytest.raises(EarlierRequestError, match="was due"):
            await node.request(sent)
    else:
        assert (await node.request(sent)).name == "ann"
