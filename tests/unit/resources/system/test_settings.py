"""The system type: its checks, its decision table, its undo, and its provider on files and programs that are faked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ccm_agent.model.errors import FileError, LockError, PropertyError
from ccm_agent.model.records.undo import EarlierFile
from ccm_agent.resources.contract import Decision, DecisionContext
from ccm_agent.resources.system import TYPE
from ccm_agent.resources.system.lines import normal_locale, read_lang, with_lang
from ccm_agent.resources.system.model import KERNEL_HOSTNAME, SystemProperties
from ccm_agent.resources.system.providers.etc import Etc
from ccm_agent.resources.system.resource import check, decide, reach
from ccm_agent.resources.system.undo import earlier, identify
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.kernel import FakeKernel
from ccm_agent.testing.locks import FakeLocks
from ccm_agent.testing.runner import FakeRunner
from tests.support.resources import manage

ZONE = b"TZif2\0"
LOCALES = "C\nC.utf8\nPOSIX\nde_DE.utf8\nca_ES.utf8@valencia\n"
"""What `locale -a` of Debian 12 prints, shortened."""


def wanted(name: str = "hostname", value: str = "web1", **properties: Any) -> SystemProperties:
    return SystemProperties(name=name, value=value, **{"ensure": "present", **properties})


class Host:
    """A host of a distribution, with its settings in memory."""

    def __init__(self, kind: str = "debian12") -> None:
        self.files, self.locks, self.runner = FakeFiles(), FakeLocks(), FakeRunner()
        self.kernel = FakeKernel({KERNEL_HOSTNAME: "old"})
        self.files.put("/etc/hostname", "# static\nold\n")
        for zone in ("Europe/Berlin", "Etc/UTC", "UTC"):
            self.files.put(f"/usr/share/zoneinfo/{zone}", ZONE)
        self.files.put("/usr/share/zoneinfo/leapseconds", "# text")
        if kind == "debian12":
            self.files.put("/etc/debian_version", "12.11\n")
            self.files.put_symlink("/etc/localtime", "/usr/share/zoneinfo/Etc/UTC")
            self.files.put("/etc/timezone", "Etc/UTC\n")
            self.files.put("/etc/default/locale", "# kept\nLANG=C.UTF-8\nLC_TIME=C\n")
        elif kind == "debian13":
            self.files.put("/etc/debian_version", "13.1\n")
            self.files.put_symlink("/etc/localtime", "/usr/share/zoneinfo/Etc/UTC")
            self.files.put("/etc/locale.conf", 'LANG="C.UTF-8"\n')
            self.files.put_symlink("/etc/default/locale", "../locale.conf")
        else:
            self.files.put_symlink("/etc/localtime", "../usr/share/zoneinfo/Etc/UTC")
            self.files.put("/etc/locale.conf", 'LANG="C.UTF-8"\n')
        self.runner.when("hostname", effect=self._set_hostname)
        self.runner.when("locale", "-a", stdout=LOCALES, stderr="locale: Cannot set LC_CTYPE\n")
        self.provider = Etc(self.runner, self.files, self.kernel, self.locks)

    def _set_hostname(self) -> None:
        self.kernel.values[KERNEL_HOSTNAME] = self.runner.commands[-1].argv[1]

    def text(self, path: str) -> str:
        node = self.files.nodes[path]
        return node.link or node.content.decode()


@pytest.mark.parametrize(
    ("properties", "place"),
    [
        pytest.param({"name": "kernel"}, "name", id="a setting that does not exist"),
        pytest.param({"name": "/etc/shadow"}, "name", id="a path as setting"),
        pytest.param({"name": "hostname\n"}, "name", id="a newline in the setting"),
        pytest.param({"value": ""}, "value", id="no value"),
        pytest.param({"value": "", "ensure": "absent"}, "ensure", id="no host name"),
        pytest.param(
            {"name": "timezone", "value": "UTC", "ensure": "absent"}, "value", id="a value to remove"
        ),
        pytest.param({"value": "-F"}, "value", id="a host name like an option"),
        pytest.param({"value": "web1\nroot"}, "value", id="a newline in the host name"),
        pytest.param({"value": "web1\0"}, "value", id="a NUL"),
        pytest.param({"value": "web 1"}, "value", id="a space"),
        pytest.param({"value": "web_1"}, "value", id="an underscore"),
        pytest.param({"value": "web1."}, "value", id="a dot at the end"),
        pytest.param({"value": "w\u00e9b1"}, "value", id="a letter that is not ASCII"),
        pytest.param({"value": "../shadow"}, "value", id="a path as host name"),
        pytest.param({"value": "a" * 64}, "value", id="an overlong part"),
        pytest.param({"value": "a.bc" * 17}, "value", id="an overlong host name"),
        pytest.param({"value": "a" * 1_000_000}, "value", id="a huge host name"),
        pytest.param({"name": "timezone", "value": "../../../etc/shadow"}, "value", id="a path upwards"),
        pytest.param({"name": "timezone", "value": "/etc/shadow"}, "value", id="an absolute path"),
        pytest.param({"name": "timezone", "value": "Europe/../UTC"}, "value", id="a path that returns"),
        pytest.param(
            {"name": "timezone", "value": "localtime"}, "value", id="a zone that is the link itself"
        ),
        pytest.param({"name": "timezone", "value": "Europe//Berlin"}, "value", id="two slashes"),
        pytest.param({"name": "timezone", "value": "Europe/"}, "value", id="a slash at the end"),
        pytest.param({"name": "timezone", "value": "-UTC"}, "value", id="a zone like an option"),
        pytest.param({"name": "timezone", "value": "UTC\n"}, "value", id="a newline in the zone"),
        pytest.param({"name": "timezone", "value": "zone.tab"}, "value", id="another file of zones"),
        pytest.param({"name": "timezone", "value": "A" * 256}, "value", id="an overlong zone"),
        pytest.param(
            {"name": "locale", "value": "C\nLD_PRELOAD=/tmp/x"}, "value", id="a newline in the locale"
        ),
        pytest.param({"name": "locale", "value": "C$(reboot)"}, "value", id="a command in the locale"),
        pytest.param({"name": "locale", "value": "../C"}, "value", id="a path as locale"),
        pytest.param({"name": "locale", "value": "C;x"}, "value", id="a semicolon"),
        pytest.param({"name": "locale", "value": "C" * 256}, "value", id="an overlong locale"),
    ],
)
def test_hostile_properties_are_refused(properties: dict[str, Any], place: str) -> None:
    with pytest.raises(PropertyError) as caught:
        check(wanted(**properties))

    assert caught.value.place is not None
    assert caught.value.place.path == f"$.{place}"
    assert len(str(caught.value)) < 1000


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(PropertyError) as caught:
        check(wanted("kernel", ""))

    assert [one.place.path for one in caught.value.others if one.place] == ["$.value"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hostname", "web1"),
        ("hostname", "WEB-1.example.net"),
        ("timezone", "America/Argentina/Buenos_Aires"),
        ("timezone", "Etc/GMT+12"),
        ("locale", "C"),
        ("locale", "ca_ES.UTF-8@valencia"),
        ("locale", "de_DE.ISO-8859-15@euro"),
    ],
)
def test_usual_values_are_accepted(name: str, value: str) -> None:
    check(wanted(name, value))


@pytest.mark.parametrize("name", ["timezone", "locale"])
def test_a_time_zone_and_a_locale_can_be_absent(name: str) -> None:
    check(wanted(name, "", ensure="absent"))


@pytest.mark.parametrize(
    ("kind", "name", "value", "texts"),
    [
        pytest.param("debian12", "hostname", "web1", {"/etc/hostname": "# static\nweb1\n"}, id="host name"),
        pytest.param(
            "debian12",
            "timezone",
            "Europe/Berlin",
            {"/etc/localtime": "/usr/share/zoneinfo/Europe/Berlin", "/etc/timezone": "Europe/Berlin\n"},
            id="time zone of Debian 12",
        ),
        pytest.param(
            "fedora",
            "timezone",
            "Europe/Berlin",
            {"/etc/localtime": "../usr/share/zoneinfo/Europe/Berlin"},
            id="time zone of a dnf system",
        ),
        pytest.param(
            "debian12",
            "locale",
            "de_DE.UTF-8",
            {"/etc/default/locale": "# kept\nLANG=de_DE.UTF-8\nLC_TIME=C\n"},
            id="locale of Debian 12",
        ),
        pytest.param(
            "debian13",
            "locale",
            "de_DE.UTF-8",
            {"/etc/locale.conf": "LANG=de_DE.UTF-8\n", "/etc/default/locale": "../locale.conf"},
            id="locale of Debian 13",
        ),
        pytest.param(
            "fedora",
            "locale",
            "ca_ES.utf8@valencia",
            {"/etc/locale.conf": "LANG=ca_ES.utf8@valencia\n"},
            id="locale of a dnf system",
        ),
    ],
)
async def test_a_setting_is_set_stable_and_undone(
    kind: str, name: str, value: str, texts: dict[str, str]
) -> None:
    host, entry = Host(kind), wanted(name, value)
    found = await host.provider.status(entry)
    kept = await earlier(entry, found, Decision(), keep_nothing)

    first = await manage(TYPE, host.provider, entry)
    second = await manage(TYPE, host.provider, entry)
    written = {path: host.text(path) for path in texts}
    back = SystemProperties(name=name, **kept.properties)
    check(back)
    undone = await manage(TYPE, host.provider, back)

    assert (first.error, first.changed, second.error, second.changed) == ([], True, [], False)
    assert written == texts
    assert undone.error == []
    assert identify(await host.provider.status(back)) == identify(found)


async def keep_nothing(path: str, *, with_content: bool) -> EarlierFile:
    raise AssertionError("no file is kept")


@pytest.mark.parametrize(
    ("live", "static", "steps"),
    [
        pytest.param("old", "old", ["kernel", "file"], id="both"),
        pytest.param("web1", "old", ["file"], id="a name that would be lost at the next boot"),
        pytest.param("dhcp-7", "web1", ["kernel"], id="a name that another program set"),
        pytest.param("web1", "web1", [], id="stable"),
    ],
)
async def test_the_host_name_has_two_places(live: str, static: str, steps: list[str]) -> None:
    host = Host()
    host.kernel.values[KERNEL_HOSTNAME] = live
    host.files.put("/etc/hostname", f"{static}\n")

    decision = decide(wanted(), await host.provider.status(wanted()), DecisionContext())

    noops = {
        "kernel": "Would have set /proc/sys/kernel/hostname to web1",
        "file": "Would have set /etc/hostname to web1",
    }
    assert [one.noop for one in decision.steps] == [noops[one] for one in steps]
    assert [(one.before, one.after) for one in decision.changes] == [
        (live if one == "kernel" else static, "web1") for one in steps
    ]


@pytest.mark.parametrize("name", ["timezone", "locale"])
async def test_absent_removes_a_setting_and_its_undo_sets_it(name: str) -> None:
    host, entry = Host(), wanted(name, "", ensure="absent")
    found = await host.provider.status(entry)
    kept = await earlier(entry, found, Decision(), keep_nothing)

    event = await manage(TYPE, host.provider, entry)
    gone = await host.provider.status(entry)
    to_nothing = await earlier(wanted(name, "UTC"), gone, Decision(), keep_nothing)
    await manage(TYPE, host.provider, SystemProperties(name=name, **kept.properties))

    assert (event.error, gone.ensure, set(gone.values.values())) == ([], "absent", {""})
    assert to_nothing.properties == {"ensure": "absent"}
    assert (await host.provider.status(entry)).ensure == "present"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        pytest.param("timezone", "Europe/Nowhere", "there is no time zone Europe/Nowhere", id="no such zone"),
        pytest.param("timezone", "Europe", "there is no time zone Europe", id="a directory of zones"),
        pytest.param("timezone", "leapseconds", "there is no time zone leapseconds", id="not a zone"),
        pytest.param("locale", "xx_XX.UTF-8", "`locale -a` does not list xx_XX.UTF-8", id="no such locale"),
        pytest.param("locale", "de_DE", "`locale -a` does not list de_DE:", id="without its codeset"),
    ],
)
async def test_what_the_host_does_not_have_is_an_error_before_any_change(
    name: str, value: str, message: str
) -> None:
    host = Host()
    before = dict(host.files.nodes)

    event = await manage(TYPE, host.provider, wanted(name, value))

    assert event.failed
    assert message in event.error[0]
    assert host.files.nodes == before


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param(
            {"code": 1, "stderr": "hostname: you must be root to change the host name"},
            "the host name of the kernel cannot be set: hostname: you must be root",
            id="a container without the right",
        ),
        pytest.param({"hangs": True}, "`hostname` ran for 30 s and was killed", id="a program that hangs"),
        pytest.param({"error": "hostname: no such program"}, "hostname: no such program", id="no program"),
    ],
)
async def test_a_host_name_that_the_kernel_refuses_is_not_written(
    answer: dict[str, Any], message: str
) -> None:
    host, runner = Host(), FakeRunner()
    runner.when("hostname", **answer)

    event = await manage(TYPE, Etc(runner, host.files, host.kernel, host.locks), wanted())

    assert message in event.error[0]
    assert host.text("/etc/hostname") == "# static\nold\n"


@pytest.mark.parametrize("answer", [{"code": 1}, {"hangs": True}, {"error": "locale: no such program"}])
async def test_locales_that_cannot_be_listed_are_an_error(answer: dict[str, Any]) -> None:
    host, runner = Host(), FakeRunner()
    runner.when("locale", **answer)

    event = await manage(TYPE, Etc(runner, host.files, host.kernel, host.locks), wanted("locale", "C"))

    assert event.failed
    assert "LANG=C.UTF-8" in host.text("/etc/default/locale")


async def test_a_copy_of_a_zone_becomes_a_link_that_cannot_be_undone() -> None:
    host = Host("fedora")
    host.files.put("/etc/localtime", ZONE)
    entry = wanted("timezone", "UTC")
    found = await host.provider.status(entry)

    event = await manage(TYPE, host.provider, entry)
    kept = await earlier(entry, found, Decision(), keep_nothing)

    assert (event.error, event.changed) == ([], True)
    assert host.text("/etc/localtime") == "../usr/share/zoneinfo/UTC"
    assert "its earlier value cannot be written" in kept.why_not


@pytest.mark.parametrize(
    "target", ["/srv/zones/UTC", "/usr/share/zoneinfo/../../../etc/shadow", "/srv/\udcff"]
)
async def test_a_link_to_elsewhere_is_shown_and_replaced(target: str) -> None:
    host = Host("fedora")
    host.files.put_symlink("/etc/localtime", target)
    entry = wanted("timezone", "UTC")
    found = await host.provider.status(entry)

    event = await manage(TYPE, host.provider, entry)
    kept = await earlier(entry, found, Decision(), keep_nothing)

    assert msgspec.json.encode(found)
    assert (event.error, event.changed) == ([], True)
    assert host.text("/etc/localtime").endswith("/usr/share/zoneinfo/UTC")
    assert kept.why_not


async def test_different_names_cannot_be_undone_by_one() -> None:
    host = Host()
    host.kernel.values[KERNEL_HOSTNAME] = "dhcp-7"
    found = await host.provider.status(wanted())

    kept = await earlier(wanted(), found, Decision(), keep_nothing)

    assert kept.why_not == (
        "it had different values: dhcp-7 in /proc/sys/kernel/hostname, old in /etc/hostname"
    )


@pytest.mark.parametrize(
    ("lines", "value", "changed"),
    [
        pytest.param([], "", ["LANG=C"], id="no file"),
        pytest.param(
            ["LANG=a", "X=1", "LANG='b c'"], "b c", ["LANG=C", "X=1"], id="the last one takes effect"
        ),
        pytest.param(["LANGUAGE=de", "#LANG=x"], "", ["LANGUAGE=de", "#LANG=x", "LANG=C"], id="other names"),
        pytest.param(["X=1", " export LANG=de ", "Y=2"], "de", ["X=1", "LANG=C", "Y=2"], id="an export"),
        pytest.param(['LANG="'], '"', ["LANG=C"], id="half a quote"),
    ],
)
def test_other_lines_of_a_locale_are_kept(lines: list[str], value: str, changed: list[str]) -> None:
    assert read_lang(lines) == value
    assert with_lang(lines, "C") == changed
    assert with_lang(changed, "C") == changed
    assert with_lang(changed, "") == [one for one in changed if one != "LANG=C"]


def test_a_codeset_is_compared_as_glibc_does() -> None:
    assert normal_locale("ca_ES.UTF-8@valencia") == normal_locale("ca_ES.utf8@valencia")
    assert len({normal_locale(one) for one in ("de_DE", "de_DE.UTF-8", "de_DE@euro", "de_DE.8859")}) == 4


async def test_a_file_of_another_kind_is_an_error() -> None:
    host = Host()
    host.files.put_symlink("/etc/hostname", "/etc/shadow")

    with pytest.raises(FileError, match="is a symlink to /etc/shadow"):
        await host.provider.status(wanted())


async def test_a_huge_value_is_not_published() -> None:
    host = Host()
    host.files.put("/etc/hostname", "a" * 1_000_000)

    found = await host.provider.status(wanted())

    assert len(msgspec.json.encode(found)) < 2000


async def test_a_lock_that_another_program_holds_is_an_error() -> None:
    host = Host()
    host.locks.foreign["system"] = "ccm apply (pid 7)"

    with pytest.raises(LockError, match="held by ccm apply"):
        await host.provider.set("/etc/hostname", "web1")

    assert host.text("/etc/hostname") == "# static\nold\n"


async def test_all_settings_of_a_manifest_are_one_look() -> None:
    host = Host()
    all_of_them = [wanted(), wanted("timezone", "UTC"), wanted("locale", "C")]

    found = await host.provider.look_ahead(all_of_them)

    assert [one.ensure for one in found] == ["present"] * 3
    assert host.runner.lines == ["locale -a"]


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("hostname", ("/proc/sys/kernel/hostname", "/etc/hostname")),
        ("timezone", ("/etc/localtime", "/etc/timezone")),
        ("locale", ("/etc/locale.conf", "/etc/default/locale")),
    ],
)
def test_the_policy_sees_every_place(name: str, paths: tuple[str, ...]) -> None:
    assert reach(wanted(name)).paths == paths
