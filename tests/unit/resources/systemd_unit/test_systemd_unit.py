"""The systemd_unit type: its checks, its decision table, its undo, and its provider on files in memory."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.model.errors import CommandError, PropertyError
from ccm_agent.model.records.undo import EarlierFile
from ccm_agent.resources.contract import Decision, DecisionContext
from ccm_agent.resources.systemd_unit import TYPE
from ccm_agent.resources.systemd_unit.model import SystemdUnitProperties, SystemdUnitState
from ccm_agent.resources.systemd_unit.providers.loaded import by_name, must_reload, pattern
from ccm_agent.resources.systemd_unit.providers.systemd import SystemdUnits
from ccm_agent.resources.systemd_unit.resource import check, decide, reach
from ccm_agent.resources.systemd_unit.undo import earlier, identify
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.locks import FakeLocks
from ccm_agent.testing.runner import FakeRunner
from tests.support.resources import manage

UNIT = "[Service]\nExecStart=/bin/true\n"
PATH = "/etc/systemd/system/app.service"
DROP_IN = "/etc/systemd/system/app.service.d/limits.conf"


def wanted(name: str = "app.service", **properties: Any) -> SystemdUnitProperties:
    usual = {"ensure": "present"} if "source" in properties else {"ensure": "present", "content": UNIT}
    return SystemdUnitProperties(name=name, **{**usual, **properties})


def absent(name: str = "app.service", **properties: Any) -> SystemdUnitProperties:
    return SystemdUnitProperties(name=name, ensure="absent", **properties)


class Host:
    """A host with systemd, which accepts all units, on files in memory."""

    def __init__(self, text: str | None = None, *, shown: str = "", has_systemd: bool = True) -> None:
        self.files, self.runner, self.locks = FakeFiles(), FakeRunner(), FakeLocks()
        self.files.put_directory("/etc/systemd/system")
        self.files.put_directory("/run/systemd/system" if has_systemd else "/run")
        if text is not None:
            self.files.put(PATH, text)
        self.runner.when("systemctl", "show", stdout=shown)
        self.runner.when("systemctl", "daemon-reload")
        self.provider = SystemdUnits(self.runner, self.files, self.locks, "/srv/site")

    def verify(self, **answer: Any) -> None:
        self.runner.when("systemd-analyze", "verify", **answer)

    @property
    def verbs(self) -> list[str]:
        return [command.argv[1] for command in self.runner.commands]

    def text(self, path: str = PATH) -> str | None:
        node = self.files.nodes.get(path)
        return node.content.decode() if node else None


@pytest.mark.parametrize(
    ("properties", "place"),
    [
        pytest.param({"name": "app"}, "name", id="no suffix"),
        pytest.param({"name": "app.conf"}, "name", id="another suffix"),
        pytest.param({"name": "../app.service"}, "name", id="a path upwards"),
        pytest.param({"name": "/etc/app.service"}, "name", id="a path"),
        pytest.param({"name": "-H.service"}, "name", id="an option"),
        pytest.param({"name": ".service"}, "name", id="only a suffix"),
        pytest.param({"name": ".app.service"}, "name", id="a hidden file"),
        pytest.param({"name": "a*.service"}, "name", id="a pattern"),
        pytest.param({"name": "a[b].service"}, "name", id="a pattern of characters"),
        pytest.param({"name": "app.service\n"}, "name", id="a newline"),
        pytest.param({"name": "app\0.service"}, "name", id="a NUL"),
        pytest.param({"name": "a b.service"}, "name", id="a space"),
        pytest.param({"name": "a@b@c.service"}, "name", id="two instances"),
        pytest.param({"name": "a" * 200 + ".service"}, "name", id="an overlong name"),
        pytest.param({"name": "ünit.service"}, "name", id="letters of no unit"),
        pytest.param({"unit": "nginx"}, "unit", id="a unit without suffix"),
        pytest.param({"unit": "../nginx.service"}, "unit", id="a unit upwards"),
        pytest.param({"drop_in": "limits"}, "drop_in", id="a drop-in without suffix"),
        pytest.param({"drop_in": "../x.conf"}, "drop_in", id="a drop-in upwards"),
        pytest.param({"drop_in": ".x.conf"}, "drop_in", id="a hidden drop-in"),
        pytest.param({"drop_in": "a\n.conf"}, "drop_in", id="a newline in a drop-in"),
        pytest.param({"drop_in": "a" * 196 + ".conf"}, "drop_in", id="an overlong drop-in"),
        pytest.param({"content": ""}, "content", id="no content"),
        pytest.param({"content": "[Service]\0"}, "content", id="a NUL in the content"),
        pytest.param({"content": "#" * ((1 << 20) + 1)}, "content", id="huge content"),
        pytest.param({"content": None}, "content", id="neither content nor source"),
        pytest.param({"content": "x", "source": "y"}, "source", id="both"),
        pytest.param({"source": "https://example.net/x"}, "source", id="a URL"),
        pytest.param({"source": "a\nb"}, "source", id="a newline in the source"),
    ],
)
def test_hostile_properties_are_refused(properties: dict[str, Any], place: str) -> None:
    with pytest.raises(PropertyError) as caught:
        check(wanted(**properties))

    assert caught.value.place is not None
    assert caught.value.place.path == f"$.{place}"


@pytest.mark.parametrize(
    "name", ["app.service", "app@.service", "app@one.service", r"srv-a\x2db.mount", "a-.slice", "x:y.socket"]
)
def test_names_of_units_are_accepted(name: str) -> None:
    check(wanted(name))


def state(**values: Any) -> SystemdUnitState:
    usual = {"ensure": "absent", "path": PATH, "desired_checksum": "new", "desired_size": 1}
    return SystemdUnitState(
        protocol=TYPE.state_protocol, type="systemd_unit", name="app.service", **{**usual, **values}
    )


AS_WANTED = {"ensure": "present", "kind": "file", "checksum": "new", "mode": "0644", "uid": 0, "gid": 0}


@pytest.mark.parametrize(
    ("properties", "found", "noop"),
    [
        pytest.param(wanted(), state(**AS_WANTED), [], id="as wanted"),
        pytest.param(wanted(), state(), ["Would have created the unit"], id="not there"),
        pytest.param(
            wanted(),
            state(**{**AS_WANTED, "checksum": "old"}),
            ["Would have changed the unit"],
            id="other content",
        ),
        pytest.param(
            wanted(), state(**{**AS_WANTED, "mode": "0666"}), ["Would have changed the unit"], id="other mode"
        ),
        pytest.param(
            wanted(), state(**{**AS_WANTED, "uid": 7}), ["Would have changed the unit"], id="other owner"
        ),
        pytest.param(
            wanted(drop_in="a.conf"), state(), ["Would have created the drop-in"], id="no drop-in yet"
        ),
        pytest.param(
            wanted(),
            state(**AS_WANTED, needs_reload=True),
            ["Would have reloaded systemd"],
            id="not read yet",
        ),
        pytest.param(absent(), state(), [], id="absent"),
        pytest.param(absent(), state(**AS_WANTED), ["Would have removed the unit"], id="to be removed"),
    ],
)
def test_what_must_be_done_follows_from_what_is_wanted_and_there(
    properties: SystemdUnitProperties, found: SystemdUnitState, noop: list[str]
) -> None:
    assert [step.noop for step in decide(properties, found, DecisionContext()).steps] == noop


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (state(kind="symlink", link="/dev/null", ensure="present"), "the unit is masked"),
        (state(kind="symlink", link="/lib/x.service", ensure="present"), "a symlink to /lib/x.service"),
        (state(kind="other", ensure="present"), "is not a regular file"),
        (state(desired_size=0), "treats an empty unit file as masked"),
        (state(error="source /x: does not exist"), "does not exist"),
    ],
)
def test_what_is_not_a_unit_file_is_left_alone(found: SystemdUnitState, message: str) -> None:
    decision = decide(wanted(), found, DecisionContext())

    assert decision.steps == ()
    assert message in str(decision.error)


def test_the_policy_sees_the_file_the_service_and_the_source() -> None:
    access = reach(wanted(drop_in="limits.conf", source="/srv/x"))

    assert (access.paths, access.services, access.reads) == ((DROP_IN,), ("app.service",), ("/srv/x",))


async def test_a_unit_is_verified_written_and_reloaded_once_at_the_end() -> None:
    host = Host(shown="Names=app.service\nLoadState=loaded\nFragmentPath=/lib/app.service\nDropInPaths=\n")
    host.verify()

    event = await manage(TYPE, host.provider, wanted())
    assert "daemon-reload" not in host.verbs
    await host.provider.finish()
    await host.provider.finish()

    assert (event.changed, host.text()) == (True, UNIT)
    assert host.verbs.count("daemon-reload") == 1
    assert not [path for path in host.files.nodes if path.startswith("/run/ccm-verify")]


async def test_a_unit_that_systemd_would_not_read_is_refused() -> None:
    host = Host("old\n")
    host.verify()
    real = host.runner.run

    async def run(command: Any, on_line: Any = None) -> Any:
        done = await real(command, on_line)
        if command.argv[0] == "systemd-analyze":
            text = f"{command.argv[-1]}:3: Unknown key name 'Foo' in section 'Service', ignoring.\n"
            return type(done)(code=0, stdout=text.encode(), stderr=b"")
        return done

    host.runner.run = run  # type: ignore[method-assign]

    event = await manage(TYPE, host.provider, wanted())

    assert event.failed
    assert event.error == [
        f"{PATH} is not valid, so nothing was written: app.service:3: Unknown key name 'Foo' in section 'Service', ignoring."
    ]
    assert host.text() == "old\n"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"error": "systemd-analyze: not found"}, "cannot be verified, so nothing was written"),
        ({"hangs": True}, "ran for 120 s and was killed"),
        ({"code": -9}, "was killed by signal 9"),
    ],
)
async def test_without_a_verification_nothing_is_written(answer: dict[str, Any], message: str) -> None:
    host = Host("old\n")
    host.verify(**answer)

    event = await manage(TYPE, host.provider, wanted())

    assert event.failed
    assert message in event.error[0]
    assert host.text() == "old\n"
    assert not [path for path in host.files.nodes if path.startswith("/run/ccm-verify")]


async def test_what_a_killed_verification_left_is_removed_under_the_lock() -> None:
    host = Host()
    host.verify()
    host.files.put("/run/ccm-verify/stale.service", "[Service]\n")

    event = await manage(TYPE, host.provider, wanted())

    assert event.error == []
    assert "verify" in host.locks.held
    assert not [path for path in host.files.nodes if path.startswith("/run/ccm-verify")]


async def test_the_folder_of_another_verification_is_not_touched() -> None:
    host = Host()
    host.files.put("/run/ccm-verify/theirs.service", "[Service]\n")
    host.locks.foreign["verify"] = "ccm agent (pid 7)"

    event = await manage(TYPE, host.provider, wanted())

    assert "is still held by ccm agent (pid 7)" in event.error[0]
    assert "/run/ccm-verify/theirs.service" in host.files.nodes


async def test_without_a_place_to_verify_nothing_is_written() -> None:
    host = Host("old\n")
    host.files.put("/run", "not a directory")

    event = await manage(TYPE, host.provider, wanted())

    assert event.failed
    assert event.error[0].startswith("the unit cannot be verified, so nothing was written: /run/ccm-verify")
    assert host.text() == "old\n"


async def test_a_thousand_units_are_one_look_and_one_question() -> None:
    host = Host()
    many = [wanted(f"app{number}.service") for number in range(1000)]
    for one in many:
        host.files.put(one.path, UNIT)

    states = await host.provider.look_ahead(many)

    assert len(states) == 1000
    assert host.verbs == ["show"]
    assert len(host.files.looked_at) == 1


async def test_a_reload_that_fails_is_an_error() -> None:
    host = Host(UNIT, shown="Names=app.service\nLoadState=loaded\nNeedDaemonReload=yes\n")
    runner = FakeRunner()
    runner.when("systemctl", "show", stdout="Names=app.service\nNeedDaemonReload=yes\n")
    runner.when("systemctl", "daemon-reload", code=1, stderr="Access denied")
    provider = SystemdUnits(runner, host.files, host.locks, "/")

    await provider.reload(wanted())
    for _ in range(2):  # what follows needs the reload, too
        with pytest.raises(CommandError, match="systemd cannot load the changed units: Access denied"):
            await provider.finish()
    assert [command.argv[1] for command in runner.commands] == ["show", "daemon-reload"]


async def test_a_reload_that_was_cancelled_is_made_up_for() -> None:
    shown = "Names=app.service\nNeedDaemonReload=yes\n"
    host = Host(UNIT, shown=shown)
    await host.provider.reload(wanted())
    host.files.inspect, inspect = None, host.files.inspect  # type: ignore[method-assign, assignment]
    with pytest.raises(TypeError):  # stands for a cancellation: it is no error of the reload itself
        await host.provider.finish()
    host.files.inspect = inspect  # type: ignore[method-assign]

    await host.provider.finish()

    assert host.verbs == ["show", "daemon-reload"]


async def test_a_unit_is_not_removed_where_commands_are_forbidden() -> None:
    host = Host(UNIT)
    provider = SystemdUnits(host.runner, host.files, host.locks, "/", asks_systemd=False)

    event = await manage(TYPE, provider, absent())

    assert event.failed
    assert "the node's policy forbids commands" in event.error[0]
    assert host.text() == UNIT


async def test_without_systemd_the_files_alone_are_managed() -> None:
    host = Host(has_systemd=False)
    host.verify()

    event = await manage(TYPE, host.provider, wanted())
    await host.provider.finish()

    assert event.changed
    assert host.verbs == ["verify"]


async def test_the_last_drop_in_takes_its_directory_with_it() -> None:
    host = Host()
    host.files.put(DROP_IN, "[Service]\nNice=1\n")

    await manage(TYPE, host.provider, absent(drop_in="limits.conf"))

    assert DROP_IN not in host.files.nodes
    assert "/etc/systemd/system/app.service.d" not in host.files.nodes


async def test_a_secret_unit_can_be_read_by_root_alone() -> None:
    host = Host()
    host.verify()

    await manage(TYPE, host.provider, wanted(sensitive=True))

    assert host.files.nodes[PATH].mode == 0o600


@pytest.mark.parametrize(
    ("one", "is_there", "unit", "expected"),
    [
        (wanted(), True, {"NeedDaemonReload": "yes"}, True),
        (wanted(), True, {"FragmentPath": PATH}, False),
        (wanted(), True, {"FragmentPath": "/lib/systemd/system/app.service"}, True),
        (wanted(), True, {"LoadState": "masked"}, False),
        (wanted(), False, {"FragmentPath": "/lib/x"}, False),
        (wanted(drop_in="limits.conf"), True, {"DropInPaths": DROP_IN}, False),
        (wanted(drop_in="limits.conf"), True, {"DropInPaths": ""}, True),
        (wanted(drop_in="limits.conf"), True, {"LoadState": "not-found"}, False),
    ],
)
def test_systemd_reads_units_again_that_it_has_in_another_version(
    one: SystemdUnitProperties, is_there: bool, unit: dict[str, str], expected: bool
) -> None:
    assert must_reload(one, is_there, [unit]) is expected


def test_an_instance_reads_the_files_of_its_template_and_prefixes() -> None:
    units = by_name("Names=a-b@c.service\nNeedDaemonReload=yes\n")

    assert sorted(units) == ["a-.service", "a-b@.service", "a-b@c.service"]


def test_a_pattern_finds_units_in_memory_alone() -> None:
    assert pattern(wanted("app.service")) == "[a]pp.service"
    assert pattern(wanted("app@.service")) == "app@*.service"
    assert pattern(wanted("app.service", drop_in="a.conf")) == "app.service"


async def keep(path: str, *, with_content: bool) -> EarlierFile:
    assert (path, with_content) == (PATH, True)
    return EarlierFile(owner="root", group="root", mode="0644", sha256="ab" * 32, size_bytes=3)


async def test_the_earlier_content_is_kept_for_an_undo() -> None:
    new = await earlier(wanted(), state(), Decision(), keep)
    changed = await earlier(wanted(), state(**AS_WANTED), Decision(), keep)
    foreign = await earlier(wanted(), state(**{**AS_WANTED, "uid": 7}), Decision(), keep)

    assert new.properties == {"unit": "", "drop_in": "", "ensure": "absent"}
    assert (changed.properties["source"], changed.content, changed.size_bytes) == ("ab" * 32, "ab" * 32, 3)
    assert foreign.why_not.startswith("its file did not belong to root")


def test_a_state_is_recognized_by_content_mode_and_owner() -> None:
    assert identify(state(**AS_WANTED)) != identify(state(**{**AS_WANTED, "checksum": "old"}))
    assert identify(state(**AS_WANTED)) == identify(state(**AS_WANTED, needs_reload=True))


async def test_a_drop_in_of_an_instance_is_verified_with_its_template() -> None:
    host = Host()
    host.files.put("/usr/lib/systemd/system/app@.service", "[Service]\nExecStart=/bin/of-template\n")
    seen: list[str] = []
    host.verify(
        effect=lambda: seen.extend(
            node.content.decode()
            for path, node in host.files.nodes.items()
            if path.startswith("/run/ccm-verify") and path.endswith("/app@one.service")
        )
    )

    event = await manage(TYPE, host.provider, wanted("app@one.service", drop_in="a.conf"))

    assert event.changed
    assert seen == ["[Service]\nExecStart=/bin/of-template\n"]
