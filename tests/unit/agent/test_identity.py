import re
import socket
from pathlib import Path

import pytest

from ccm_agent.agent.state.state_folder import check_configured, determine_identity, machine_id
from ccm_agent.model.errors import FileError, UsageError


def named(monkeypatch: pytest.MonkeyPatch, fqdn: str, host: str = "localhost") -> None:
    monkeypatch.setattr(socket, "getfqdn", lambda: fqdn)
    monkeypatch.setattr(socket, "gethostname", lambda: host)


def test_the_identity_is_the_fqdn_unless_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named(monkeypatch, "Web1.Example.NET.")

    assert determine_identity("", tmp_path / "a") == "web1.example.net"
    assert determine_identity("other", tmp_path / "b") == "other"


def test_stored_identity_is_kept_when_the_host_name_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named(monkeypatch, "web1.example.net")
    determine_identity("", tmp_path)
    named(monkeypatch, "web1")

    assert determine_identity("", tmp_path) == "web1.example.net"


def test_a_configured_identity_wins_over_the_kept_one_and_is_kept(tmp_path: Path) -> None:
    determine_identity("web1", tmp_path)

    assert determine_identity("web2", tmp_path) == "web2"
    assert determine_identity("", tmp_path) == "web2"


def test_a_host_that_is_called_localhost_takes_its_host_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named(monkeypatch, "localhost.localdomain", "web1")

    assert determine_identity("", tmp_path) == "web1"


def test_a_host_without_a_name_says_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named(monkeypatch, "localhost")

    with pytest.raises(UsageError, match="set `identity` in the agent's configuration"):
        determine_identity("", tmp_path)


@pytest.mark.parametrize(
    "identity", ["Web1", "a b", "a..b", ".a", "a.", "all", "node.a", "fact.x", "request.x", "a*", "é"]
)
def test_an_identity_that_could_not_stand_in_a_subject_is_refused_and_not_kept(
    tmp_path: Path, identity: str
) -> None:
    with pytest.raises(UsageError):
        determine_identity(identity, tmp_path)
    with pytest.raises(UsageError):
        check_configured(identity)

    assert list(tmp_path.iterdir()) == []


def test_a_kept_identity_that_is_damaged_is_refused(tmp_path: Path) -> None:
    (tmp_path / "identity").write_text("../../x\n")

    with pytest.raises(UsageError):
        determine_identity("", tmp_path)


def test_a_state_folder_that_cannot_be_used_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(FileError, match=str(tmp_path / "file")):
        determine_identity("web1", tmp_path / "file")


def test_the_state_folder_is_for_its_owner_alone(tmp_path: Path) -> None:
    determine_identity("web1", tmp_path / "state")

    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


def test_the_machine_id_is_the_hosts_own_and_does_not_show_it(tmp_path: Path) -> None:
    source = tmp_path / "machine-id"
    source.write_text("3d1219c7c4c5404aaa1f6d2a48adfda4\n")

    one = machine_id(tmp_path, source)

    assert re.fullmatch(r"[0-9a-f]{32}", one)
    assert one == machine_id(tmp_path, source)
    assert one != source.read_text().strip()


@pytest.mark.parametrize("content", [None, "", "uninitialized\n"])
def test_a_host_without_a_machine_id_gets_one_that_stays(tmp_path: Path, content: str | None) -> None:
    source = tmp_path / "etc-machine-id"
    if content is not None:
        source.write_text(content)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    one, again = machine_id(tmp_path / "a", source), machine_id(tmp_path / "a", source)

    assert one == again != machine_id(tmp_path / "b", source)
