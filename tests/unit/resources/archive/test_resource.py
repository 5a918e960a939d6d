"""Every row of the archive type's tables: what is refused, and what is done about what was found."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.model.errors import DocumentError, PropertyError
from ccm_agent.resources.archive import TYPE
from ccm_agent.resources.archive.model import ArchiveMetadata, ArchiveProperties, ArchiveState
from ccm_agent.resources.archive.resource import check, check_by_lint, decide
from ccm_agent.resources.checks import check_each
from ccm_agent.resources.contract import DecisionContext

RIGHT, WRONG = "a" * 64, "b" * 64
FILE = "/opt/app.tar.gz"


def wanted(**properties: Any) -> ArchiveProperties:
    given = {
        "name": FILE,
        "ensure": "present",
        "url": "https://example.net/app.tar.gz",
        "owner": "root",
        "group": "root",
    }
    return ArchiveProperties(**{**given, **properties})


class TestCheck:
    @pytest.mark.parametrize(
        ("properties", "path", "sentence"),
        [
            pytest.param({"url": ""}, "url", "`url` cannot be empty", id="no URL"),
            pytest.param({"url": "http://[::1"}, "url", "`url` cannot be read", id="no URL at all"),
            pytest.param({"url": "https://h:x/app.tar.gz"}, "url", "its port is not a number", id="a port of letters"),
            pytest.param({"url": "https://h:70000/app.tar.gz"}, "url", "its port must be a number up", id="a large port"),
            pytest.param({"url": "/app.tar.gz"}, "url", "`url` must be absolute", id="a relative URL"),
            pytest.param({"url": "https://example.net/"}, "url", "`url` must end in a file name", id="no file"),
            pytest.param(
                {"url": "https://example.net/app.rar"}, "url", "must end in one of .tar.gz, .tgz, .tar, .zip", id="another kind"
            ),
            pytest.param({"name": "/opt/app"}, "name", "`name` must end in one of", id="a name of no kind"),
            pytest.param(
                {"name": "/opt/app.zip"}, "name", "one is tar.gz, the other is zip", id="a name of another kind than the URL"
            ),
            pytest.param({"name": "app.tar.gz"}, "name", "`name` must be an absolute path", id="a relative name"),
            pytest.param({"name": "/opt/../app.tar.gz"}, "name", "without `.` and `..`", id="a name with dots"),
            pytest.param({"extract_parent": "opt"}, "extract_parent", "must be an absolute path", id="a relative parent"),
            pytest.param(
                {"creates": "/opt/../x"}, "creates", "`creates` must be a path without `.` and `..`", id="creates with dots"
            ),
            pytest.param(
                {"cleanup": True}, "cleanup", "`cleanup` requires `extract_parent` to be set", id="cleanup of nothing"
            ),
            pytest.param(
                {"cleanup": True, "extract_parent": "/opt"}, "cleanup", "`cleanup` requires `creates` to be set",
                id="cleanup without creates",
            ),
            pytest.param({"owner": ""}, "owner", "`owner` cannot be empty", id="no owner"),
            pytest.param({"group": ""}, "group", "`group` cannot be empty", id="no group"),
            pytest.param({"checksum": "abc"}, "checksum", "`checksum` is not a SHA-256", id="a short checksum"),
        ],
    )  # fmt: skip
    def test_an_invalid_combination_is_refused(
        self, properties: dict[str, Any], path: str, sentence: str
    ) -> None:
        with pytest.raises(PropertyError) as caught:
            check_each(wanted(**properties), check, check_by_lint)

        assert sentence in caught.value.message
        assert caught.value.place is not None
        assert caught.value.place.path == f"$.{path}"

    @pytest.mark.parametrize(
        "address",
        ["joe:secret@example.net", "joe:secret@example.net:80", "[::1]", "[::1]:80", "example.net:"],
    )
    def test_addresses_with_users_and_ports_are_read(self, address: str) -> None:
        check(wanted(url=f"https://{address}/app.tar.gz"))

    @pytest.mark.parametrize("address", ["example.net:http", "joe:secret@example.net:x", "[::1]:x"])
    def test_a_port_that_is_not_a_number_is_refused(self, address: str) -> None:
        with pytest.raises(PropertyError, match="its port is not a number"):
            check(wanted(url=f"https://{address}/app.tar.gz"))

    def test_an_error_does_not_show_the_password_of_a_url(self) -> None:
        with pytest.raises(PropertyError, match="`url` cannot be read: its host is not valid") as caught:
            check(wanted(url="https://me:Pa55@\u2100.example.net/app.tar.gz"))

        assert "Pa55" not in str(caught.value)

    def test_a_timeout_is_a_duration(self) -> None:
        with pytest.raises(DocumentError, match="`soon` is not a duration"):
            check(wanted(timeout="soon"))

    @pytest.mark.parametrize(
        ("url", "name"),
        [
            ("app.tar.gz", "/a.tar.gz"),
            ("app.tgz", "/a.tar.gz"),
            ("app.tar.gz", "/a.tgz"),
            ("app.tar", "/a.tar"),
            ("app.zip", "/a.zip"),
            ("APP.ZIP", "/a.Zip"),
            ("app.zip?version=2", "/a.zip"),
        ],
    )
    def test_each_extension_needs_the_same_kind_of_archive(self, url: str, name: str) -> None:
        check(wanted(url=f"https://example.net/{url}", name=name))

    @pytest.mark.parametrize(
        ("url", "taken"),
        [
            ("http://example.net/a.tar.gz", True),
            ("HTTPS://example.net/a.tar.gz", True),
            ("ftp://example.net/a.tar.gz", False),
            ("file:///a.tar.gz", False),
        ],
    )
    def test_only_the_web_has_a_provider(self, url: str, taken: bool) -> None:
        (spec,) = TYPE.providers

        assert spec.takes is not None
        assert spec.takes(wanted(url=url)) is taken


def found(
    *,
    archive: bool = False,
    creates: bool = False,
    checksum: str = RIGHT,
    owner: str = "root",
    mode: str = "0600",
) -> ArchiveState:
    if archive:
        metadata = ArchiveMetadata(
            name=FILE, checksum=checksum, archive_exists=True, creates_exists=creates, owner=owner, group="root",
            uid=0 if owner == "root" else 1, gid=0, mode=mode, provider="http",
        )  # fmt: skip
    else:
        metadata = ArchiveMetadata(name=FILE, owner="", group="", creates_exists=creates, provider="http")
    return ArchiveState(
        protocol="p", type="archive", name=FILE, ensure="present" if archive else "absent", metadata=metadata
    )


def steps(properties: ArchiveProperties, state: ArchiveState, **context: Any) -> list[str]:
    decision = decide(properties, state, DecisionContext(**context))
    assert decision.error is None
    assert decision.is_stable is not bool(decision.steps)
    return [step.noop.removeprefix("Would have ") for step in decision.steps]


GET, UNPACK, CLEAN, REMOVE, SET = "downloaded", "extracted", "cleaned up", "removed", "updated attributes"


class TestDecide:
    @pytest.mark.parametrize(
        ("state", "done"),
        [
            pytest.param(found(), [], id="absent, archive missing"),
            pytest.param(found(archive=True), [REMOVE], id="absent, archive exists"),
            pytest.param(found(archive=True, checksum=WRONG, owner="daemon"), [REMOVE], id="absent, another archive exists"),
        ],
    )  # fmt: skip
    def test_absent(self, state: ArchiveState, done: list[str]) -> None:
        assert steps(wanted(ensure="absent"), state) == done

    @pytest.mark.parametrize("checksum", ["", RIGHT])
    @pytest.mark.parametrize(
        ("archive", "creates", "kept", "cleaned"),
        [
            pytest.param(True, True, [], [CLEAN], id="archive and creates are there"),
            pytest.param(True, False, [UNPACK], [UNPACK, CLEAN], id="creates is missing"),
            pytest.param(False, True, [GET, UNPACK], [], id="archive is missing"),
            pytest.param(False, False, [GET, UNPACK], [GET, UNPACK, CLEAN], id="nothing is there"),
        ],
    )
    @pytest.mark.parametrize("cleanup", [False, True])
    def test_the_matrix_of_archive_and_creates(
        self, archive: bool, creates: bool, kept: list[str], cleaned: list[str], cleanup: bool, checksum: str
    ) -> None:
        properties = wanted(extract_parent="/opt", creates="/opt/app", cleanup=cleanup, checksum=checksum)
        expected = cleaned if cleanup else kept
        if archive and not creates and not checksum:
            expected = [GET, *expected]  # the kind of an unverified archive is unknown

        assert steps(properties, found(archive=archive, creates=creates)) == expected

    @pytest.mark.parametrize(
        ("properties", "state", "done"),
        [
            pytest.param({}, found(), [GET], id="archive missing"),
            pytest.param({}, found(archive=True), [], id="without a checksum any archive is right"),
            pytest.param({"checksum": RIGHT}, found(archive=True), [], id="checksum right"),
            pytest.param({"checksum": RIGHT.upper()}, found(archive=True), [], id="checksum right in capitals"),
            pytest.param({"checksum": RIGHT}, found(archive=True, checksum=WRONG), [GET], id="checksum mismatch"),
            pytest.param({}, found(archive=True, owner="daemon"), [GET], id="owner mismatch"),
            pytest.param({"owner": "0"}, found(archive=True), [], id="owner as a number"),
            pytest.param({"checksum": RIGHT}, found(archive=True, owner="daemon"), [SET], id="owner mismatch, checksum right"),
            pytest.param({"checksum": RIGHT}, found(archive=True, mode="0666"), [SET], id="others may write, checksum right"),
            pytest.param({}, found(archive=True, mode="0666"), [GET], id="others may write"),
            pytest.param({}, found(archive=True, mode="0644"), [], id="others may read"),
            pytest.param({"extract_parent": "/opt"}, found(), [GET, UNPACK], id="archive missing, to be unpacked"),
            pytest.param({"extract_parent": "/opt"}, found(archive=True), [], id="unpacked when it came"),
            pytest.param(
                {"extract_parent": "/opt", "checksum": RIGHT}, found(archive=True, checksum=WRONG), [GET, UNPACK],
                id="checksum mismatch, to be unpacked",
            ),
            pytest.param(
                {"extract_parent": "/opt", "creates": "/opt/a", "checksum": RIGHT},
                found(archive=True, creates=True, checksum=WRONG), [GET, UNPACK], id="a new release over an old one",
            ),
            pytest.param(
                {"extract_parent": "/opt", "creates": "/opt/a", "cleanup": True, "checksum": RIGHT},
                found(archive=True, creates=True, checksum=WRONG), [GET, UNPACK, CLEAN],
                id="another archive lies there, to be cleaned up",
            ),
            pytest.param({"creates": "/opt/a"}, found(archive=True), [GET], id="creates missing, nothing to unpack"),
        ],
    )  # fmt: skip
    def test_differences_decide(
        self, properties: dict[str, Any], state: ArchiveState, done: list[str]
    ) -> None:
        assert steps(wanted(**properties), state) == done

    def test_noop_texts_are_joined_as_choria_ccm_has_them(self) -> None:
        decision = decide(
            wanted(extract_parent="/opt", creates="/opt/a", cleanup=True), found(), DecisionContext(noop=True)
        )

        assert TYPE.noop_separator.join(step.noop for step in decision.steps) == (
            "Would have downloaded. Would have extracted. Would have cleaned up"
        )

    @pytest.mark.parametrize(
        ("properties", "state", "reason"),
        [
            ({}, found(), "the archive file is missing"),
            ({"creates": "/opt/a"}, found(archive=True), "creates path missing: /opt/a"),
            (
                {"checksum": RIGHT},
                found(archive=True, checksum=WRONG),
                f"checksum mismatch: found {WRONG}, wanted {RIGHT}",
            ),
            ({}, found(archive=True, owner="daemon"), "owner mismatch: found daemon, wanted root"),
            ({}, found(archive=True, mode="4777"), "mode mismatch: found 4777, wanted at most 0644"),
        ],
    )
    def test_remaining_differences_after_the_steps_are_reported(
        self, properties: dict[str, Any], state: ArchiveState, reason: str
    ) -> None:
        decision = decide(wanted(**properties), state, DecisionContext(verifying=True))

        assert (bool(decision.steps), decision.reason) == (True, reason)
