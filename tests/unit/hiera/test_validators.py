from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.hiera import validators
from ccm_agent.hiera.validators import CLAIMS


@pytest.mark.parametrize(
    ("claim", "good", "bad"),
    [
        (
            validators.is_ip,
            ["10.0.0.1", "::", "fe80::1", "1:2:3:4:5:6:7::"],
            ["10.0.0.01", "10.0.1", "fe80::1%eth0", "10.0.0.0/8", "", "x"],
        ),
        (validators.is_ipv4, ["10.0.0.1", "::ffff:1.2.3.4"], ["::1", "x"]),
        (validators.is_ipv6, ["::1", "2001:db8::"], ["10.0.0.1", "::ffff:1.2.3.4"]),
        (validators.is_int, ["-5", "+5", "0005", "9" * 40], ["1_000", "0x10", "-", "١", "", "1.0", "1\n"]),
        (
            validators.is_float,
            ["1.5", "1", ".5", "5.", "-1.5e-3", "inf", "1p3"],
            ["1e", "0x10", "1.2.3", "", "."],
        ),
        (
            validators.is_duration,
            ["0", "10s", "3d", "2W", "1Y", "1.5h", ".5s", "-10s", "1h 30m", "about 10s"],
            ["", "00", "5", "1H", "10 s", "10minutes", "1.2.3s"],
        ),
        (
            validators.is_shell_safe,
            ["ls -l /tmp", "'x' \"y\"", "a\\b", "*", "", "a\n"],
            ["a;b", "$x", "`x`", "a|b", "a&b", "a>b", "a<b", "(", ")", "a\nb"],
        ),
        (
            validators.is_hostname,
            ["web1", "a.b", "123", "10.0.0.1"],
            ["-web", "web-", "web_1", "a.", "a..b", "", "a" * 64],
        ),
        (
            validators.is_fqdn,
            ["web1.example.com", "a.b.", "a.xn--p1ai"],
            ["web1", "10.0.0.1", "a.-com", "com.", "a.1b", "x.y\n"],
        ),
    ],
)
def test_a_claim_tells_good_from_bad(claim: Callable[[str], bool], good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not claim(text)] == []
    assert [text for text in bad if claim(text)] == []


def test_a_name_has_an_end() -> None:
    assert validators.is_hostname(".".join(["a" * 62] * 4))
    assert not validators.is_hostname(".".join(["a" * 63] * 4))


@given(st.text(max_size=40))
def test_every_claim_is_true_or_false_about_any_text(text: str) -> None:
    assert {claim(text) for claim in CLAIMS.values()} <= {True, False}
