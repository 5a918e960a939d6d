"""Which names say that a value is secret, and what of a URL is shown."""

from __future__ import annotations

import pytest

from ccm_agent.model.formats.urls import looks_secret, mask_url, mask_urls, secrets_of_url


@pytest.mark.parametrize(
    "name",
    [
        *("password", "DB_PASSWORD", "dbPassword", "MYSQL_PWD", "PASS", "db.pass", "passphrase", "token", "X-Auth-Token"),
        *("api_key", "apikey", "apiKeyId", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "client-secret", "private_key"),
        *("X-Amz-Signature", "X-Amz-Credential", "credentials", "jwt", "OTP", "auth", "Authorization", "set-cookie"),
    ],
)  # fmt: skip
def test_a_secret_value_is_recognized_by_its_name(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name", ["passenger", "author", "key", "path", "keyboard", "pinned", "HOME", "url", "compass", "spin", ""]
)
def test_an_ordinary_name_is_not_secret(name: str) -> None:
    assert not looks_secret(name)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://h/x?token=abc", "https://h/x?token=***"),
        ("https://h/x?a=1&access_token=abc&b=2", "https://h/x?a=1&access_token=***&b=2"),
        ("https://h/x?a=1;sig=abc", "https://h/x?a=1;sig=***"),
        ("https://h?password=abc", "https://h?password=***"),
        ("https://h:8080?password=a/b", "https://h:8080?password=***"),
        ("https://me:pw@h/x?token=abc", "https://***@h/x?token=***"),
        ("https://h/x?X-Amz-Algorithm=A&X-Amz-Credential=AK%2F1&X-Amz-Signature=ff", "https://h/x?X-Amz-Algorithm=A&X-Amz-Credential=***&X-Amz-Signature=***"),
        ("https://h/x?X-Goog-Signature=ff", "https://h/x?X-Goog-Signature=***"),
        ("https://h/x?sv=2024&sig=a%2Bb%3D", "https://h/x?sv=2024&sig=***"),
        ("https://h/x?Expires=1&Signature=a&Key-Pair-Id=K&Policy=p", "https://h/x?Expires=1&Signature=***&Key-Pair-Id=K&Policy=***"),
        ("https://h/x?key=AIza", "https://h/x?key=***"),
        ("https://h/x?pass%77ord=abc", "https://h/x?pass%77ord=***"),
        ("https://h/x?client[secret]=abc", "https://h/x?client[secret]=***"),
        ("https://h/x#access_token=abc", "https://h/x#access_token=***"),
        ("https://h/x?page=2&sort=name", "https://h/x?page=2&sort=name"),
        ("https://h/x?token=", "https://h/x?token="),
        ("https://h/x.tar.gz", "https://h/x.tar.gz"),
    ],
)  # fmt: skip
def test_of_a_query_secret_values_are_masked(url: str, shown: str) -> None:
    assert mask_url(url) == shown
    assert mask_urls(f"got {url} here") == f"got {shown} here"


def test_urls_are_found_in_commands_and_outputs() -> None:
    text = "curl -u x 'https://me:s3cret@h/x?sig=abc' && wget \"h/x?token=def&n=1\" # nats://t0ken@h:4222"

    assert mask_urls(text) == (
        "curl -u x 'https://***@h/x?sig=***' && wget \"h/x?token=***&n=1\" # nats://***@h:4222"
    )


def test_secrets_in_urls_are_learned_encoded_and_decoded() -> None:
    text = "https://me:p%40ss@h/?sig=a%2Bb+c&page=2 https://git@h/x"

    assert set(secrets_of_url(text)) == {"p%40ss", "p@ss", "a%2Bb+c", "a+b+c", "a+b c"}
