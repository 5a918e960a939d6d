"""Three agents with files of their own below /etc, and the site that `ccmctl import` makes of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.model.codec import decode_yaml
from ccm_agent.resources.cron.crontab import render
from ccm_agent.resources.cron.model import CronJob
from ccm_agent.resources.repository.formats import FORMATS
from ccm_agent.resources.repository.model import APT, RepositoryProperties
from tests.support.fleet import AgentProcess, Done, Fleet, fleet
from tests.support.openpgp_keys import KEY

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(180),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a process a file system of its own"),
]

HAS_APT = Path("/etc/apt/sources.list.d").is_dir()
ROLES = {"web1": "web", "web2": "web", "db1": "db"}
SECRET = "AKIAIOSFODNN7EXAMPLE"
HOSTS = "127.0.0.1 localhost\n10.0.0.1 gateway\n"


class RootedAgent(AgentProcess):
    """An agent with some files below /etc and `shared` of its own, in a mount namespace that no other process sees."""

    @property
    def root(self) -> Path:
        """What is below /etc for this agent alone."""
        return self.directory / "etc"

    @property
    def shared(self) -> Path:
        """A directory that has the same path for all agents, and other content for each."""
        return self.directory.parent / "app"

    @property
    def command(self) -> list[str]:
        own = ["cron.d", "hosts", "systemd/system", *(["apt/sources.list.d"] if HAS_APT else [])]
        places = {name: f"/etc/{name}" for name in own} | {"app": str(self.shared)}
        binds = " && ".join(f'mount --bind "{self.root}/{name}" "{place}"' for name, place in places.items())
        return ["unshare", "--mount", "sh", "-c", f'{binds} && exec "$@"', "sh", *super().command]

    def prepare(self, jobs: dict[str, str], hosts: str, contents: dict[str, bytes]) -> None:
        """Write the files."""
        (self.root / "cron.d").mkdir(parents=True)
        for name, command in jobs.items():
            job = CronJob(schedule="5 4 * * *", user="root", command=command, environment=())
            (self.root / "cron.d" / name).write_text(render(job))
        (self.root / "hosts").write_text(hosts)
        for name, content in contents.items():
            path = self.root / "app" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self._prepare_units()
        for path in (self.root, *self.root.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        self.shared.mkdir(exist_ok=True)

    def _prepare_units(self) -> None:
        """Write a unit and a drop-in, and a repository whose key is in `shared`."""
        units, sources = self.root / "systemd/system", self.root / "apt/sources.list.d"
        for folder in (units / "cron.service.d", sources):
            folder.mkdir(parents=True)
        (units / "t-one.service").write_text("[Service]\nExecStart=/bin/true\n")
        (units / "cron.service.d/own.conf").write_text(f"[Service]\nNice={len(self.name)}\n")
        (self.root / "app/own.asc").write_text(KEY)
        wanted = RepositoryProperties(
            name="own", uris=["https://example.org/apt"], suites=["./"], signed_by=f"{self.shared}/own.asc"
        )
        (sources / "own.sources").write_bytes(FORMATS[APT].content(wanted))


JOBS = {
    "web1": {"backup": "/bin/backup", "reload": "/bin/reload web", "mine": "/bin/only-here"},
    "web2": {"backup": "/bin/backup", "reload": "/bin/reload web", "leaky": f"/bin/push {SECRET}"},
    "db1": {"backup": "/bin/backup", "reload": "/bin/reload db", "braces": "/bin/x '{{ Facts.x }}'"},
}

COMMON = {"conf.d/both.conf": b"listen 80\n", "conf.d/binary": bytes(range(256)) * 300}
FILES = {
    "web1": COMMON | {"conf.d/role": b"web\n", "conf.d/mine": b"of web1\n"},
    "web2": COMMON | {"conf.d/role": b"web\n", "conf.d/key": b"-----BEGIN PRIVATE KEY-----\n"},
    "db1": COMMON | {"conf.d/role": b"db\n", "conf.d/{{ name }}": b"x\n"},
}


@pytest.fixture(scope="module")
def rooted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("fleet")) as built:
        for name, jobs in JOBS.items():
            agent = RootedAgent(name, built.directory / name, built.environ)
            agent.configure(built.url)
            agent.prepare(jobs, HOSTS + f"10.0.1.{len(name)} peer\n", FILES[name])
            built.agents[name] = agent
            agent.start()
        built.wait_present(JOBS)
        for name, role in ROLES.items():
            assert built.ctl("facts", "set", name, f"role={role}").code == 0
        yield built


def imported(rooted: Fleet, folder: Path, *more: str) -> Done:
    return rooted.ctl("import", "--all", "--types", "host,cron", "--out", str(folder), *more)


def files(folder: Path) -> dict[str, Any]:
    """The site's files, decoded."""
    found = sorted(folder.rglob("*.yaml"))
    return {str(path.relative_to(folder)): decode_yaml(path.read_text()) for path in found}


def some(kind: str, **resources: dict[str, Any]) -> dict[str, Any]:
    """A manifest of resources of one type."""
    return {"ccm": {"resources": [{kind: [{name: one} for name, one in resources.items()]}]}}


def a_job(command: str) -> dict[str, Any]:
    return {"command": command, "schedule": "5 4 * * *", "user": "root"}


def test_site_of_three_nodes_has_layers_and_its_plan_changes_nothing(rooted: Fleet, tmp_path: Path) -> None:
    out = tmp_path / "site"

    done = imported(rooted, out, "--json")
    site = files(out)

    assert done.code == 0, (done.out, done.err)
    [record] = done.named("import")
    assert record["nodes"] == dict.fromkeys(JOBS, "imported")
    assert record["layers"] == {"common": 2, "role=db": 2, "role=web": 2, "web1": 1}
    assert (record["changes"], record["reasons"]) == ({}, {})
    assert record["left_out"] == {
        "db1": [{"type": "cron", "name": "braces", "reason": "has text that would be read as a template"}],
        "web2": [{"type": "cron", "name": "leaky", "reason": "contains what looks like an access key"}],
    }
    manifest = site.pop("manifest.yaml")
    assert manifest["hierarchy"]["order"] == [
        "role:${ lookup('facts.role') }",
        "name:${ lookup('facts.name') }",
    ]
    assert manifest["data"] == {"cron": ["common"], "host": ["common"]}
    assert manifest["overrides"] == {
        "name:web1": {"cron": ["web1"]},
        "role:db": {"cron": ["role-db"], "host": ["role-db"]},
        "role:web": {"cron": ["role-web"], "host": ["role-web"]},
    }
    assert site == {
        "layers/common/cron.yaml": some("cron", backup=a_job("/bin/backup")),
        "layers/common/host.yaml": some("host", gateway={"address": "10.0.0.1"}),
        "layers/role-db/cron.yaml": some("cron", reload=a_job("/bin/reload db")),
        "layers/role-db/host.yaml": some("host", peer={"address": "10.0.1.3"}),
        "layers/role-web/cron.yaml": some("cron", reload=a_job("/bin/reload web")),
        "layers/role-web/host.yaml": some("host", peer={"address": "10.0.1.4"}),
        "layers/web1/cron.yaml": some("cron", mine=a_job("/bin/only-here")),
    }
    assert SECRET not in done.out + done.err + "".join(one.log for one in rooted.agents.values())


def test_plan_of_the_site_names_what_has_changed_since(rooted: Fleet, tmp_path: Path) -> None:
    """The control of the proof: a plan of the site sees a change on a node."""
    out = tmp_path / "site"
    agent = rooted.agents["web1"]
    assert isinstance(agent, RootedAgent)
    job = agent.root / "cron.d" / "mine"
    before = job.read_text()

    done = imported(rooted, out)
    same = rooted.ctl("plan", str(out), "--all", "--json")
    try:
        job.write_text(before.replace("only-here", "changed"))
        other = rooted.ctl("plan", str(out), "--all", "--json")
    finally:
        job.write_text(before)

    assert done.code == 0, done.err
    assert done.out.splitlines()[-1] == "plan: 0 of 3 nodes would change"
    assert set(same.states.values()) == {"stable"}
    assert other.states == {"web1": "changed", "web2": "stable", "db1": "stable"}


def test_nothing_is_written_over_a_folder_that_has_files(rooted: Fleet, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")

    done = imported(rooted, tmp_path)

    assert (done.code, [one.name for one in tmp_path.iterdir()]) == (1, ["mine"])
    assert "exists and is not an empty folder" in done.err


def test_node_that_is_offline_is_named_and_the_rest_is_imported(rooted: Fleet, tmp_path: Path) -> None:
    rooted.agents["web2"].stop()
    try:
        done = imported(rooted, tmp_path / "site", "--json")
    finally:
        rooted.agents["web2"].start()
        rooted.wait_present(["web2"])

    assert done.code == 3, done.err
    [record] = done.named("import")
    assert record["nodes"] == {"db1": "imported", "web1": "imported", "web2": "offline"}
    assert record["changes"] == {}


def test_files_of_three_nodes_have_layers_and_their_plan_changes_nothing(
    rooted: Fleet, tmp_path: Path
) -> None:
    out = tmp_path / "site"
    agent = rooted.agents["web1"]
    assert isinstance(agent, RootedAgent)
    app = agent.shared

    done = rooted.ctl("import", "--all", "--types", f"file:{app}", "--out", str(out), "--json")

    assert done.code == 0, (done.out, done.err)
    [record] = done.named("import")
    assert record["nodes"] == dict.fromkeys(JOBS, "imported")
    assert record["changes"] == {}
    assert record["layers"] == {"common": 5, "role=db": 1, "role=web": 1, "web1": 1}
    assert record["left_out"] == {
        "db1": [
            {
                "type": "file",
                "name": f"{app}/conf.d/{{{{ name }}}}",
                "reason": "its name would be read as a template",
            }
        ],
        "web2": [
            {
                "type": "file",
                "name": f"{app}/conf.d/key",
                "reason": "contains what looks like a private key",
            }
        ],
    }
    layers = out / "layers"
    contents = {
        f"{path.relative_to(layers).parts[0]}/{path.name}": path.read_bytes()
        for path in layers.rglob("*")
        if path.is_file() and path.suffix != ".yaml"
    }
    assert contents == {
        "common/both.conf": COMMON["conf.d/both.conf"],
        "common/own.asc": KEY.encode(),
        "common/binary": COMMON["conf.d/binary"],
        "role-db/role": b"db\n",
        "role-web/role": b"web\n",
        "web1/mine": b"of web1\n",
    }
    assert (layers / f"common/files{app}/conf.d/both.conf").is_file()

    file = agent.root / "app/conf.d/mine"
    try:
        file.write_bytes(b"changed\n")
        changed = rooted.ctl("plan", str(out), "--all", "--json")
        file.unlink()
        restored = rooted.ctl("apply", str(out), "--all", "--yes", "--json")
        after = file.read_bytes()
    finally:
        file.write_bytes(FILES["web1"]["conf.d/mine"])
    assert changed.states == restored.states == {"web1": "changed", "web2": "stable", "db1": "stable"}
    assert after == FILES["web1"]["conf.d/mine"]


@pytest.mark.skipif(not HAS_APT, reason="repositories of apt need its folder")
def test_units_and_repositories_with_their_keys_are_imported(rooted: Fleet, tmp_path: Path) -> None:
    out = tmp_path / "site"
    agent = rooted.agents["web1"]
    assert isinstance(agent, RootedAgent)
    key = agent.shared / "own.asc"

    done = rooted.ctl("import", "--all", "--types", "systemd_unit,repository", "--out", str(out), "--json")

    assert done.code == 0, (done.out, done.err)
    [record] = done.named("import")
    assert (record["changes"], record["left_out"]) == ({}, {})
    assert record["layers"] == {"common": 3, "role=db": 1, "role=web": 1}
    site = files(out)
    drop_in = {"unit": "cron.service", "drop_in": "own.conf", "source": "units/cron.service.d/own.conf"}
    assert site["layers/role-web/systemd_unit.yaml"] == some(
        "systemd_unit", **{"cron.service.d/own.conf": drop_in}
    )
    assert (out / "layers/role-db/units/cron.service.d/own.conf").read_text() == "[Service]\nNice=3\n"
    assert site["layers/common/systemd_unit.yaml"] == some(
        "systemd_unit", **{"t-one.service": {"source": "units/t-one.service"}}
    )
    [first, second] = site["layers/common/repository.yaml"]["ccm"]["resources"]
    [[name]] = first["file"]
    assert (name, [list(one) for one in second["repository"]]) == (str(key), [["own"]])
    assert (out / f"layers/common/files{key}").read_text() == KEY
