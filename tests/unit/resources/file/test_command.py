import os
from pathlib import Path

import pytest

from ccm_agent.model.errors import UsageError
from ccm_agent.resources.file.command import gather
from ccm_agent.system.accounts import AccountNames

USER, GROUP = AccountNames().user(os.getuid()), AccountNames().group(os.getgid())


def test_a_name_alone_gets_the_current_users_ownership() -> None:
    assert gather({"name": "/a"}) == {
        "name": "/a",
        "ensure": "present",
        "owner": USER,
        "group": GROUP,
        "mode": "0644",
    }


@pytest.mark.parametrize(
    ("given", "owner", "group"),
    [
        ({"owner": "app:www"}, "app", "www"),
        ({"owner": "app"}, "app", GROUP),
        ({"owner": ":www"}, USER, "www"),
        ({"owner": "54321:54322"}, "54321", "54322"),
        ({"owner": "app:www", "group": "adm"}, "app", "adm"),
        ({"group": "adm"}, USER, "adm"),
    ],
)
def test_an_owner_is_a_user_a_group_or_both(given: dict[str, str], owner: str, group: str) -> None:
    values = gather({"name": "/a", **given})

    assert (values["owner"], values["group"]) == (owner, group)


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        ({"ensure": "directory"}, "0755"),
        ({"ensure": "directory", "mode": "0600"}, "0600"),
        ({"ensure": "directory", "mode": "0644"}, "0755"),
        ({"mode": "0600"}, "0600"),
    ],
)
def test_a_directory_is_given_a_mode_to_be_entered_by(given: dict[str, str], mode: str) -> None:
    assert gather({"name": "/a", **given})["mode"] == mode


def test_content_comes_from_a_file_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"one\r\ntwo {{ x }}\n")

    values = gather({"name": "/a", "content_file": f"{tmp_path}/text"})

    assert values["content"] == "one\r\ntwo {{ x }}\n"
    assert "content_file" not in values


def test_a_source_that_exists_is_left_to_the_type(tmp_path: Path) -> None:
    (tmp_path / "src").write_text("x")

    assert gather({"name": "/a", "source": f"{tmp_path}/src"})["source"] == f"{tmp_path}/src"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param(
            {"content": "", "source": "/etc/passwd"},
            "--content, --content-file and --source are mutually exclusive: use only one",
            id="content and source",
        ),
        pytest.param(
            {"content": "x", "content_file": "/etc/passwd"},
            "--content, --content-file and --source are mutually exclusive: use only one",
            id="content twice",
        ),
        pytest.param({"source": "/no/such"}, "--source /no/such: there is no such file", id="no source"),
        pytest.param(
            {"content_file": "/no/such"},
            "--content-file /no/such: No such file or directory",
            id="no content file",
        ),
    ],
)
def test_contradictory_options_are_a_usage_error(given: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        gather({"name": "/a", **given})

    assert caught.value.message == message


def test_a_content_file_that_is_not_text_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff")

    with pytest.raises(UsageError) as caught:
        gather({"name": "/a", "content_file": f"{tmp_path}/binary"})

    assert caught.value.message == f"--content-file {tmp_path}/binary: it is not UTF-8 text; use --source"


def test_content_that_is_not_replaced_is_marked_by_a_flag() -> None:
    values = gather({"name": "/a", "content": "x", "no_replace": True})

    assert (values["replace"], "no_replace" in values) == (False, False)


def test_a_source_on_the_web_need_not_be_a_file_here() -> None:
    assert gather({"name": "/a", "source": "https://site/a"})["source"] == "https://site/a"
