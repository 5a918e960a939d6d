"""What the node's policy lets a run touch: what is forbidden fails before anything of it is looked at or run."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Mapping
from typing import Any

import pytest

from ccm_agent.app_expressions import make_expressions
from ccm_agent.engine.request import ManifestSource
from ccm_agent.model.errors import ManifestError, PolicyError
from ccm_agent.model.health import HealthStatus
from ccm_agent.model.outcome import Outcome, SessionSummary, TransactionEvent
from ccm_agent.model.ports import Packed
from ccm_agent.model.records.registration import RegistrationEntry
from ccm_agent.model.resource_diff import ResourceDiff
from ccm_agent.policy.document import parse_policy
from ccm_agent.policy.grant import Grant
from ccm_agent.policy.ruling import refuse_all
from ccm_agent.resources.archive import TYPE as ARCHIVE
from ccm_agent.resources.exec import TYPE as EXEC
from ccm_agent.resources.file import TYPE as FILE
from ccm_agent.resources.package import TYPE as PACKAGE
from ccm_agent.resources.repository import TYPE as REPOSITORY
from ccm_agent.resources.scaffold import TYPE as SCAFFOLD
from ccm_agent.resources.service import TYPE as SERVICE
from ccm_agent.testing.download import FakeDownload
from ccm_agent.testing.locks import FakeLocks
from ccm_agent.testing.records import FakeRecords
from ccm_agent.testing.trees import FakeTrees
from tests.support.engine import Bench, bench

KINDS = (ARCHIVE, EXEC, FILE, PACKAGE, REPOSITORY, SCAFFOLD, SERVICE)
URL = "https://host.example.net/a.tar.gz"
OWNER = "owner: root, group: root"
FILE_OF = "owner: root, group: root, mode: '0644', content: x"
ENTRY = "{cluster: prod, protocol: http, service: web, address: 10.0.0.1, port: 80, priority: 1}"

RESOURCES = {
    "exec": "exec: {name: touch /x}",
    "file": f"file: {{name: /srv/x, ensure: present, {FILE_OF}}}",
    "archive": f"archive: {{name: /srv/a.tar.gz, ensure: present, url: '{URL}', extract_parent: /srv/a, {OWNER}}}",
    "scaffold": "scaffold: {name: /srv/s, ensure: present, source: templates}",
    "package": "package: {name: nginx, ensure: present}",
    "service": "service: {name: nginx, ensure: running}",
}


class Everything:
    """A probe for which each program is there."""

    def has_program(self, name: str) -> bool:
        return True

    def exists(self, path: str) -> bool:
        return True


class Unpacker:
    """An `Unpack` that only notes what it is asked."""

    def __init__(self) -> None:
        self.unpacked: list[str] = []

    async def unpack(self, packed: Packed, directory: str) -> None:
        self.unpacked.append(directory)


class Stage:
    """An engine with all types on fakes, and symlinks of its own."""

    def __init__(self, **world: Any) -> None:
        self.ports: dict[str, Any] = {}
        self.links: dict[str, str] = {}
        self.registered: list[RegistrationEntry] = []
        self.on: Bench = bench(
            *KINDS,
            port=self.ports.__getitem__,
            probe=Everything(),
            resolve_path=self.resolve,
            register=self.register,
            **world,
        )
        self.on.files.put_directory("/srv")
        self.download, self.unpacker = FakeDownload(), Unpacker()
        self.trees = FakeTrees(self.on.files)
        self.ports |= {
            "download": self.download,
            "unpack": self.unpacker,
            "trees": self.trees,
            "records": FakeRecords(),
            "locks": FakeLocks(),
        }

    async def register(self, entry: RegistrationEntry) -> None:
        self.registered.append(entry)

    def resolve(self, path: str) -> str:
        """As realpath(3), with the links of this stage."""
        parent, name = posixpath.split(path)
        real = posixpath.join(self.resolve(parent), name) if name else parent
        return self.links.get(real, real)

    async def apply(self, *resources: str, top: str = "", **options: Any) -> SessionSummary:
        """Apply a manifest of its own bundle, /bundle."""
        listed = "\n".join(f"    - {one}" for one in resources)
        self.on.files.put("/bundle/m.yaml", f"{top}\nccm:\n  resources:\n{listed}\n")
        source = ManifestSource(path="/bundle/m.yaml", directory="/bundle", name="m")
        return await self.on.engine.apply(source, self.on.options(**options))

    @property
    def events(self) -> list[TransactionEvent]:
        return self.on.events

    @property
    def told(self) -> list[tuple[str, str, str]]:
        """Resource, outcome and code of each event."""
        return [(f"{one.type}#{one.name}", one.outcome.value, one.code) for one in self.events]

    def assert_untouched(self, before: Mapping[str, bytes]) -> None:
        """Nothing was run, fetched, looked at or written."""
        assert self.on.runner.commands == []
        assert self.download.transfers == []
        assert self.on.files.looked_at == []
        assert self.unpacker.unpacked == []
        assert self.trees.written == []
        assert self.contents() == before

    def contents(self) -> dict[str, bytes]:
        return {path: node.content for path, node in self.on.files.nodes.items()}


def grant(limits: str, *, is_restricted: bool = False) -> Grant:
    """The grant of a rule with these limits; "" for a rule without any."""
    types = [kind.name for kind in KINDS] + ["apply", "note"]
    text = f"default: deny\nrules:\n  - name: one\n    allow: [all]\n    {limits}\n"
    (rule,) = parse_policy(text.encode(), "policy.yaml", types).rules
    return Grant(who="bob", layers=(rule.layer,), is_restricted=is_restricted)


RESTRICTED = grant("", is_restricted=True)
RULE = "the rule `one` (policy.yaml:3) of the node's policy does not allow"
WHO = "in a plan by bob, who may only plan here"


# ---- types ----


@pytest.mark.parametrize("kind", RESOURCES)
async def test_a_forbidden_type_fails_with_the_rule_and_nothing_of_it_is_touched(kind: str) -> None:
    at = Stage()
    at.on.files.put("/bundle/templates/a", "x")
    at.on.files.put("/bundle/m.yaml")

    before = at.contents() | {"/bundle/m.yaml": f"\nccm:\n  resources:\n    - {RESOURCES[kind]}\n".encode()}
    summary = await at.apply(RESOURCES[kind], grant=grant(f"forbid: {{types: [{kind}]}}"))

    assert [(one.outcome, one.code, one.error) for one in at.events] == [
        (Outcome.FAILED, "policy.type", [f"{RULE} resources of the type {kind}"])
    ]
    assert (summary.state, summary.failed_resources) == ("failed", 1)
    at.assert_untouched(before)


@pytest.mark.parametrize("kind", RESOURCES)
@pytest.mark.parametrize("mode", ["noop", "health_check_only"])
async def test_a_plan_and_a_check_of_a_forbidden_type_fail_alike(kind: str, mode: str) -> None:
    at = Stage()

    await at.apply(RESOURCES[kind], grant=grant(f"forbid: {{types: [{kind}]}}"), **{mode: True})

    assert [(one.outcome, one.code) for one in at.events] == [(Outcome.FAILED, "policy.type")]
    assert at.on.runner.commands == []
    assert at.on.files.looked_at == []


@pytest.mark.parametrize("kind", RESOURCES)
async def test_a_grant_that_refuses_everything_refuses_each_type(kind: str) -> None:
    at = Stage()

    await at.apply(RESOURCES[kind], grant=refuse_all("the policy file is broken").grant)

    assert [(one.code, one.error) for one in at.events] == [("policy.denied", ["the policy file is broken"])]
    assert at.on.runner.commands == []


async def test_a_forbidden_resource_that_its_control_keeps_from_this_node_is_skipped() -> None:
    at = Stage()

    await at.apply(
        "exec: {name: touch /x, control: {if: 'Facts.os == \"beos\"'}}",
        grant=grant("forbid: {types: [exec]}"),
    )

    assert at.told == [("exec#touch /x", "skipped", "")]


async def test_the_guards_and_templates_of_a_forbidden_command_are_not_evaluated() -> None:
    at = Stage()

    await at.apply(
        "exec: {name: x, command: \"{{ readFile('/etc/shadow') }}\", onlyif: touch /guard, unless: touch /guard}",
        grant=grant("forbid: {types: [exec]}"),
    )

    assert [(one.outcome, one.code) for one in at.events] == [(Outcome.FAILED, "policy.type")]
    assert at.on.runner.commands == []


async def test_resources_that_require_a_forbidden_one_are_not_managed() -> None:
    at = Stage()

    await at.apply(
        RESOURCES["exec"],
        f"file: {{name: /srv/x, ensure: present, require: ['exec#touch /x'], {FILE_OF}}}",
        grant=grant("forbid: {types: [exec]}"),
    )

    assert [one.outcome for one in at.events] == [Outcome.FAILED, Outcome.UNMET]
    assert "/srv/x" not in at.on.files.nodes


async def test_one_resource_at_the_command_line_of_the_controller_is_judged_alike() -> None:
    at = Stage()

    event = await at.on.engine.ensure(
        "exec", {"name": "touch /x"}, at.on.options(grant=grant("forbid: {types: [exec]}"))
    )

    assert (event.outcome, event.code) == (Outcome.FAILED, "policy.type")
    assert at.on.runner.commands == []


async def test_without_a_grant_nothing_is_judged() -> None:
    at = Stage()
    at.on.runner.when("touch", "/x")

    await at.apply(RESOURCES["exec"])

    assert at.told == [("exec#touch /x", "changed", "")]


# ---- commands by other ways ----


@pytest.mark.parametrize(
    "check",
    ["{command: touch /x, name: up}", "{goss_rules: {command: {touch /x: {exit-status: 0}}}, name: up}"],
    ids=["nagios", "goss"],
)
async def test_a_health_check_that_runs_a_command_is_as_forbidden_as_exec(check: str) -> None:
    at = Stage()

    await at.apply(
        f"file: {{name: /srv/x, ensure: present, health_checks: [{check}], {FILE_OF}}}",
        grant=grant("forbid: {types: [exec]}"),
    )

    assert [(one.code, one.error) for one in at.events] == [
        (
            "policy.command",
            [f"the health check `up` is a command, and {RULE} resources of the type exec"],
        )
    ]
    assert at.on.runner.commands == []
    assert "/srv/x" not in at.on.files.nodes


async def test_a_command_in_rules_that_are_templates_is_refused_when_they_are_rendered() -> None:
    at = Stage()

    await at.apply(
        f"file: {{name: /srv/x, ensure: present, health_checks: [{{goss_rules: {{command: "
        f'{{"{{{{ Data.line }}}}": {{exit-status: 0}}}}}}, name: up}}], {FILE_OF}}}',
        top="data: {line: touch /x}",
        grant=grant("forbid: {types: [exec]}"),
    )

    (event,) = at.events
    assert (event.outcome, event.code) == (Outcome.FAILED, "policy.command")
    assert [(one.status, one.tries) for one in event.health_check] == [(HealthStatus.UNKNOWN, 0)]
    assert at.on.runner.commands == []


async def test_rendered_rules_that_look_like_templates_are_judged_anyway() -> None:
    at = Stage()
    rules = """{command: {"{{ 'touch $' + '{HOME}/x' }}": {exit-status: 0}}}"""

    await at.apply(
        f"file: {{name: /srv/x, ensure: present, health_checks: [{{goss_rules: {rules}, name: up}}], {FILE_OF}}}",
        grant=grant("forbid: {types: [exec]}"),
    )

    (event,) = at.events
    assert at.on.runner.commands == []
    assert (event.outcome, event.code) == (Outcome.FAILED, "policy.command")


async def test_a_check_by_goss_is_not_a_command() -> None:
    at = Stage()
    at.on.runner.when("systemctl", code=0)

    await at.apply(
        f"file: {{name: /srv/x, ensure: present, health_checks: [{{goss_rules: {{service: {{x: {{running: true}}}}}}}}], "
        f"{FILE_OF}}}",
        grant=grant("forbid: {types: [exec]}"),
    )

    assert [one.outcome for one in at.events] == [Outcome.CHANGED]


async def test_post_commands_of_a_scaffold_are_as_forbidden_as_exec() -> None:
    at = Stage()
    at.on.files.put("/bundle/templates/a", "x")

    await at.apply(
        "scaffold: {name: /srv/s, ensure: present, source: templates, post: [{'*': touch /x}]}",
        grant=grant("forbid: {types: [exec]}"),
    )

    assert [(one.code, one.error) for one in at.events] == [
        ("policy.command", [f"`post` is a command, and {RULE} resources of the type exec"])
    ]
    assert at.trees.written == []


async def test_registrations_can_be_forbidden() -> None:
    at = Stage()
    text = f"file: {{name: /srv/x, ensure: present, register_when_stable: [{ENTRY}], {FILE_OF}}}"

    await at.apply(text, grant=grant("forbid: {types: [registration]}"))
    await at.apply(text, grant=grant("only: {paths: [/srv/**]}"))

    assert [one.code for one in at.events] == ["policy.registration"] * 2
    assert at.registered == []
    assert "/srv/x" not in at.on.files.nodes


# ---- software without a signature ----

REPOSITORY_FILE = "/etc/apt/sources.list.d/own.sources"


def repository(trust: str) -> str:
    """A repository whose packages are accepted for this reason."""
    return f"repository: {{name: own, uris: [https://a/], suites: [x], components: [main], refresh: false, {trust}}}"


@pytest.mark.parametrize(
    "limits", ["forbid: {types: [unsigned]}", "only: {types: [repository]}"], ids=["forbidden", "not listed"]
)
async def test_unsigned_software_can_be_forbidden(limits: str) -> None:
    at = Stage()

    await at.apply(repository("trusted: true"), grant=grant(limits))

    assert [(one.code, one.error) for one in at.events] == [
        (
            "policy.unsigned",
            [
                f"`trusted: true` accepts software without a signature, and {RULE} resources of the type unsigned"
            ],
        )
    ]
    assert at.on.files.looked_at == []
    assert REPOSITORY_FILE not in at.on.files.nodes


@pytest.mark.parametrize(
    ("limits", "trust"),
    [
        pytest.param("forbid: {types: [unsigned]}", "signed_by: /k.asc", id="a key, where it is forbidden"),
        pytest.param("only: {types: [repository]}", "signed_by: /k.asc", id="a key, where it is not listed"),
        pytest.param("only: {types: [repository, unsigned]}", "trusted: true", id="unsigned, where it is listed"),
        pytest.param("", "trusted: true", id="unsigned, without limits"),
    ],
)  # fmt: skip
async def test_a_repository_that_the_policy_allows_is_written(limits: str, trust: str) -> None:
    at = Stage()
    at.on.runner.when("apt-get", "indextargets")

    await at.apply(repository(trust), grant=grant(limits))

    assert at.told == [("repository#own", "changed", "")]
    assert REPOSITORY_FILE in at.on.files.nodes


async def test_child_manifests_are_judged_resource_by_resource() -> None:
    at = Stage()
    at.on.files.put("/bundle/child.yaml", f"ccm: {{resources: [{{{RESOURCES['exec']}}}]}}")

    await at.apply("apply: {name: child.yaml}", grant=grant("only: {types: [file]}"))

    assert at.told == [
        ("exec#touch /x", "failed", "policy.type"),
        ("apply#child.yaml", "failed", "host.desired_state"),
    ]
    assert at.on.runner.commands == []


async def test_a_child_manifest_is_a_file_that_is_read() -> None:
    at = Stage()
    at.on.files.put("/etc/secret.yaml", "token: x")

    await at.apply("apply: {name: /etc/secret.yaml}", grant=grant("only: {paths: [/srv/**]}"))

    assert [(one.code, one.error) for one in at.events] == [
        ("policy.source", [f"{RULE} to read /etc/secret.yaml"])
    ]


# ---- names ----


async def test_packages_and_services_that_are_not_listed_fail() -> None:
    at = Stage()

    await at.apply(
        RESOURCES["package"],
        RESOURCES["service"],
        grant=grant("only: {packages: ['php*'], services: [php-fpm]}"),
    )

    assert [(one.code, one.error) for one in at.events] == [
        ("policy.package", [f"{RULE} the package nginx"]),
        ("policy.service", [f"{RULE} the service nginx"]),
    ]
    assert at.on.runner.commands == []


async def test_a_forbidden_package_is_not_even_asked_about_together_with_others() -> None:
    at = Stage()
    at.on.runner.when("dpkg-query", stdout="good 1 amd64 installed\n")

    await at.apply(
        "package: [{good: {ensure: present}}, {evil: {ensure: present}}]",
        grant=grant("forbid: {packages: [evil]}"),
    )

    assert at.told == [("package#good", "stable", ""), ("package#evil", "failed", "policy.package")]
    assert [line for line in at.on.runner.lines if "evil" in line] == []


# ---- paths ----


@pytest.mark.parametrize(
    ("kind", "limits"),
    [
        ("file", "only: {paths: [/etc/**]}"),
        ("file", "forbid: {paths: [/srv/x]}"),
        ("archive", "only: {paths: [/srv/*]}"),
        ("archive", "forbid: {paths: [/srv/a/b/c]}"),
        ("scaffold", "only: {paths: [/srv/*]}"),
        ("scaffold", "forbid: {paths: [/srv/s/.ssh/**]}"),
    ],
)
async def test_a_path_that_is_not_allowed_fails(kind: str, limits: str) -> None:
    at = Stage()
    at.on.files.put("/bundle/templates/a", "x")

    await at.apply(RESOURCES[kind], grant=grant(limits))

    assert [(one.outcome, one.code) for one in at.events] == [(Outcome.FAILED, "policy.path")]
    assert at.on.files.looked_at == []
    assert at.download.transfers == []
    assert at.trees.written == []


@pytest.mark.parametrize("kind", ["file", "archive", "scaffold"])
async def test_a_symlink_in_the_directory_is_followed_before_paths_are_compared(kind: str) -> None:
    at = Stage()
    at.links["/srv"] = "/etc"

    await at.apply(RESOURCES[kind], grant=grant("only: {paths: [/srv/**]}"))

    assert [(one.outcome, one.code) for one in at.events] == [(Outcome.FAILED, "policy.path")]
    assert "which is /etc/" in at.events[0].error[0]


async def test_a_directory_that_is_itself_a_symlink_is_followed_too() -> None:
    at = Stage()
    at.links["/srv/s"] = "/etc"

    await at.apply(RESOURCES["scaffold"], grant=grant("only: {paths: [/srv/**]}"))

    assert [(one.outcome, one.code) for one in at.events] == [(Outcome.FAILED, "policy.path")]


async def test_a_symlink_that_an_earlier_resource_made_is_seen() -> None:
    at = Stage()
    at.on.runner.when("ln", effect=lambda: at.links.update({"/srv/d": "/etc"}))

    await at.apply(
        "exec: {name: ln -s /etc /srv/d}",
        f"file: {{name: /srv/d/x, ensure: present, {FILE_OF}}}",
        grant=grant("only: {types: [exec], paths: [/srv/**]}"),
    )

    assert [(one.outcome, one.code) for one in at.events] == [
        (Outcome.CHANGED, ""),
        (Outcome.FAILED, "policy.path"),
    ]
    assert "/srv/d/x" not in at.on.files.nodes


async def test_an_allowed_path_is_managed() -> None:
    at = Stage()

    await at.apply(RESOURCES["file"], grant=grant("only: {paths: [/srv/**]}"))

    assert at.told == [("file#/srv/x", "changed", "")]


async def test_removing_a_directory_requires_permission_for_its_whole_content() -> None:
    at = Stage()

    await at.apply(
        "file: {name: /srv, ensure: absent, force: true}", grant=grant("forbid: {paths: [/srv/keep]}")
    )

    assert [one.code for one in at.events] == ["policy.path"]


async def test_a_path_of_megabytes_is_refused_at_once() -> None:
    at = Stage()
    path = "/srv" + "/a" * 500_000

    async with asyncio.timeout(5):
        await at.apply(f"file: {{name: '{path}', ensure: absent}}", grant=grant("only: {paths: [/etc/**]}"))

    assert [one.code for one in at.events] == ["policy.path"]


# ---- what is read ----


def _source(path: str) -> str:
    return (
        f"file: {{name: /srv/x, ensure: present, source: '{path}', owner: root, group: root, mode: '0644'}}"
    )


@pytest.mark.parametrize(
    ("source", "code"),
    [
        pytest.param("own.txt", "", id="beside the manifest"),
        pytest.param("/etc/shadow", "policy.source", id="of the host"),
        pytest.param("../../etc/shadow", "policy.source", id="by dots"),
        pytest.param("link", "policy.source", id="by a symlink in the bundle"),
        pytest.param("{{ Data.path }}", "policy.source", id="by a template"),
        pytest.param("/srv/other", "", id="from a path that may be written"),
    ],
)
async def test_a_signer_limited_to_some_paths_copies_from_no_others(source: str, code: str) -> None:
    at = Stage()
    at.links["/bundle/link"] = "/etc/shadow"
    for path in ("/bundle/own.txt", "/etc/shadow", "/srv/other", "/bundle/link"):
        at.on.files.put(path, "secret")

    await at.apply(_source(source), top="data: {path: /etc/shadow}", grant=grant("only: {paths: [/srv/**]}"))

    assert [one.code for one in at.events] == [code]
    assert ("/srv/x" in at.on.files.nodes) is (code == "")


async def test_urls_that_are_not_listed_are_not_fetched() -> None:
    at = Stage()

    await at.apply(
        RESOURCES["archive"],
        _source("https://user:secret@evil.example.net/x"),
        grant=grant("only: {paths: [/srv/**], sources: ['https://good.example.net/**']}"),
    )

    assert [one.code for one in at.events] == ["policy.source"] * 2
    assert "secret" not in at.events[1].error[0]
    assert at.download.transfers == []


@pytest.mark.parametrize(
    "template",
    [
        "{{ readFile('/etc/shadow') }}",
        "{{ file('/etc/shadow') }}",
        "{{ template('/etc/x.templ') }}",
        "{{ jet('/etc/x.jet') }}",
        "{{ readFile('../etc/shadow') }}",
    ],
)
async def test_a_template_may_read_paths_the_resource_may(template: str, tmp_path: Any) -> None:
    at = Stage()

    await at.apply(
        f'file: {{name: /srv/x, ensure: present, content: "{template}", owner: root, group: root, mode: "0644"}}',
        grant=grant("only: {paths: [/srv/**]}"),
    )

    assert [(one.outcome, one.code) for one in at.events] == [(Outcome.FAILED, "policy.source")]
    assert "/srv/x" not in at.on.files.nodes


async def test_a_template_that_is_rendered_while_the_manifest_is_loaded_ends_the_run() -> None:
    at = Stage()

    with pytest.raises(PolicyError) as caught:
        await at.apply(
            "package: {name: \"{{ readFile('/etc/shadow') }}\", ensure: present}",
            grant=grant("only: {types: [package], paths: [/srv/**]}"),
        )

    assert caught.value.code == "policy.source"
    assert "/etc/shadow" in str(caught.value)


async def test_templates_in_whole_files_are_confined_as_well() -> None:
    at = Stage()
    at.on.files.put("/bundle/templates/a", '[[ readFile("/etc/shadow") ]]')

    await at.apply(RESOURCES["scaffold"], grant=grant("only: {paths: [/srv/**]}"))

    assert [(one.outcome) for one in at.events] == [Outcome.FAILED]
    assert "does not allow to read /etc/shadow" in at.events[0].error[0]
    assert at.trees.written == []


async def test_a_jet_file_with_the_list_of_resources_is_read_from_the_bundle_alone() -> None:
    at = Stage()
    at.on.files.put("/bundle/j.yaml", "ccm: {resources_jet_file: ../etc/list.jet}")

    with pytest.raises(PolicyError):
        await at.on.engine.apply(
            ManifestSource(path="/bundle/j.yaml", directory="/bundle"),
            at.on.options(grant=grant("only: {paths: [/srv/**]}")),
        )


@pytest.mark.parametrize(
    ("kind", "contents", "interpolate"),
    [
        pytest.param("template", "etc/shadow", "true", id="rendered"),
        pytest.param("template", "etc/shadow", "false", id="copied"),
        pytest.param("http", "https://evil.example.net/x", "true", id="from the web"),
    ],
)
async def test_a_manifest_of_tinycm_reads_no_more_than_any_other(
    kind: str, contents: str, interpolate: str
) -> None:
    at = Stage()
    at.on.files.put("/etc/shadow", "root:hash")
    text = (
        "global: {a: b}\n---\nfile: {name: /srv/x, type: "
        f"{kind}, contents: '{contents}', interpolate: {interpolate}, permission-mask: '644'}}\n"
    )
    at.on.files.put("/bundle/site.cm.yml", text)
    limited = grant("only: {paths: [/srv/**], sources: ['https://good.example.net/**']}")

    with pytest.raises(PolicyError) as caught:
        await at.on.engine.apply(
            # a module path that has every file; without one, templates beside the manifest alone are found
            ManifestSource(path="/bundle/site.cm.yml", directory="/bundle", module_path="/"),
            at.on.options(grant=limited),
        )

    assert caught.value.code == "policy.source"
    assert at.download.transfers == []


@pytest.mark.parametrize("contents", ["/etc/shadow", "../etc/shadow"])
async def test_a_manifest_of_tinycm_reads_no_template_outside_of_its_bundle(contents: str) -> None:
    at = Stage()
    at.on.files.put("/etc/shadow", "root:hash")
    at.on.files.put(
        "/bundle/site.cm.yml",
        f"global: {{a: b}}\n---\nfile: {{name: /srv/x, type: template, contents: '{contents}', permission-mask: '644'}}\n",
    )

    with pytest.raises(ManifestError, match="outside the module path"):
        await at.on.engine.apply(
            ManifestSource(path="/bundle/site.cm.yml", directory="/bundle"),
            at.on.options(grant=grant("only: {paths: [/srv/**]}")),
        )

    assert "/srv/x" not in at.on.files.nodes


@pytest.mark.parametrize(
    "url",
    ["/etc/data.yaml", "file:///etc/data.yaml", "file://localhost/etc/data.yaml", "file:///etc/%64ata.yaml"],
)
async def test_a_hiera_document_of_a_request_is_a_file_that_is_read(url: str) -> None:
    at = Stage()
    at.on.files.put("/etc/data.yaml", "data: {a: 1}")
    limited = grant("only: {paths: [/srv/**]}")

    with pytest.raises(PolicyError) as caught:
        await at.apply(RESOURCES["file"], hiera=(url,), grant=limited)
    await at.apply(RESOURCES["file"], hiera=(url,), own_hiera=frozenset({url}), grant=limited)

    assert caught.value.code == "policy.source"
    assert at.told == [("file#/srv/x", "changed", "")]


async def test_a_health_check_reads_no_file_that_its_resource_could_not() -> None:
    at = Stage()
    at.on.files.put("/etc/shadow", "root:hash")

    await at.apply(
        "file: {name: /srv/x, ensure: present, health_checks: [{goss_rules: {file: {/etc/shadow: "
        f"{{exists: true, contents: [nothing]}}}}}}}}], {FILE_OF}}}",
        grant=grant("only: {paths: [/srv/**]}"),
    )

    (event,) = at.events
    assert (event.outcome, event.code) == (Outcome.FAILED, "policy.source")
    assert "hash" not in str(event)


# ---- plans of who may not apply ----


EXEC_PLANS = [
    pytest.param("onlyif: touch /guard", "unknown until applied", id="onlyif"),
    pytest.param("unless: touch /guard", "unknown until applied", id="unless"),
    pytest.param("creates: /made, unless: touch /guard", "stable", id="creates is there: only a look"),
    pytest.param("creates: /not, unless: touch /guard", "unknown until applied", id="creates is not there"),
    pytest.param("creates: /not", "changed", id="creates alone decides"),
    pytest.param("refreshonly: true, onlyif: touch /guard", "stable", id="refreshonly, and nothing changed"),
    pytest.param(
        "subscribe: ['file#/srv/x'], onlyif: touch /guard", "refreshed", id="a subscription decides"
    ),
]


@pytest.mark.parametrize(("fields", "outcome"), EXEC_PLANS)
async def test_a_restricted_plan_runs_no_guard(fields: str, outcome: str) -> None:
    at = Stage()
    at.on.files.put("/made", "")

    summary = await at.apply(
        RESOURCES["file"], f"exec: {{name: touch /x, {fields}}}", noop=True, grant=RESTRICTED
    )

    assert at.events[1].outcome.value == outcome
    assert at.on.runner.commands == []
    assert summary.unknown_count == (outcome == "unknown until applied")
    if outcome == "unknown until applied":
        assert at.events[1].unknown == f"unknown until applied: the guards are not run {WHO}"
        assert summary.state == "changed"


@pytest.mark.parametrize("provider", ["posix", "shell"])
async def test_a_full_operators_plan_runs_guards_as_before(provider: str) -> None:
    at = Stage()
    at.on.runner.when("true", code=0)
    at.on.runner.when("/bin/sh", code=0)

    await at.apply(
        f"exec: {{name: touch /x, onlyif: 'true', provider: {provider}}}", noop=True, grant=grant("")
    )

    assert len(at.on.runner.commands) == 1
    assert at.events[0].noop_message == "Would have executed"


@pytest.mark.parametrize(
    ("check", "is_run"),
    [
        pytest.param("{command: touch /x, name: up}", False, id="nagios"),
        pytest.param(
            "{goss_rules: {command: {touch /x: {exit-status: 0}}}, name: up}", False, id="a command"
        ),
        pytest.param(
            "{goss_rules: {http: {'http://localhost/': {status: 200}}}, name: up}", False, id="http"
        ),
        pytest.param("{goss_rules: {addr: {'tcp://h:1': {reachable: true}}}, name: up}", False, id="addr"),
        pytest.param("{goss_rules: {dns: {h: {resolvable: true}}}, name: up}", False, id="dns"),
        pytest.param(
            "{goss_rules: {file: {/etc/shadow: {exists: true, contents: [x]}}}, name: up}",
            False,
            id="contents",
        ),
        pytest.param("{goss_rules: {file: {/etc/shadow: {exists: false}}}, name: up}", True, id="stat"),
        pytest.param("{goss_rules: {service: {x: {running: true}}}, name: up}", True, id="systemctl"),
    ],
)
@pytest.mark.parametrize("mode", ["noop", "health_check_only"])
async def test_a_restricted_run_makes_no_check_that_is_more_than_a_look(
    check: str, is_run: bool, mode: str
) -> None:
    at = Stage()
    at.on.runner.when("systemctl", code=0)
    resource = f"file: {{name: /srv/x, ensure: present, health_checks: [{check}], {FILE_OF}}}"
    await at.apply(
        f"file: {{name: /srv/x, ensure: present, {FILE_OF}}}"
    )  # a plan checks what is right already
    at.events.clear()

    summary = await at.apply(resource, grant=RESTRICTED, **{mode: True})

    (event,) = at.events
    assert [line for line in at.on.runner.lines if not line.startswith("systemctl")] == []
    assert (summary.failed_resources, summary.unknown_count) == (0, 0 if is_run else 1)
    assert [one.status for one in event.health_check] == [0 if is_run else 3]
    if mode == "noop":
        assert event.outcome is Outcome.STABLE
    else:
        assert event.outcome is (Outcome.STABLE if is_run else Outcome.UNKNOWN)
    assert ("unknown until applied" in event.unknown) is not is_run


async def test_a_restricted_check_registers_nothing() -> None:
    at = Stage()
    resource = f"file: {{name: /srv/x, ensure: present, register_when_stable: [{ENTRY}], {FILE_OF}}}"

    await at.apply(resource, health_check_only=True, grant=RESTRICTED)
    assert at.registered == []

    await at.apply(resource, health_check_only=True, grant=grant(""))
    assert len(at.registered) == 1


async def test_a_restricted_plan_fetches_nothing() -> None:
    at = Stage()
    at.download.serve("https://h/x", b"x")

    await at.apply(_source("https://h/x"), noop=True, grant=RESTRICTED)

    assert [(one.outcome, one.unknown) for one in at.events] == [
        (Outcome.UNKNOWN, f"unknown until applied: https://h/x is not fetched {WHO}")
    ]
    assert at.download.transfers == []


@pytest.mark.parametrize(
    "resource",
    [
        pytest.param(_source("/etc/shadow"), id="source"),
        pytest.param(
            "file: {name: /srv/x, ensure: present, content: \"{{ readFile('/etc/shadow') }}\", owner: root, group: root, "
            "mode: '0644'}",
            id="a deferred template",
        ),
        pytest.param("scaffold: {name: /srv/s, ensure: present, source: /etc}", id="templates of the host"),
        pytest.param("apply: {name: /etc/child.yaml}", id="a child manifest of the host"),
        pytest.param(
            "exec: {name: x, control: {if: \"readFile('/etc/shadow') contains 'root'\"}}", id="a control"
        ),
    ],
)
async def test_a_restricted_plan_reads_nothing_of_the_host_but_the_manifests_own_files(resource: str) -> None:
    at = Stage()
    at.on.files.put("/etc/shadow", "root:hash")
    at.on.files.put("/etc/child.yaml", "ccm: {resources: [{exec: {name: x}}]}")

    summary = await at.apply(resource, noop=True, grant=RESTRICTED)

    (event,) = at.events
    assert event.outcome is Outcome.UNKNOWN
    assert "is not read" in event.unknown
    assert "hash" not in str(event)
    assert (summary.state, summary.unknown_count) == ("stable", 1)


@pytest.mark.parametrize("url", ["/etc/data.yaml", "https://h/data.yaml"], ids=["a file", "a web server"])
async def test_a_restricted_plan_takes_no_data_from_elsewhere(url: str) -> None:
    at = Stage()
    at.on.files.put("/etc/data.yaml", "data: {a: 1}")

    with pytest.raises(PolicyError) as caught:
        await at.apply(RESOURCES["file"], hiera=(url,), noop=True, grant=RESTRICTED)

    assert caught.value.is_unknown
    assert at.download.transfers == []


@pytest.mark.parametrize("call", ["kvGet('CCM_DATA', 'a')", "registrations('a', 'b', 'c', 'd')"])
async def test_a_restricted_plan_asks_the_broker_nothing(call: str) -> None:
    asked: list[object] = []

    class Asking:
        def kv_get(self, *arguments: str) -> str:
            asked.append(arguments)
            return "secret"

        registrations = kv_get

    at = Stage(make_expressions=lambda *given: make_expressions(*given, asking=lambda: Asking()))  # type: ignore[arg-type, return-value]

    await at.apply(
        f'file: {{name: /srv/x, ensure: present, content: "{{{{ {call} }}}}", owner: root, group: root, mode: "0644"}}',
        noop=True,
        grant=RESTRICTED,
    )

    assert [one.outcome for one in at.events] == [Outcome.UNKNOWN]
    assert asked == []


async def test_a_restricted_plan_of_own_files_is_as_any_other() -> None:
    at = Stage()
    at.on.files.put("/bundle/own.txt", "own")
    at.on.files.put("/bundle/templates/a", "x")

    await at.apply(
        _source("own.txt"), RESOURCES["scaffold"], RESOURCES["archive"], noop=True, grant=RESTRICTED
    )

    assert [(one.outcome, one.unknown) for one in at.events] == [(Outcome.CHANGED, "")] * 3
    assert at.download.transfers == []


async def test_looks_of_providers_are_made_in_a_restricted_plan() -> None:
    at = Stage()
    at.on.runner.when("dpkg-query", stdout="nginx 1 amd64 installed\n")
    shown = (
        "Id=nginx.service\nLoadState=loaded\nActiveState=active\nSubState=running\nUnitFileState=enabled\n"
    )
    at.on.runner.when("systemctl", stdout=shown)

    await at.apply(RESOURCES["package"], RESOURCES["service"], noop=True, grant=RESTRICTED)

    assert [one.outcome for one in at.events] == [Outcome.STABLE] * 2


async def test_a_foreign_type_without_declared_access_is_not_checked_in_a_restricted_plan() -> None:
    at = Stage()

    await at.apply("note: {name: a, text: x}", noop=True, grant=RESTRICTED)

    assert [one.outcome for one in at.events] == [Outcome.UNKNOWN]
    assert at.on.board.looks == []
    assert at.on.board.looks_ahead == []


async def test_a_manifest_without_a_bundle_owns_no_file() -> None:
    at = Stage()
    text = f"ccm: {{resources: [{{{_source('etc/shadow')}}}]}}".encode()

    await at.on.engine.apply(
        ManifestSource(text=text, name="inline"), at.on.options(noop=True, grant=RESTRICTED)
    )

    assert [one.outcome for one in at.events] == [Outcome.UNKNOWN]


async def test_a_restricted_plan_fails_resources_its_author_may_never_touch() -> None:
    at = Stage()

    await at.apply(RESOURCES["exec"], noop=True, grant=grant("forbid: {types: [exec]}", is_restricted=True))

    assert [(one.outcome, one.code) for one in at.events] == [(Outcome.FAILED, "policy.type")]


def test_the_links_of_the_stage_are_followed() -> None:
    """The stage itself: links are followed on the way and at the end."""
    at = Stage()
    at.links |= {"/a": "/b", "/b/c": "/d"}

    assert [at.resolve(path) for path in ("/a/c/e", "/a", "/", "/x")] == ["/d/e", "/b", "/", "/x"]


# ---- what events do not tell ----

FILE_X = f"file: {{name: /srv/x, ensure: present, {FILE_OF}}}"


async def test_a_run_that_asks_for_diffs_gets_them_and_another_does_not() -> None:
    stage = Stage()

    await stage.apply(FILE_X, noop=True)
    await stage.apply(FILE_X, noop=True, diff=True)

    without, with_diff = stage.events
    assert without.diff is None
    assert with_diff.diff is not None
    assert with_diff.diff.files[0].text == "@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n"


async def test_a_policy_withholds_diffs_also_from_one_the_requester() -> None:
    stage = Stage()

    await stage.apply(FILE_X, noop=True, diff=True, grant=Grant(who="bob", withheld=frozenset({"diff"})))

    assert stage.events[0].diff == ResourceDiff(why="the node's policy withholds diffs")


@pytest.mark.parametrize("exitcode", [0, 1])
async def test_a_policy_withholds_the_output_of_commands(exitcode: int) -> None:
    stage = Stage()
    stage.on.runner.when("touch", stdout="the content of a file\n", code=exitcode)

    summary = await stage.apply(
        "exec: {name: touch /x}", grant=Grant(who="bob", withheld=frozenset({"output"}))
    )

    (event,) = stage.events
    assert (event.output, event.cut) == ("", ["output"])
    assert [one.output for one in summary.failed] == [""] * exitcode


async def test_a_chain_of_a_plan_names_the_resource_that_would_change() -> None:
    stage = Stage()
    reload = "exec: {name: reload, refreshonly: true, subscribe: ['file#/srv/x']}"

    await stage.apply(FILE_X, reload, noop=True, diff=True)

    assert stage.events[1].diff == ResourceDiff(command="reload", refresh="file#/srv/x")
