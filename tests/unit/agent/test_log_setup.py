import io
import json
import logging
from collections.abc import Iterator

import pytest

from ccm_agent.agent.process.log_setup import JsonFormatter, TextFormatter, set_up_logging
from ccm_agent.model.limited_log import LINES_OF_ANY
from ccm_agent.model.secret import Masker


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """The root logger as it was, after a test that sets it up."""
    root, ours = logging.getLogger(), logging.getLogger("ccm_agent")
    before = (list(root.handlers), root.level, ours.level)
    yield
    root.handlers[:], root.level, ours.level = before[0], before[1], before[2]


def record(message: str, level: int = logging.WARNING, **fields: object) -> logging.LogRecord:
    one = logging.LogRecord("ccm_agent.agent", level, "file", 1, message, (), None)
    one.created = 1_795_262_400.5
    one.__dict__.update(fields)
    return one


@pytest.mark.parametrize(
    ("made", "line"),
    [
        pytest.param(record("no broker"), "2026-11-21T12:00:00Z WARN  no broker", id="bare"),
        pytest.param(
            record("a run has ended", logging.INFO, run="r1", state="changed", count=3),
            "2026-11-21T12:00:00Z INFO  a run has ended run=r1 state=changed count=3",
            id="with fields",
        ),
        pytest.param(
            record("no", logging.ERROR, reason='a "word" = x'),
            '2026-11-21T12:00:00Z ERROR no reason="a \\"word\\" = x"',
            id="quoted",
        ),
        pytest.param(
            record("no", reason="a\n2026 ERROR forged\x1b[2J"),
            '2026-11-21T12:00:00Z WARN  no reason="a\\n2026 ERROR forged\\x1b[2J"',
            id="what came from outside begins no line and moves no cursor",
        ),
        pytest.param(record("no", reason=""), '2026-11-21T12:00:00Z WARN  no reason=""', id="empty"),
    ],
)
def test_a_record_is_a_line_of_text(made: logging.LogRecord, line: str) -> None:
    assert TextFormatter().format(made) == line


def test_a_record_is_a_line_of_json() -> None:
    line = JsonFormatter().format(record("no broker", error=ValueError("x\ny"), count=3))

    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2026-11-21T12:00:00Z",
        "level": "warn",
        "message": "no broker",
        "logger": "ccm_agent.agent",
        "error": "x\ny",
        "count": 3,
    }


def test_a_traceback_follows_its_line() -> None:
    try:
        raise ValueError("x")
    except ValueError as err:
        made = record("a fault")
        made.exc_info = (ValueError, err, err.__traceback__)

    assert TextFormatter().format(made).endswith("ValueError: x")
    assert json.loads(JsonFormatter().format(made))["traceback"].endswith("ValueError: x")


def test_secrets_of_a_run_appear_in_no_log_line_and_no_traceback() -> None:
    secrets = Masker(["hunter22"])
    try:
        try:
            raise ValueError("hunter22 is wrong")
        except ValueError as err:
            raise RuntimeError('it is "hunter22"') from err
    except RuntimeError as err:
        made = record("set %s", pin="hunter22", seen={"hunter22": ["x hunter22"]}, error=err, count=3)
        made.args = ("hunter22",)
        made.exc_info = (RuntimeError, err, err.__traceback__)
    text, line = TextFormatter(secrets).format(made), JsonFormatter(secrets).format(made)

    assert "hunter22" not in text + line
    assert "pin=*** " in text
    assert 'RuntimeError: it is "***"' in text
    assert json.loads(line)["count"] == 3
    assert json.loads(line)["seen"] == {"***": ["x ***"]}


def test_a_log_that_is_set_up_masks_what_is_learned_later() -> None:
    stream, secrets = io.StringIO(), Masker()
    set_up_logging("info", "text", stream, secrets=secrets)

    Masker(teaches=secrets).learn("hunter22")
    logging.getLogger("ccm_agent.x").info("it is hunter22")
    logging.getLogger("aiohttp").error("GET https://me:pw@h/?token=abc failed")

    assert [line.split(" ", 2)[-1].strip() for line in stream.getvalue().splitlines()] == [
        "it is ***",
        "GET https://***@h/?token=*** failed",
    ]


def test_the_level_is_that_of_our_own_words_and_libraries_are_quieter() -> None:
    stream = io.StringIO()
    set_up_logging("info", "text", stream)

    logging.getLogger("ccm_agent.x").info("ours")
    logging.getLogger("ccm_agent.x").debug("too much")
    logging.getLogger("nats").info("theirs")
    set_up_logging("debug", "text", stream)
    logging.getLogger("ccm_agent.x").debug("more")

    assert [line.split(" ")[-1] for line in stream.getvalue().splitlines()] == ["ours", "more"]


def test_repeated_log_message_is_limited_per_minute() -> None:
    stream = io.StringIO()
    set_up_logging("info", "text", stream)

    for number in range(10 * LINES_OF_ANY):
        logging.getLogger("ccm_agent.somewhere").info("a run has ended", extra={"run": number})
    logging.getLogger("ccm_agent.somewhere").info("another message")

    assert stream.getvalue().count("a run has ended") == LINES_OF_ANY
    assert "another message" in stream.getvalue()
