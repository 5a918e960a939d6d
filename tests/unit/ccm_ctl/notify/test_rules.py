"""The file of notification rules: what is accepted, what is refused, and that it stays private."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccm_agent.model.errors import CcmError, UsageError
from ccm_ctl.notify.rules import (
    LENGTH_LIMIT,
    RULES_LIMIT,
    NotificationRule,
    check_rule,
    compile_condition,
    default_rules_path,
    read_rules,
    write_rules,
)

HOOK = "https://hooks.example.com/services/T0/secret?token=x"


def a_file(tmp_path: Path, text: str, mode: int = 0o600) -> Path:
    path = tmp_path / "notify.yaml"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_rules_are_read_as_they_were_written_and_only_their_owner_reads_the_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "notify.yaml"
    rules = {
        "pager": NotificationRule(on="run.failed || drift || stale", webhook=HOOK, after="2h"),
        "log": NotificationRule(on="drift", exec=["/bin/true", "a b"]),
    }

    write_rules(path, rules)

    assert read_rules(path) == rules
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in path.parent.iterdir()] == ["notify.yaml"]


def test_a_missing_or_empty_file_has_no_rules(tmp_path: Path) -> None:
    assert read_rules(tmp_path / "none.yaml") == {}
    assert read_rules(a_file(tmp_path, "\n")) == {}


@pytest.mark.parametrize("mode", [0o644, 0o602, 0o620, 0o660])
def test_a_file_that_others_can_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    path = a_file(tmp_path, f"a:\n  on: drift\n  webhook: {HOOK}\n", mode)

    with pytest.raises(UsageError, match="chmod 600"):
        read_rules(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "notify.yaml"),
        ("- a\n", "notify.yaml"),
        ("a:\n  on: drift\n  webhok: https://x.example\n", "webhok"),
        ("a:\n  on: [drift]\n  webhook: https://x.example\n", "notify.yaml:2"),
        ("a:\n  on: drift\n", "exactly one"),
        ("a:\n  on: drft\n  webhook: https://x.example\n", "drft"),
        ('"a b":\n  on: drift\n  webhook: https://x.example\n', "not a valid rule name"),
        ("".join(f"r{n}:\n  on: drift\n  exec: [a]\n" for n in range(RULES_LIMIT + 1)), "101 rules"),
        ("#" * (256 * 1024 + 1), "larger than"),
    ],
)
def test_a_file_with_a_mistake_is_refused_with_its_name(tmp_path: Path, text: str, message: str) -> None:
    path = a_file(tmp_path, text)

    with pytest.raises(CcmError) as caught:
        read_rules(path)

    assert "notify.yaml" in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"webhook": "ftp://x.example/"}, "https:// or http://"),
        ({"webhook": "https://"}, "no valid host"),
        ({"webhook": "https://x.example:99999/"}, "not valid"),
        ({"webhook": "https://x.example/\nHost: y"}, "control character"),
        ({"webhook": HOOK, "exec": ["a"]}, "exactly one"),
        ({"smtp": "smtp://m.example"}, "--to and --from"),
        ({"smtp": "smtp://m.example", "to": ["a@b\nBcc: c@d"], "sender": "a@b"}, "not a valid mail address"),
        ({"smtp": "smtp://m.example", "to": ["a@["], "sender": "a@b"}, "not a valid mail address"),
        ({"smtp": "smtp://m.example", "to": ["a@b"], "sender": "a@b;"}, "not a valid mail address"),
        ({"smtp": "smtp://m.example", "to": ["ä@b"], "sender": "a@b"}, "not a valid mail address"),
        ({"smtp": "smtp://m.example", "to": ["a@ö"], "sender": "a@b"}, "not a valid mail address"),
        ({"webhook": HOOK, "to": ["a@b"]}, "need --smtp"),
        ({"webhook": HOOK, "after": "soon"}, "--after soon"),
        ({"webhook": HOOK, "template": "x" * (LENGTH_LIMIT + 1)}, "at most"),
    ],
)
def test_a_rule_that_cannot_work_is_refused_without_showing_its_url(
    fields: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        check_rule("pager", NotificationRule(on="drift", **fields))  # type: ignore[arg-type]

    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "drift ||", "1 + 1", "run.faild", "nod == 'a'", "x" * 5000])
def test_a_condition_that_cannot_be_true_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        compile_condition(text)


def test_a_key_that_a_run_does_not_have_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(UsageError, match=r"there is no run\.faild; there are run\.id, run\.name, "):
        compile_condition('run["faild"]')


def test_a_text_may_contain_what_looks_like_a_key_of_the_run() -> None:
    compile_condition("reason contains 'run.sh failed'")


def test_the_channel_of_a_rule_shows_nothing_secret() -> None:
    assert NotificationRule(on="drift", webhook=HOOK).channel == "webhook https://hooks.example.com/…"
    assert NotificationRule(on="drift", exec=["/bin/x", "--token", "s"]).channel == "exec /bin/x"


def test_the_environment_names_the_file() -> None:
    assert default_rules_path({"CCM_NOTIFY": "/x/y.yaml"}) == Path("/x/y.yaml")
