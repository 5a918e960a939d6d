"""The repository type: its checks, its decisions, its undo, and its providers on files and programs of the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ccm_agent.model.errors import CcmError, PropertyError
from ccm_agent.model.records.undo import EarlierFile
from ccm_agent.policy.grant import Grant
from ccm_agent.resources import package_tool
from ccm_agent.resources.contract import Decision, DecisionContext
from ccm_agent.resources.package_tool import APT_ENVIRONMENT, PackageTool
from ccm_agent.resources.repository import TYPE
from ccm_agent.resources.repository.checks import check
from ccm_agent.resources.repository.formats import FORMATS
from ccm_agent.resources.repository.model import RepositoryProperties
from ccm_agent.resources.repository.providers import files
from ccm_agent.resources.repository.providers.apt import AptLists
from ccm_agent.resources.repository.providers.dnf import DnfLists
from ccm_agent.resources.repository.providers.files import RepositoryFiles
from ccm_agent.resources.repository.resource import decide, reach
from ccm_agent.resources.repository.undo import FOREIGN, earlier, identify
from ccm_agent.testing.download import FakeDownload
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.locks import FakeLocks
from ccm_agent.testing.runner import FakeRunner
from ccm_agent.testing.trees import FakeTrees
from tests.support.openpgp_keys import FINGERPRINT, KEY, OTHER_FINGERPRINT, OTHER_KEY
from tests.support.resources import manage

URL = "https://repo.example.net/key.asc"
PATH, KEY_PATH = "/etc/apt/sources.list.d/own.sources", "/etc/apt/keyrings/own.asc"
REPO, REPO_KEY = "/etc/yum.repos.d/own.repo", "/etc/pki/rpm-gpg/own.asc"
TEXT = f"""\
# Managed by ccm
X-Repolib-Name: own
Types: deb
URIs: https://repo.example.net/debian
Suites: bookworm
Components: main extra
Signed-By: {KEY_PATH}
"""
REPO_TEXT = f"""\
# Managed by ccm
[own]
name=Our packages
baseurl=https://repo.example.net/el$releasever
enabled=1
priority=10
gpgcheck=1
gpgkey=file://{REPO_KEY}
"""


def wanted(name: str = "own", **properties: Any) -> RepositoryProperties:
    usual: dict[str, Any] = {
        "ensure": "present",
        "uris": ["https://repo.example.net/debian"],
        "suites": ["bookworm"],
        "components": ["main", "extra"],
        "key": KEY,
        "key_fingerprint": FINGERPRINT,
    }
    return RepositoryProperties(name=name, **{**usual, **properties})


def wanted_dnf(name: str = "own", **properties: Any) -> RepositoryProperties:
    usual: dict[str, Any] = {
        "uris": ["https://repo.example.net/el$releasever"],
        "suites": [],
        "components": [],
        "description": "Our packages",
        "priority": 10,
    }
    return wanted(name, **{**usual, **properties})


UNSIGNED: dict[str, Any] = {"key": "", "key_fingerprint": ""}


class Host:
    """Files in memory, programs that succeed unless a test says otherwise, and a provider on them."""

    def __init__(self, kind: str = "apt", *, text: str | None = None, key: str | None = None) -> None:
        self.files, self.runner = FakeFiles(), FakeRunner()
        self.trees, self.download = FakeTrees(self.files), FakeDownload()
        self.files.put_directory("/var/cache")
        self.path, self.key_path = (PATH, KEY_PATH) if kind == "apt" else (REPO, REPO_KEY)
        if text is not None:
            self.files.put(self.path, text)
        if key is not None:
            self.files.put(self.key_path, key)
        tool = PackageTool(self.runner, FakeLocks(), APT_ENVIRONMENT)
        manager = AptLists(tool, self.files) if kind == "apt" else DnfLists(tool, self.files, self.trees)
        self.locks = FakeLocks()
        self.provider = RepositoryFiles(
            manager, self.locks, self.files, self.trees, "/site", lambda: self.download
        )
        self.runner.when("apt-get", "indextargets")

    def content(self, path: str) -> str | None:
        node = self.files.nodes.get(path)
        return node.content.decode() if node else None

    @property
    def texts(self) -> tuple[str | None, str | None]:
        return self.content(self.path), self.content(self.key_path)

    @property
    def refreshes(self) -> int:
        return sum(line.startswith(("apt-get update", "dnf makecache")) for line in self.runner.lines)


@pytest.mark.parametrize(
    ("properties", "place"),
    [
        pytest.param({"name": "../own"}, "name", id="a path upwards"),
        pytest.param({"name": "/etc/passwd"}, "name", id="an absolute path"),
        pytest.param({"name": "-o"}, "name", id="a name like an option"),
        pytest.param({"name": ".own"}, "name", id="a hidden file"),
        pytest.param({"name": "a\n[b]"}, "name", id="a section in the name"),
        pytest.param({"name": "a\n"}, "name", id="a newline at the end of the name"),
        pytest.param({"name": "a:b"}, "name", id="a colon"),
        pytest.param({"name": "a\0"}, "name", id="a NUL"),
        pytest.param({"name": "a" * 101}, "name", id="an overlong name"),
        pytest.param({"name": "main"}, "name", id="the settings of dnf"),
        pytest.param({"uris": []}, "uris", id="no URL"),
        pytest.param({"uris": ["https://u:hunter2@example.net/"]}, "uris[0]", id="a password in a URL"),
        pytest.param({"uris": ["https://hunter2@example.net/"]}, "uris[0]", id="a user name in a URL"),
        pytest.param({"uris": ["https://example.net/?token=hunter2"]}, "uris[0]", id="a token in a URL"),
        pytest.param({"uris": ["https://a/ \nTrusted: yes"]}, "uris[0]", id="a field in a URL"),
        pytest.param({"uris": ["https://a/ https://b/"]}, "uris[0]", id="two URLs in one"),
        pytest.param({"uris": ["https://a/,https://b/"]}, "uris[0]", id="two URLs with a comma"),
        pytest.param({"uris": ["ftp://example.net/"]}, "uris[0]", id="ftp"),
        pytest.param({"uris": ["file:/srv/../etc"]}, "uris[0]", id="a local path upwards"),
        pytest.param({"uris": ["file://host/srv"]}, "uris[0]", id="a local path with a host"),
        pytest.param({"uris": ["https:///debian"]}, "uris[0]", id="no host"),
        pytest.param({"uris": ["https://[::1/"]}, "uris[0]", id="half an address"),
        pytest.param({"uris": ["https://a:99999/"]}, "uris[0]", id="a port out of range"),
        pytest.param({"uris": ["https://a/" + "x" * 2000]}, "uris[0]", id="an overlong URL"),
        pytest.param({"uris": ["https://a?[/]@evil.example/x"]}, "uris[0]", id="a host that apt reads in another way"),
        pytest.param({"uris": ["https://a?[/]u:hunter2@b/x"]}, "uris[0]", id="a password that urlsplit does not see"),
        pytest.param({"uris": ["https://a?.example.net/x"]}, "uris[0]", id="a host behind a question mark"),
        pytest.param({"uris": ["https://a/[x]"]}, "uris[0]", id="brackets in a path"),
        pytest.param({"uris": ["file:/srv/a/%2e%2e/%2e%2e/tmp"]}, "uris[0]", id="an encoded path upwards"),
        pytest.param({"uris": ["file:/srv/a?/../../tmp"]}, "uris[0]", id="a path behind a question mark"),
        pytest.param({"uris": ["https://a/"] * 101}, "uris", id="too many URLs"),
        pytest.param({"suites": ["bookworm\nTrusted: yes"]}, "suites[0]", id="a field in a suite"),
        pytest.param({"suites": ["a b"]}, "suites[0]", id="two suites in one"),
        pytest.param({"suites": ["../x"]}, "suites[0]", id="a suite upwards"),
        pytest.param({"components": ["main", "-x"]}, "components[1]", id="a component like an option"),
        pytest.param({"components": []}, "components", id="no components"),
        pytest.param({"suites": ["./"]}, "components", id="components of a path"),
        pytest.param({"architectures": ["AMD64"]}, "architectures[0]", id="an architecture in capitals"),
        pytest.param({"types": ["rpm"]}, "types[0]", id="an unknown type"),
        pytest.param({"description": "a\n[b]"}, "description", id="a section in the description"),
        pytest.param({"priority": 0}, "priority", id="a priority out of range"),
        pytest.param({"metalink": "https://a/"}, "metalink", id="a metalink beside URLs"),
        pytest.param(UNSIGNED, "key", id="no key and no word"),
        pytest.param({"trusted": True}, "trusted", id="a key that would not be used"),
        pytest.param({**UNSIGNED, "trusted": True, "repo_gpgcheck": True}, "repo_gpgcheck", id="a check without key"),
        pytest.param({"key": OTHER_KEY}, "key", id="another key"),
        pytest.param({"key": KEY + OTHER_KEY}, "key", id="two keys"),
        pytest.param({"key": KEY.replace("PUBLIC", "PRIVATE")}, "key", id="a secret key"),
        pytest.param({"key": KEY[:200]}, "key", id="half a key"),
        pytest.param({"key": "http://example.net/key"}, "key", id="a key over http"),
        pytest.param({"key": "https://u:hunter2@example.net/key"}, "key", id="a password in the key's URL"),
        pytest.param({"key": "/a\0b"}, "key", id="a NUL in the key's path"),
        pytest.param({"key_fingerprint": ""}, "key_fingerprint", id="no fingerprint"),
        pytest.param({"key_fingerprint": "CCBF355C4F27380A"}, "key_fingerprint", id="a key ID"),
        pytest.param({**UNSIGNED, "signed_by": "key.asc"}, "signed_by", id="a relative path"),
        pytest.param({**UNSIGNED, "signed_by": "/a /b"}, "signed_by", id="two paths"),
        pytest.param({**UNSIGNED, "signed_by": "/a/../b"}, "signed_by", id="a path with dots"),
    ],
)  # fmt: skip
def test_hostile_properties_are_refused_without_their_secrets(properties: dict[str, Any], place: str) -> None:
    with pytest.raises(PropertyError) as caught:
        check(wanted(**properties))

    assert caught.value.place is not None
    assert caught.value.place.path == f"$.{place}"
    assert "hunter2" not in str(caught.value)


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(PropertyError) as caught:
        check(wanted("a b", uris=["x"], suites=["a b"]))

    assert [one.place.path for one in caught.value.others if one.place] == ["$.uris[0]", "$.suites[0]"]


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param({"key_fingerprint": f"0x{FINGERPRINT.lower()}"}, id="a fingerprint in lower case"),
        pytest.param({"suites": ["./"], "components": [], "uris": ["file:/srv/apt"]}, id="a path"),
        pytest.param({"key": "files/own.asc"}, id="a file of the manifest"),
        pytest.param({"key": URL}, id="a URL"),
        pytest.param({**UNSIGNED, "trusted": True}, id="no signature"),
        pytest.param(
            {"ensure": "absent", "uris": [], "suites": [], "components": [], **UNSIGNED}, id="absent"
        ),
        pytest.param({"uris": ["https://[2001:db8::1]:8443/a?b=c"]}, id="an address with a port"),
    ],
)
def test_usual_properties_are_accepted(properties: dict[str, Any]) -> None:
    check(wanted(**properties))


@pytest.mark.parametrize(
    ("kind", "one", "text"),
    [pytest.param("apt", wanted(), TEXT, id="apt"), pytest.param("dnf", wanted_dnf(), REPO_TEXT, id="dnf")],
)
async def test_a_repository_is_written_stable_and_removed(
    kind: str, one: RepositoryProperties, text: str
) -> None:
    host = Host(kind)
    host.runner.when("apt-get", "update")
    host.runner.when("dnf", "makecache")

    first = await manage(TYPE, host.provider, one)
    written = host.texts
    second = await manage(TYPE, host.provider, one)
    refreshes = host.refreshes
    await manage(TYPE, host.provider, RepositoryProperties(name="own", ensure="absent"))

    assert (first.error, first.changed, second.error, second.changed) == ([], True, [], False)
    assert written == (text, KEY)
    assert refreshes == (2 if kind == "apt" else 1)  # a trial, and the lists of the host
    assert host.texts == (None, None)
    assert not [path for path in host.files.nodes if path.startswith("/var/cache/")]


@pytest.mark.parametrize(
    ("kind", "properties"),
    [
        pytest.param("apt", {"enabled": False, "types": ["deb", "deb-src"], "architectures": ["amd64"]}, id="apt"),
        pytest.param("apt", {**UNSIGNED, "trusted": True, "uris": ["https://a/", "https://b/"]}, id="apt, unsigned"),
        pytest.param("dnf", {"suites": [], "components": [], "enabled": False, "repo_gpgcheck": True}, id="dnf"),
        pytest.param(
            "dnf",
            {**UNSIGNED, "suites": [], "components": [], "uris": [], "metalink": "https://a/m", "trusted": True},
            id="dnf, unsigned",
        ),
    ],
)  # fmt: skip
def test_what_is_written_is_read_back(kind: str, properties: dict[str, Any]) -> None:
    one, form = wanted(**properties), FORMATS[kind]
    text = form.content(one).decode()

    content = form.parse("own", text)

    assert content is not None
    assert form.render("own", content) == text
    assert content.trusted == one.trusted
    assert content.enabled == one.enabled


@pytest.mark.parametrize(
    ("properties", "line"),
    [
        pytest.param({}, None, id="the setting of dnf.conf applies"),
        pytest.param({"repo_gpgcheck": True}, "repo_gpgcheck=1", id="signed metadata is required"),
        pytest.param({**UNSIGNED, "trusted": True}, "repo_gpgcheck=0", id="nothing is signed"),
    ],
)
def test_a_signature_of_metadata_is_set_only_if_the_manifest_decides_it(
    properties: dict[str, Any], line: str | None
) -> None:
    lines = FORMATS["dnf"].content(wanted_dnf(**properties)).decode().splitlines()

    assert [one for one in lines if one.startswith("repo_gpgcheck")] == ([line] if line else [])


async def test_a_line_that_turns_off_the_check_of_dnf_conf_is_removed() -> None:
    host = Host("dnf", text=REPO_TEXT.replace("gpgcheck=1\n", "gpgcheck=1\nrepo_gpgcheck=0\n"), key=KEY)

    event = await manage(TYPE, host.provider, wanted_dnf(refresh=False))

    assert (event.error, event.changed, host.texts) == ([], True, (REPO_TEXT, KEY))


@pytest.mark.parametrize(
    ("kind", "properties", "why"),
    [
        pytest.param(
            "apt", {"suites": [], "components": []}, "`suites` is required", id="apt without suites"
        ),
        pytest.param("apt", {"priority": 5}, "`priority` is a property of dnf", id="a priority for apt"),
        pytest.param("dnf", {}, "`suites` is a property of apt", id="suites for dnf"),
    ],
)
async def test_properties_of_the_other_package_manager_are_an_error(
    kind: str, properties: dict[str, Any], why: str
) -> None:
    event = await manage(TYPE, Host(kind).provider, wanted(**properties))

    assert event.failed
    assert why in event.error[0]


async def test_the_lists_are_fetched_with_copies_and_only_for_this_repository() -> None:
    host = Host(text=TEXT, key=KEY)
    seen: list[str | None] = []
    modes: set[int] = set()

    def look() -> None:
        staged = [
            path
            for path in host.files.nodes
            if path.startswith("/var/cache/") and path.endswith((".sources", ".asc"))
        ]
        if not staged:
            return
        seen.extend(host.content(path) for path in sorted(staged))
        seen.extend(host.texts)
        modes.update(host.files.nodes[path].mode for path in staged)

    host.runner.when("apt-get", "update", effect=look)

    await manage(TYPE, host.provider, wanted(suites=["trixie"]))

    command, after = (line for line in host.runner.lines if line.startswith("apt-get update"))
    folder = command.partition("Dir::Etc::SourceList=")[2].partition("/own.sources")[0]
    assert seen[0] == KEY
    assert seen[1] == TEXT.replace("bookworm", "trixie").replace("/etc/apt/keyrings", folder)
    assert seen[2:] == [TEXT, KEY]
    assert modes == {0o644}  # apt reads them as the user _apt
    assert f"-o Dir::State::lists={folder}/lists " in command
    assert f"-o Dir::Etc::SourceList={PATH} " in after
    assert "Dir::State::lists" not in after
    for line in (command, after):
        assert "Dir::Etc::SourceParts=/dev/null" in line
        assert "List-Cleanup=false" in line
        assert "Error-Mode=any" in line


async def test_the_lists_of_the_host_stay_when_another_file_conflicts() -> None:
    host = Host(text=TEXT, key=KEY)
    host.runner.when("apt-get", "update")
    host.runner.when(
        "apt-get", "indextargets", code=100, stderr="E: Conflicting values set for option Signed-By"
    )

    event = await manage(TYPE, host.provider, wanted(key=OTHER_KEY, key_fingerprint=OTHER_FINGERPRINT))

    updates = [line for line in host.runner.lines if line.startswith("apt-get update")]
    assert event.failed
    assert [files.STAGING + "/lists" in line for line in updates] == [True]


async def test_files_are_restored_if_the_lists_cannot_be_fetched_after_the_trial() -> None:
    host = Host(text=TEXT, key=KEY)
    host.runner.when("apt-get", "update", "-q", "-o", f"Dir::Etc::SourceList={files.STAGING}/own.sources")
    host.runner.when(
        "apt-get", "update", "-q", "-o", f"Dir::Etc::SourceList={PATH}", code=100, stderr="E: 404 Packages"
    )

    event = await manage(TYPE, host.provider, wanted(suites=["trixie"]))

    assert "could not fetch the package lists of the repository own, so nothing was changed" in event.error[0]
    assert "404 Packages" in event.error[0]
    assert host.texts == (TEXT, KEY)


async def test_what_a_killed_process_left_is_removed_under_the_lock() -> None:
    host = Host()
    host.files.put(f"{files.STAGING}/stale.sources", "Trusted: yes")
    seen: list[list[str]] = []

    def look() -> None:
        seen.append(sorted(path for path in host.files.nodes if path.startswith(f"{files.STAGING}/")))

    host.runner.when("apt-get", "update", effect=look)

    event = await manage(TYPE, host.provider, wanted())

    assert event.error == []
    assert f"{files.STAGING}/own.sources" in seen[0]
    assert f"{files.STAGING}/stale.sources" not in seen[0]
    assert files.LOCK in host.locks.held
    assert files.STAGING not in host.files.nodes


async def test_a_folder_of_another_process_is_not_touched() -> None:
    host = Host()
    host.files.put(f"{files.STAGING}/theirs.sources", "x")
    host.locks.foreign[files.LOCK] = "ccm agent (pid 7)"

    event = await manage(TYPE, host.provider, wanted())

    assert "is still held by ccm agent (pid 7)" in event.error[0]
    assert f"{files.STAGING}/theirs.sources" in host.files.nodes


async def test_a_user_who_cannot_make_copies_reads_what_to_do() -> None:
    host = Host()
    host.files.refuses[files.STAGING] = "Permission denied"

    event = await manage(TYPE, host.provider, wanted())

    assert event.error == [
        f"could not fetch the package lists of the repository own, so nothing was changed: {files.STAGING}: Permission denied; "
        "run it as root, or set `refresh: false`"
    ]
    assert host.texts == (None, None)


FOREIGN_STANZA = (
    "Types: deb\nURIs: https://vendor.example/\nSuites: ./\nSigned-By: /usr/share/keyrings/vendor.gpg\n"
)


@pytest.mark.parametrize("change", [{"description": "new"}, {"ensure": "absent"}])
@pytest.mark.parametrize(
    ("kind", "text", "others"),
    [
        pytest.param("apt", f"{TEXT}\n{FOREIGN_STANZA}", "2 repositories", id="another stanza"),
        pytest.param("apt", f"# x\n{FOREIGN_STANZA} \t\n{TEXT}", "2 repositories", id="a stanza before it"),
        pytest.param("dnf", f"{REPO_TEXT}[vendor]\nname=x\n", "the sections [vendor]", id="another section"),
        pytest.param("dnf", "[a]\n[b]\n[c]\n[d]\n", "the sections [a], [b], [c] and 1 more", id="many sections"),
        pytest.param("dnf", "x" * (2 << 20), "unreadable content", id="a huge file"),
    ],
)  # fmt: skip
async def test_what_else_a_file_has_is_not_lost(
    kind: str, text: str, others: str, change: dict[str, Any]
) -> None:
    host = Host(kind, text=text, key=KEY)

    event = await manage(TYPE, host.provider, (wanted if kind == "apt" else wanted_dnf)(**change))

    assert event.error == [f"{host.path} has {others}, which would be lost: move it to another file first"]
    assert host.texts == (text, KEY)
    assert host.refreshes == 0


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        pytest.param(
            "apt", f"\n# a comment\n\n{FOREIGN_STANZA}\n\n# the end\n", id="one stanza with comments"
        ),
        pytest.param("dnf", "# a comment\n[own]\nname=x\nbaseurl=https://old.example/\n", id="one section"),
    ],
)
async def test_a_file_with_one_repository_is_taken_over(kind: str, text: str) -> None:
    host = Host(kind, text=text)
    one = (wanted if kind == "apt" else wanted_dnf)(refresh=False)

    event = await manage(TYPE, host.provider, one)

    assert (event.error, host.content(host.path)) == ([], FORMATS[kind].content(one).decode())


@pytest.mark.parametrize(
    ("path", "text", "is_checked"),
    [
        pytest.param("/etc/dnf/dnf.conf", "[main]\nrepo_gpgcheck=1\n", True, id="dnf.conf"),
        pytest.param("/etc/dnf/dnf.conf", "[main]\nrepo_gpgcheck = True\n", True, id="a word"),
        pytest.param("/etc/dnf/dnf.conf", "[main]\nrepo_gpgcheck=what\n", True, id="anything else"),
        pytest.param(
            "/etc/dnf/libdnf5.conf.d/a.conf", "[main]\nrepo_gpgcheck=1\n", True, id="a further file"
        ),
        pytest.param(
            "/usr/share/dnf5/libdnf.conf.d/a.conf", "[main]\nrepo_gpgcheck=yes\n", True, id="a vendor's"
        ),
        pytest.param("/etc/dnf/dnf.conf", "[main]\n# repo_gpgcheck=1\ngpgcheck=1\n", False, id="a comment"),
        pytest.param("/etc/dnf/dnf.conf", "[main]\nrepo_gpgcheck=False\n", False, id="no check"),
        pytest.param("/etc/dnf/dnf.conf", "[main]\n", False, id="nothing"),
    ],
)
async def test_a_key_is_tested_with_an_empty_cache_if_dnf_conf_requires_signed_metadata(
    path: str, text: str, is_checked: bool
) -> None:
    host = Host("dnf")
    host.files.put(path, text)
    host.runner.when("dnf", "makecache")

    event = await manage(TYPE, host.provider, wanted_dnf())

    command = next(line for line in host.runner.lines if line.startswith("dnf makecache"))
    assert event.error == []
    assert (f"--setopt=cachedir={files.STAGING}/cache" in command) is is_checked


@pytest.mark.parametrize("kind", ["apt", "dnf"])
@pytest.mark.parametrize("is_shared", [True, False])
async def test_a_key_that_the_main_file_names_is_kept(kind: str, is_shared: bool) -> None:
    host = Host(kind, key=KEY)
    host.files.put(host.path, FORMATS[kind].content((wanted if kind == "apt" else wanted_dnf)()))
    text = f"deb [signed-by={host.key_path if is_shared else '/x'}] https://a/ x main\n"
    host.files.put(FORMATS[kind].main, text)

    event = await manage(TYPE, host.provider, RepositoryProperties(name="own", ensure="absent"))

    assert (event.error, host.texts) == ([], (None, KEY if is_shared else None))


@pytest.mark.parametrize("is_signed", [True, False])
async def test_dnf_fetches_strictly_and_tests_a_key_with_an_empty_cache(is_signed: bool) -> None:
    host = Host("dnf", text=REPO_TEXT, key=KEY)
    seen: list[str | None] = []

    def look() -> None:
        seen.extend(host.content(path) for path in host.files.nodes if path.endswith("/own.repo"))

    host.runner.when("dnf", "makecache", effect=look)

    event = await manage(TYPE, host.provider, wanted_dnf(priority=20, repo_gpgcheck=is_signed))

    command = next(line for line in host.runner.lines if line.startswith("dnf makecache"))
    folder = command.partition("reposdir=")[2].split()[0]
    after = REPO_TEXT.replace("priority=10", "priority=20")
    if is_signed:
        after = after.replace("gpgcheck=1\n", "gpgcheck=1\nrepo_gpgcheck=1\n")
    staged = after.replace("/etc/pki/rpm-gpg", folder) + "skip_if_unavailable=0\n"
    assert (event.error, host.texts) == ([], (after, KEY))
    assert set(seen) == {REPO_TEXT, staged}
    assert (f"--setopt=cachedir={folder}/cache" in command) is is_signed


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param({"code": 100, "stderr": "E: NO_PUBKEY"}, "NO_PUBKEY", id="a wrong key"),
        pytest.param({"hangs": True}, "and was killed because it hung", id="a server that hangs"),
        pytest.param({"error": "no apt-get"}, "no apt-get", id="no program"),
        pytest.param(
            {"code": 100, "stderr": "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7"},
            "process 7",
            id="a lock",
        ),
    ],
)
async def test_a_refresh_that_fails_names_the_repository_and_changes_nothing(
    answer: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package_tool, "LOCK_RETRY_S", 0.0)
    monkeypatch.setattr(package_tool, "LOCK_WAIT_S", 0.0)
    host = Host(text=TEXT, key=KEY)
    host.runner.when("apt-get", "update", **answer)

    event = await manage(TYPE, host.provider, wanted(suites=["trixie"]))

    assert event.failed
    assert "the repository own" in event.error[0]
    assert why in event.error[0]
    assert host.texts == (TEXT, KEY)
    assert not [path for path in host.files.nodes if path.startswith("/var/cache/")]


@pytest.mark.parametrize("was_there", [True, False])
async def test_files_are_restored_if_apt_cannot_read_its_sources_with_them(was_there: bool) -> None:
    before = (TEXT, KEY) if was_there else (None, None)
    host = Host(text=before[0], key=before[1])
    host.runner.when("apt-get", "update")
    host.runner.when(
        "apt-get", "indextargets", code=100, stderr="E: Conflicting values set for option Signed-By"
    )

    event = await manage(TYPE, host.provider, wanted(suites=["trixie"]))

    assert "so its files were restored: E: Conflicting values" in event.error[0]
    assert host.texts == before


async def test_sources_that_were_broken_before_are_not_its_fault() -> None:
    host = Host()
    host.runner = FakeRunner()
    host.provider._manager._tool._runner = host.runner  # type: ignore[attr-defined]
    host.runner.when("apt-get", "update")
    host.runner.when("apt-get", "indextargets", code=100, stderr="E: Malformed entry")

    event = await manage(TYPE, host.provider, wanted())

    assert (event.error, host.texts) == ([], (TEXT, KEY))


async def test_a_file_that_cannot_be_written_restores_the_other_one() -> None:
    host = Host()
    host.runner.when("apt-get", "update")
    host.files.refuses[PATH] = "No space left on device"

    event = await manage(TYPE, host.provider, wanted())

    assert event.error == [f"{PATH}: No space left on device"]
    assert host.texts == (None, None)


@pytest.mark.parametrize(
    "serve",
    [
        pytest.param(lambda host: host.download.serve(URL, OTHER_KEY.encode()), id="another key"),
        pytest.param(lambda host: host.download.serve(URL, (KEY + OTHER_KEY).encode()), id="a second key"),
        pytest.param(lambda host: host.download.serve(URL, b"<html>"), id="a page"),
        pytest.param(lambda host: host.download.serve(URL, b"x" * (300 << 10)), id="a huge file"),
        pytest.param(lambda host: host.download.serve(URL, status=404), id="nothing"),
    ],
)
async def test_a_key_that_is_not_the_one_changes_nothing(serve: Callable[[Host], None]) -> None:
    host = Host()
    serve(host)

    event = await manage(TYPE, host.provider, wanted(key=URL))

    assert event.failed
    assert host.texts == (None, None)
    assert host.refreshes == 0


async def test_a_key_is_fetched_once_and_again_when_the_host_has_another() -> None:
    host = Host()
    host.runner.when("apt-get", "update")
    host.download.serve(URL, f"a comment\n{KEY}".encode())

    first = await manage(TYPE, host.provider, wanted(key=URL))
    second = await manage(TYPE, host.provider, wanted(key=URL))
    fetched = len(host.download.transfers)
    host.files.put(KEY_PATH, OTHER_KEY)
    third = await manage(TYPE, host.provider, wanted(key=URL))

    assert (first.error, first.changed, second.changed, fetched) == ([], True, False, 1)
    assert (third.changed, len(host.download.transfers), host.texts) == (True, 2, (TEXT, KEY))


async def test_the_same_key_with_something_else_around_it_is_replaced() -> None:
    host = Host(text=TEXT, key=f"a comment\n{KEY}")
    host.runner.when("apt-get", "update")
    host.download.serve(URL, KEY.encode())

    event = await manage(TYPE, host.provider, wanted(key=URL))

    assert (event.error, event.changed, host.texts) == ([], True, (TEXT, KEY))


async def test_a_plan_fetches_nothing() -> None:
    host = Host()

    event = await manage(TYPE, host.provider, wanted(key=URL), noop=True)

    assert event.noop_message == "Would have added the repository"
    assert (host.download.transfers, host.runner.commands, host.texts) == ([], [], (None, None))


async def test_a_key_in_a_file_is_read_beside_the_manifest() -> None:
    host = Host()
    host.runner.when("apt-get", "update")
    host.files.put("/site/files/own.asc", KEY)

    good = await manage(TYPE, host.provider, wanted(key="files/own.asc"))
    host.files.put("/site/files/own.asc", OTHER_KEY)
    bad = await manage(TYPE, host.provider, wanted(key="files/own.asc"))

    assert (good.error, host.texts) == ([], (TEXT, KEY))
    assert bad.error == [
        f"`key` is refused: its fingerprint is {OTHER_FINGERPRINT}, which differs from `key_fingerprint`"
    ]


@pytest.mark.parametrize("properties", [{"refresh": False}, {"enabled": False}])
async def test_without_a_refresh_nothing_is_fetched(properties: dict[str, Any]) -> None:
    host = Host()

    event = await manage(TYPE, host.provider, wanted(**properties))

    assert (event.error, event.changed, host.refreshes) == ([], True, 0)


async def test_another_mode_is_repaired_without_a_refresh() -> None:
    host = Host(text=TEXT, key=KEY)
    host.files.nodes[PATH].mode = 0o666
    host.files.nodes[KEY_PATH].uid = 1

    event = await manage(TYPE, host.provider, wanted())

    assert (event.error, event.changed) == ([], True)
    assert (host.files.nodes[PATH].mode, host.files.nodes[KEY_PATH].uid) == (0o644, 0)


async def test_a_key_that_is_no_longer_used_is_removed_and_a_foreign_one_is_kept() -> None:
    used, foreign = Host(text=TEXT, key=KEY), Host(key=OTHER_KEY)
    one = wanted(**UNSIGNED, trusted=True, refresh=False)

    await manage(TYPE, used.provider, one)
    await manage(TYPE, foreign.provider, one)
    await manage(TYPE, foreign.provider, RepositoryProperties(name="own", ensure="absent"))

    assert used.texts[1] is None
    assert foreign.texts == (None, OTHER_KEY)


@pytest.mark.parametrize("kind", ["apt", "dnf"])
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"ensure": "absent"}, id="the repository is removed"),
        pytest.param({**UNSIGNED, "trusted": True}, id="it accepts unsigned packages"),
        pytest.param({**UNSIGNED, "signed_by": "/usr/share/keyrings/a.gpg"}, id="it uses a key of the host"),
    ],
)
@pytest.mark.parametrize("is_shared", [True, False])
async def test_a_key_that_another_file_of_the_folder_names_is_kept(
    kind: str, change: dict[str, Any], is_shared: bool
) -> None:
    build = wanted if kind == "apt" else wanted_dnf
    host = Host(kind, key=KEY)
    host.files.put(host.path, FORMATS[kind].content(build()))
    other = FORMATS[kind].content(build("other", **{**UNSIGNED, "signed_by": host.key_path}))
    host.files.put(
        FORMATS[kind].path("other"), other if is_shared else other.replace(b"/own.asc", b"/other.asc")
    )
    one = build(**change, refresh=False)

    changes = await host.provider.compare(one, await host.provider.status(one))
    event = await manage(TYPE, host.provider, one)

    assert (event.error, event.changed) == ([], True)
    assert host.texts[1] == (KEY if is_shared else None)
    assert [path.path for path in changes] == [host.path] + ([] if is_shared else [host.key_path])


async def test_a_key_is_kept_if_the_other_files_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FOLDER_BYTES", len(TEXT))
    host = Host(text=TEXT, key=KEY)
    host.files.put("/etc/apt/sources.list.d/large", "x")

    event = await manage(TYPE, host.provider, RepositoryProperties(name="own", ensure="absent"))

    assert (event.error, event.changed, host.texts) == ([], True, (None, KEY))


async def test_a_second_definition_of_dnf_is_an_error_that_names_its_file() -> None:
    host = Host("dnf")
    host.files.put("/etc/yum.repos.d/vendor.repo", "[vendor]\nname=x\n[own]\ngpgcheck=0\n")

    event = await manage(TYPE, host.provider, wanted_dnf())

    assert event.failed
    assert "/etc/yum.repos.d/vendor.repo also has a repository of this name" in event.error[0]


@pytest.mark.parametrize("path", [PATH, KEY_PATH])
@pytest.mark.parametrize("kind", ["directory", "fifo"])
async def test_what_is_no_file_is_an_error(path: str, kind: str) -> None:
    host = Host()
    (host.files.put_directory if kind == "directory" else host.files.put_fifo)(path)

    event = await manage(TYPE, host.provider, wanted())

    assert event.failed
    assert f"{path} is not a file" in event.error[0]


async def test_a_thousand_repositories_are_one_look_and_no_read() -> None:
    host = Host()
    many = [wanted(f"own{number}") for number in range(1000)]
    for one in many:
        host.files.put(FORMATS["apt"].path(one.name), FORMATS["apt"].content(one))
        host.files.put(FORMATS["apt"].key_path(one.name), KEY)
    reads: list[str] = []

    async def refuse_read(path: str, limit_bytes: int) -> bytes:
        reads.append(path)
        raise AssertionError("nothing differs")

    host.files.read = refuse_read  # type: ignore[method-assign]

    found = await host.provider.look_ahead(many)

    assert [decide(one, state, DecisionContext()) for one, state in zip(many, found, strict=True)] == (
        [Decision()] * 1000
    )
    assert (len(host.files.looked_at), reads, host.runner.commands) == (1, [], [])


async def test_a_diff_shows_the_file_and_hides_what_may_be_a_password() -> None:
    host, secret = Host(text=TEXT, key=OTHER_KEY), Host("dnf", text="[own]\npassword=hunter2\n")
    one, other = wanted(suites=["trixie"]), wanted_dnf()

    file, key = await host.provider.compare(one, await host.provider.status(one))
    private, _ = await secret.provider.compare(other, await secret.provider.status(other))

    assert (file.before, file.after) == (TEXT.encode(), TEXT.replace("bookworm", "trixie").encode())
    assert (key.path, key.why, key.is_private) == (KEY_PATH, "keys are not compared line by line", False)
    assert (file.is_private, private.is_private) == (False, True)


async def test_published_states_have_neither_the_key_nor_what_was_read() -> None:
    event = await manage(
        TYPE, Host("dnf", text="[own]\npassword=hunter2\n").provider, wanted_dnf(), noop=True
    )

    assert "hunter2" not in repr(event.status)
    assert "BEGIN PGP" not in repr(event.status)


async def keep_nothing(path: str, *, with_content: bool) -> EarlierFile:
    raise AssertionError("no file is kept")


@pytest.mark.parametrize(
    ("text", "key", "change"),
    [
        pytest.param(None, None, {}, id="there was nothing"),
        pytest.param(TEXT, KEY, {"suites": ["trixie"], "key": OTHER_KEY, "key_fingerprint": OTHER_FINGERPRINT}, id="another key"),
        pytest.param(TEXT, KEY, {"ensure": "absent"}, id="it was removed"),
        pytest.param(TEXT, KEY, {**UNSIGNED, "trusted": True}, id="its key was removed"),
        pytest.param(TEXT.replace(f"Signed-By: {KEY_PATH}", "Trusted: yes"), None, {}, id="it was unsigned"),
        pytest.param(TEXT.replace(KEY_PATH, "/usr/share/keyrings/a.gpg"), None, {}, id="it had a key of the host"),
    ],
)  # fmt: skip
async def test_an_undo_restores_both_files(text: str | None, key: str | None, change: dict[str, Any]) -> None:
    host, one = Host(text=text, key=key), wanted(**change)
    host.runner.when("apt-get", "update")
    found = await host.provider.status(one)
    before = identify(found)
    kept = await earlier(one, found, Decision(), keep_nothing)

    event = await manage(TYPE, host.provider, one)
    changed = identify(await host.provider.status(one))
    back = RepositoryProperties(name="own", **kept.properties)
    check(back)
    await manage(TYPE, host.provider, back)

    assert (event.error, kept.why_not) == ([], "")
    assert changed != before
    assert (host.texts, identify(await host.provider.status(back))) == ((text, key), before)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        pytest.param(f"Types: deb\nSigned-By: {KEY_PATH}\n", KEY, id="a file of another tool"),
        pytest.param(TEXT, f"a comment\n{KEY}", id="a key with a comment"),
        pytest.param(TEXT, None, id="a missing key"),
        pytest.param(None, OTHER_KEY, id="a key of something else"),
    ],
)
async def test_foreign_files_are_not_undone(text: str | None, key: str | None) -> None:
    one = wanted(suites=["trixie"])

    kept = await earlier(one, await Host(text=text, key=key).provider.status(one), Decision(), keep_nothing)

    assert kept.why_not == FOREIGN


def test_the_policy_sees_the_files_of_both_managers_before_a_removal() -> None:
    access = reach(RepositoryProperties(name="redhat", ensure="absent", suites=["./"]))

    assert "/etc/yum.repos.d/redhat.repo" in access.paths
    assert "/etc/apt/sources.list.d/redhat.sources" in access.paths


@pytest.mark.parametrize(
    ("one", "paths", "reads"),
    [
        pytest.param(wanted(key=URL), (PATH, KEY_PATH), ("https://repo.example.net/debian", URL), id="apt"),
        pytest.param(
            wanted_dnf(key="files/own.asc"),
            (REPO, REPO_KEY),
            ("https://repo.example.net/el$releasever", "files/own.asc"),
            id="dnf",
        ),
        pytest.param(
            RepositoryProperties(name="own", ensure="absent"),
            (PATH, KEY_PATH, REPO, REPO_KEY),
            (),
            id="absent",
        ),
    ],
)
def test_the_policy_sees_files_and_urls(
    one: RepositoryProperties, paths: tuple[str, ...], reads: tuple[str, ...]
) -> None:
    assert (reach(one).paths, reach(one).reads) == (paths, reads)


def test_the_policy_sees_a_local_folder_and_the_missing_signature() -> None:
    assert reach(wanted(uris=["file:/srv/apt"])).reads_trees == ("/srv/apt",)
    assert TYPE.rules.unsigned == {"trusted"}
    assert Grant().refuse_unsigned("trusted") is None
    refused: CcmError | None = Grant(denial="no").refuse_unsigned("trusted")
    assert refused is not None
