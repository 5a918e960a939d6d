"""What must not be shown is not shown, wherever it stands."""

import base64
import json
import pickle
import shlex
import textwrap
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.model.secret import MASK, Masker, Secret, mask_url


@pytest.mark.parametrize("show", [str, repr, "{}".format, lambda s: f"{s:>20}"])
def test_a_secret_shows_itself_as_a_mask(show: Any) -> None:
    assert "hunter2" not in show(Secret("hunter2"))


def test_a_secret_is_revealed_to_the_requester_and_not_pickled() -> None:
    secret = Secret("hunter2")

    assert secret.reveal() == "hunter2"
    with pytest.raises(TypeError):
        pickle.dumps(secret)


def test_secrets_are_taken_out_of_keys_values_and_lists() -> None:
    masker = Masker(["hunter2", Secret("a longer hunter2 text")])

    masked = masker.value(
        {"hunter2": ["x hunter2 y", {"deep": "a longer hunter2 text!"}], "n": 2, "s": Secret("z")}
    )

    assert masked == {MASK: [f"x {MASK} y", {"deep": f"{MASK}!"}], "n": 2, "s": MASK}


def test_each_line_of_a_secret_is_masked_too() -> None:
    masker = Masker(["first line\nsecond line"])

    assert masker.text("error near 'second line'") == f"error near '{MASK}'"


def test_a_short_secret_is_masked_only_where_it_is_all_there_is() -> None:
    masker = Masker(["ab"])

    assert (masker.text("ab"), masker.text("about")) == (MASK, "about")


@given(st.text("abc123\n", min_size=4).filter(str.strip), st.text("xyz "), st.text("xyz "))
def test_a_long_secret_is_masked_everywhere(secret: str, before: str, after: str) -> None:
    assert Masker([secret]).text(before + secret + after) in (before + MASK + after, MASK)


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("https://user:pass@host/x?y", "https://***@host/x?y"),
        ("nats://token@host:4222", "nats://***@host:4222"),
        ("https://host/a@b", "https://host/a@b"),
        ("https://host:8080/a@b", "https://host:8080/a@b"),
        ("https://[2001:db8::5]:80/a@b", "https://[2001:db8::5]:80/a@b"),
        ("https://user:pa/ss@host/x", "https://***@host/x"),
        ("nats://user:/pass@host:4222", "nats://***@host:4222"),
        ("/no/url@all", "/no/url@all"),
    ],
)
def test_a_url_loses_its_credentials(url: str, masked: str) -> None:
    assert mask_url(url) == masked


SECRET = "pä\"ss\\wo'rd & 100%+ <x>/=~"
ENCODERS: dict[str, Callable[[str], str]] = {
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "base64 of more": lambda text: base64.b64encode(f"me:{text}!".encode()).decode(),
    "base64 of even more": lambda text: base64.b64encode(f"user:{text}".encode()).decode(),
    "base64 in lines": lambda text: "\n".join(
        textwrap.wrap(base64.b64encode(f"ab{text}".encode()).decode(), 10)
    ),
    "base64 in JSON in lines": lambda text: json.dumps(
        "\n".join(textwrap.wrap(base64.b64encode(text.encode()).decode(), 10))
    ),
    "hexadecimal": lambda text: text.encode().hex(),
    "HEXADECIMAL": lambda text: text.encode().hex().upper(),
    "a URL": lambda text: quote(text, safe=""),
    "a form": quote_plus,
    "JSON": json.dumps,
    "a shell's word": shlex.quote,
    "Python": repr,
}


@pytest.mark.parametrize("name", ENCODERS)
def test_a_secret_is_masked_in_each_of_its_encodings(name: str) -> None:
    written = ENCODERS[name](SECRET)

    shown = Masker([SECRET]).text(f"before {written} after")

    # of base64 in the midst of other bytes the characters at its ends hold bits of those as well
    left = shown.replace("before ", "").replace(" after", "").replace(MASK, "").strip("\"'")
    assert MASK in shown
    assert len(left) <= 10


def test_of_secrets_that_overlap_nothing_is_left_over() -> None:
    assert Masker(["abcdef", "defghi"]).text("x abcdefghi y") == f"x {MASK} y"


def test_the_end_of_a_secret_that_was_cut_in_two_is_masked_where_a_text_was_cut() -> None:
    masker = Masker(["a-very-long-secret"])

    assert masker.text("long-secret and more", is_cut=True) == f"{MASK} and more"
    assert masker.text("long-secret and more") == "long-secret and more"
    assert masker.text("ret", is_cut=True) == "ret"


def test_short_secret_is_masked_when_it_is_a_whole_line() -> None:
    assert Masker(["ab"]).text("about\nab \ncab") == f"about\n{MASK}\ncab"


@pytest.mark.parametrize("word", ["true", "False", " no ", "null", "", " \n "])
def test_common_words_are_not_secrets(word: str) -> None:
    masker = Masker([word])

    assert (masker.is_idle, masker.text(f"it is {word}")) == (True, f"it is {word}")


def test_numbers_are_masked_by_their_digits_and_as_values() -> None:
    masker = Masker()
    for number in (54321, 12.75, 7, True):
        masker.learn(number)

    assert masker.value({"pin": 54321, "n": 7, "on": True, "f": 12.75}) == {
        "pin": MASK,
        "n": 7,
        "on": True,
        "f": MASK,
    }
    assert masker.text("pin 54321, 7 times") == f"pin {MASK}, 7 times"


def test_ordinary_word_is_not_masked_in_names() -> None:
    masker = Masker()
    masker.learn("production", is_certain=False)

    assert masker.text("deployed to production") == f"deployed to {MASK}"
    assert masker.name("/etc/production.conf") == "/etc/production.conf"

    masker.learn("production")

    assert masker.name("/etc/production.conf") == f"/etc/{MASK}.conf"


def test_lines_of_a_secret_that_say_nothing_are_not_masked() -> None:
    masker = Masker(["{\n  key: abcdef\n}\ntrue\n"])

    assert masker.text("} true {") == "} true {"
    assert masker.text("key: abcdef") == MASK


def test_another_masker_learns_the_same_and_keeps_the_newest() -> None:
    process = Masker(limit=2)
    one = Masker(teaches=process)
    for secret in ("first-secret", "second-secret", "first-secret", "third-secret"):
        one.learn(secret)

    assert process.text("first-secret second-secret third-secret") == f"{MASK} second-secret {MASK}"
    assert one.text("second-secret") == MASK


def test_one_thread_masks_while_another_learns() -> None:
    masker = Masker()
    failed: list[BaseException] = []

    def mask() -> None:
        try:
            for _ in range(300):
                masker.text("some text of a log")
        except RuntimeError as err:  # "dictionary changed size during iteration"
            failed.append(err)

    threads = [threading.Thread(target=mask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(300):
        masker.learn(f"secret-{number}")
    for thread in threads:
        thread.join()

    assert failed == []
