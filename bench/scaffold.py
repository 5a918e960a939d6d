"""Scaffold: 200 unchanged Jinja templates, compared with rendering the same templates with plain jinja2."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from bench.measure import BIN, Line, ratio, seconds, side_by_side

ROUNDS = 9
TEMPLATES = 200
DATA = {
    "name": "web",
    "listen": "10.0.0.1",
    "workers": 8,
    "tls": True,
    "servers": [{"host": f"app{i}.example.net", "port": 8000 + i} for i in range(5)],
    "limits": {"files": 4096, "memory": "2G"},
}
TEMPLATE = """\
# {number}: {{{{ data.name }}}} on {{{{ data.listen }}}}
[server]
listen = {{{{ data.listen }}}}:{{{{ 8000 + {number} }}}}
workers = {{{{ data.workers }}}}
{{% if data.tls %}}
certificate = /etc/ssl/{{{{ data.name }}}}-{number}.pem
{{% endif %}}
{{% for server in data.servers %}}
upstream = {{{{ server.host | upper }}}}:{{{{ server.port }}}}{{% if not loop.last %}},{{% endif %}}

{{% endfor %}}
{{% for key, value in data.limits.items() %}}
limit.{{{{ key }}}} = {{{{ value | default('none') }}}}
{{% endfor %}}
note = {{{{ 'setting {number} of ' ~ data.name }}}}
"""
BARE = """
import json, os, sys
import jinja2
source, data = sys.argv[1], json.loads(sys.argv[2])
environment = jinja2.Environment(
    loader=jinja2.FileSystemLoader(source), undefined=jinja2.StrictUndefined, keep_trailing_newline=True
)
for name in sorted(os.listdir(source)):
    environment.get_template(name).render(data=data)
"""


def lay(folder: Path) -> tuple[Path, Path]:
    """Write the templates, the manifest that renders them, and the one that removes the result and its records."""
    source = folder / "src"
    source.mkdir()
    for number in range(TEMPLATES):
        (source / f"{number}.conf").write_text(TEMPLATE.format(number=number))
    for ensure in ("present", "absent"):
        resource = {str(folder / "out"): {"ensure": ensure, "source": "src", "engine": "jinja"}}
        manifest = {"data": DATA, "ccm": {"resources": [{"scaffold": [resource]}]}}
        (folder / f"{ensure}.yaml").write_text(json.dumps(manifest))
    return folder / "present.yaml", folder / "absent.yaml"


def measure() -> list[Line]:
    """Measure the budget of a scaffold."""
    ccm = str(BIN / "ccm")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        manifest, absent = lay(folder)
        wrong = folder / "out/7.conf"
        seconds([ccm, "apply", str(manifest)])
        right = wrong.read_text()
        wrong.write_text("wrong\n")
        seconds([ccm, "apply", str(manifest)])
        if wrong.read_text() != right:
            raise RuntimeError("a wrong file was not rendered again, so there is nothing to compare")
        ours, bare = side_by_side(
            ROUNDS,
            lambda: seconds([ccm, "apply", str(manifest)]),
            lambda: seconds([sys.executable, "-c", BARE, str(folder / "src"), json.dumps(DATA)]),
        )
        seconds([ccm, "apply", str(absent)])
    return [ratio(f"ccm apply of {TEMPLATES} right templates", ours, bare, 3.0, "bare jinja2 rendering them")]
