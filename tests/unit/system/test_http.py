"""Where redirects lead, and where secrets may be sent."""

import pytest
from yarl import URL

from ccm_agent.model.errors import DownloadError
from ccm_agent.system.http.http import is_own, redirected


@pytest.mark.parametrize(
    ("url", "may"),
    [
        ("http://a.example/y", True),
        ("http://a.example:80/y", True),
        ("https://a.example/y", True),
        ("https://a.example:8443/y", False),
        ("http://a.example:8080/y", False),
        ("http://b.example/y", False),
        ("https://b.example/y", False),
        ("http://a.example.b.example/y", False),
    ],
)
def test_secrets_stay_with_host_and_port_or_move_to_its_https(url: str, may: bool) -> None:
    assert is_own(URL("http://a.example/x"), URL(url)) is may


def test_secrets_of_another_port_do_not_move_to_https() -> None:
    assert is_own(URL("http://a.example:8080/x"), URL("https://a.example/x")) is False


def test_secrets_do_not_move_from_https_to_http() -> None:
    assert is_own(URL("https://a.example/x"), URL("http://a.example/x")) is False


def test_a_redirect_from_https_to_http_is_not_followed() -> None:
    assert redirected("x", URL("https://a.example/x"), "//b.example/y") == URL("https://b.example/y")
    with pytest.raises(DownloadError) as caught:
        redirected("https://a.example/x", URL("https://a.example/x"), "http://b.example/y")

    assert caught.value.message == (
        "https://a.example/x: redirects from https to http at b.example, and this is not allowed"
    )
