"""What must not be shown is not shown, wherever it stands."""

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.model.secret import MASK, Masker, Secret, mask_url


@pytest.mark.parametrize("show", [str, repr, "{}".format, lambda s: f"{s:>20}"])
def test_a_secret_shows_itself_as_a_mask(show: Any) -> None:
    assert "hunter2" not in show(Secret("hunter2"))


def test_a_secret_is_revealed_to_who_asks_and_not_pickled() -> None:
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
def test_a_long_secret_becomes_a_mask_wherever_it_stands(secret: str, before: str, after: str) -> None:
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
