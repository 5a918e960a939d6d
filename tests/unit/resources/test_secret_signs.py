"""Files with signs of a secret."""

from __future__ import annotations

import pytest

from ccm_agent.resources.secret_signs import find_setting_sign, find_sign


@pytest.mark.parametrize(
    ("content", "sign"),
    [
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl", "a private key"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE", "a private key"),
        ("-----BEGIN PGP PRIVATE KEY BLOCK-----\n", "a private key"),
        ("AGE-SECRET-KEY-1QQQ", "a private key"),
        ("seed: SUAM" + "A" * 54, "a NATS seed"),
        ("key = AKIAIOSFODNN7EXAMPLE", "an access key"),
        ("ghp_" + "a" * 36, "an access key"),
        ("xoxb-1234-5678-abcd", "an access key"),
        ("AIza" + "a" * 35, "an access key"),
        ("Authorization: Bearer abcdefgh", "an access key"),
        ('proxy_set_header Authorization "Basic dXNlcjpwYXNz";', "an access key"),
        ("user:{SSHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", "a password hash"),
        ("pwd='hunter2'", "a password or token"),
        ("root:$6$salt1234$hash:19000::", "a password hash"),
        ("user:$apr1$abcd1234$x", "a password hash"),
        ("db = postgres://app:hunter2@db/app", "a URL with a password"),
        ("deb https://0a1b2c3d4e5f:@packages.example.net/x", "a URL with a password"),
        ("url = https://0a1b2c3d4e5f@packages.example.net/x", "a URL with a password"),
        ("password = hunter2", "a password or token"),
        (f"ExecStart=/usr/bin/docker run {'-v /a:/a ' * 30} -e DB_PASSWORD=hunter2", "a password or token"),
        ("ExecStart=/bin/sh -c 'cd /; TOKEN=hunter2 run'", "a password or token"),
        ("color = #fff password = hunter2", "a password or token"),
        ("  db_password: 'hunter2'", "a password or token"),
        ('{"api_key": "12345678"}', "a password or token"),
        ("requirepass hunter2", "a password or token"),
        ("SECRET_KEY_BASE=abcdef", "a password or token"),
        ("wpa-psk hunter22", "a password or token"),
        ("auth_token:hunter2", "a password or token"),
        (f"session: eyJ{'a' * 20}.eyJ{'b' * 20}.{'c' * 43}", "a token"),
        ("db.example.com:5432:*:app:hunter2", "a password of PostgreSQL"),
        ("*:*:*:postgres:hunter2", "a password of PostgreSQL"),
    ],
)
def test_a_sign_of_a_secret_is_found(content: str, sign: str) -> None:
    assert find_sign(f"# a comment\n{content}\n".encode(), 0o644) == f"contains what looks like {sign}"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_sign_in_utf_16_is_found(encoding: str) -> None:
    mark = {"utf-16": "", "utf-16-le": "\ufeff", "utf-16-be": "\ufeff"}[encoding]
    content = f"{mark}[server]\r\npassword = hunter2\r\n".encode(encoding)

    assert find_sign(content, 0o644) == "contains what looks like a password or token"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "listen 127.0.0.1:8080\n10.0.0.1:80:10.0.0.2:8080\n",
        "root:x:0:0:root:/root:/bin/bash\n",
        "eyJhbGciOiJub25lIn0\n",
        "server { listen 80; root /var/www; }\n",
        "-----BEGIN CERTIFICATE-----\nMIIC\n",
        "# password = hunter2\n",
        "a = b  # password = hunter2\n   ; password = hunter2\n",
        "PasswordAuthentication no\n",
        "see https://example.org/ and mail a.user@example.org\n",
        "https://${TOKEN_OF_USER}@example.org/\n",
        "ssl_certificate_key /etc/ssl/private/site.pem;\n",
        "password = ${DB_PASSWORD}\n",
        "password = \n",
        "url = https://example.org/a:b@c\n",
        "\xff\xfe\x00",
    ],
)
def test_usual_configuration_has_none(content: str) -> None:
    assert find_sign(content.encode("latin-1"), 0o644) == ""


def test_what_others_cannot_read_is_private() -> None:
    assert find_sign(b"plain", 0o640) == "is private (mode 0640)"


def test_a_large_line_is_searched_in_bounded_time() -> None:
    # a pattern that backtracks would not come to an end
    assert find_sign(b"pass" * 500_000, 0o644) == ""
    assert find_sign(b"password=" * 200_000, 0o644) != ""
    assert find_sign(b"#" + b"password=hunter2 " * 200_000, 0o644) == ""
    assert find_sign(b"#password=hunter2\n" * 100_000, 0o644) == ""
    assert find_sign(b"x # " + b"password=hunter2 " * 200_000, 0o644) == ""
    assert find_sign(b"a://" * 500_000, 0o644) == ""
    assert find_sign(b"https://aaaaaaaa" * 100_000, 0o644) == ""
    assert find_sign(b"\n" * 2_000_000, 0o644) == ""
    assert find_sign(b"eyJaaaaaaaaa." * 200_000, 0o644) == ""
    assert find_sign(b"a:123456" * 400_000, 0o644) == ""


TOKEN = "contains what looks like a password or token"
KEY = "contains what looks like a key"


@pytest.mark.parametrize(
    ("name", "value", "sign"),
    [
        ("port", 8080, ""),
        ("host", "db.example.net", ""),
        ("password", "", ""),
        ("token", None, ""),
        ("use_password", True, ""),
        ("path", "/usr/local/lib/Python3/SitePackages", ""),
        ("DB_PASS", "abc", TOKEN),
        ("PGPASSWORD", "/x9", TOKEN),
        ("pin", 1234, TOKEN),
        ("secrets", {"a": {"b": "x"}}, TOKEN),
        ("users", [{"name": "a"}, {"name": "b", "pwd": "x"}], TOKEN),
        ("SESSION_KEY", "x", TOKEN),
        ("npm._auth", "eDp5", TOKEN),
        ("value", "Zm9vYmFyQmF6MTIzNDU2Nzg5", KEY),
        ("value", "0123456789abcdef" * 2, KEY),
        ("url", "https://a:hunter2@b.example", "contains what looks like a URL with a password"),
        ("args", ["--verbose", "--password=hunter2"], TOKEN),
        ("args", "# password=hunter2", TOKEN),
        ("args", ["--password", "hunter2"], TOKEN),
        ("args", ["--port", "8080"], ""),
        ("env", [{"name": "DB_PASSWORD", "value": "hunter2"}], TOKEN),
        ("env", [{"name": "DB_HOST", "value": "db1"}], ""),
        ("bindpw", "hunter2", TOKEN),
        ("clients", {"ghp_" + "a1" * 18: "bob"}, "contains what looks like an access key"),
        ("lone", "\ud800", ""),
    ],
)
def test_a_setting_is_judged_by_its_name_and_value(name: str, value: object, sign: str) -> None:
    assert find_setting_sign(name, value) == sign


def test_each_part_of_a_nested_value_is_judged_once() -> None:
    value: object = "x"
    for _ in range(100):
        value = {"name": "a", "key": "b", "value": value}

    # a part that is judged twice at each level would not come to an end
    assert find_setting_sign("env", value) == ""
