"""Lines of authorized_keys: what is a key, and which lines a file gets."""

from __future__ import annotations

import base64

import pytest

from ccm_agent.resources.user.key_lines import merge_lines, parse_line, shown_lines


def key(seed: int, kind: str = "ssh-ed25519") -> str:
    """A key as ssh-keygen writes it, without a comment."""
    name = kind.encode()
    blob = len(name).to_bytes(4, "big") + name + (32).to_bytes(4, "big") + bytes([seed]) * 32
    return f"{kind} {base64.b64encode(blob).decode()}"


A, B, C = key(1), key(2), key(3)


@pytest.mark.parametrize(
    ("line", "options", "comment"),
    [
        (A, "", ""),
        (f"{A} alice@laptop with words", "", "alice@laptop with words"),
        (f'command="echo \\"a b\\"",no-pty {A} x', 'command="echo \\"a b\\"",no-pty', "x"),
        (f'from="10.0.0.0/8"\t{A}', 'from="10.0.0.0/8"', ""),
        (key(1, "sk-ssh-ed25519@openssh.com"), "", ""),
        (f"no-pty\t{A}\tx y".replace(" AAAA", "\t AAAA"), "no-pty", "x y"),
        (key(1, "ecdsa-sha2-nistp256"), "", ""),
        (key(1, "ssh-ed25519-cert-v01@openssh.com"), "", ""),
    ],
)
def test_a_line_has_options_key_and_comment(line: str, options: str, comment: str) -> None:
    parsed = parse_line(line)

    assert parsed is not None
    assert (parsed.options, parsed.comment) == (options, comment)


@pytest.mark.parametrize(
    "line",
    [
        "", "# comment", "ssh-ed25519", "ssh-ed25519 ", "ssh-ed25519 AAAA", "AAAAC3NzaC1lZDI1NTE5", "alice@laptop",
        A.replace("ssh-ed25519", "ssh-rsa"), f'command="unclosed {A}', A[:-4] + "!!!!", f"{A.split()[1]} ssh-ed25519",
    ],
)  # fmt: skip
def test_anything_else_is_no_key(line: str) -> None:
    assert parse_line(line) is None


@pytest.mark.parametrize(
    ("found", "wanted", "is_exclusive", "after"),
    [
        pytest.param([], [A], False, [A], id="the first key"),
        pytest.param([A, "# c", B], [C], False, [A, "# c", B, C], id="a further key"),
        pytest.param([f"{A} old"], [f"{A} new"], False, [f"{A} old"], id="another comment is the same key"),
        pytest.param(
            [A, B], [f"restrict {A}"], False, [B, f"restrict {A}"], id="restrictions replace the free key"
        ),
        pytest.param(
            [A.replace(" ", "\t")],
            [f"restrict {A}"],
            False,
            [f"restrict {A}"],
            id="a free key with tabs, too",
        ),
        pytest.param([f"restrict {A}"], [A], False, [A], id="and the other way round"),
        pytest.param(["nonsense"], [A], False, ["nonsense", A], id="unknown lines stay"),
        pytest.param([A, B], [B], True, [B], id="exactly these"),
        pytest.param([A], [], True, [], id="none"),
        pytest.param([], [A, A, "# c", "# c"], False, [A, "# c"], id="each line once"),
    ],
)
def test_lines_are_merged(found: list[str], wanted: list[str], is_exclusive: bool, after: list[str]) -> None:
    merged = merge_lines(found, wanted, is_exclusive=is_exclusive)

    assert merged == after
    assert merge_lines(merged, wanted, is_exclusive=is_exclusive) == merged


def test_a_diff_shows_fingerprints() -> None:
    # ssh-keygen -lf of OpenSSH 9.2 (Debian 12) prints the same
    line = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB alice"

    shown = "ssh-ed25519 SHA256:RXm/ruZ0eTzRXKwi1AQEDynB0VgHQ2ac9KPSFdf/YnA alice"

    assert shown_lines([line, "# c", f"restrict {line}"]) == f"{shown}; restricted {shown}"
