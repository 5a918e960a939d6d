"""The example on the page of the type."""

import re
from pathlib import Path

from ccm_agent.model.codec import decode_document
from tests.support.scaffold import Host

PAGE = Path(__file__).parents[4] / "docs/resources/scaffold.md"


async def test_the_example_does_as_its_page_says() -> None:
    blocks = dict(re.findall(r"^```(yaml|jet)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))
    manifest = decode_document(blocks["yaml"], "page")
    ((name, properties),) = manifest["ccm"]["resources"][0]["scaffold"][0].items()
    host = Host(data=manifest["data"])
    host.files.put("/site/templates/app/main.conf", blocks["jet"])
    host.files.put("/site/templates/app/_partials/head", "# made by ccm, port [[ data.app.port ]]")
    host.files.put("/site/templates/app/run.sh", "#!/bin/sh\n")
    host.runner.when("chmod", "0755")

    events = [await host.apply(name=name, **properties) for _ in range(2)]

    assert [event.outcome.value for event in events] == ["changed", "stable"]
    texts = {
        path.removeprefix("/etc/app/"): node.content.decode()
        for path, node in host.files.nodes.items()
        if path.startswith("/etc/app/")
    }
    assert texts == {
        "api.unit": "run api\n",
        "worker.unit": "run worker\n",
        "main.conf": "# made by ccm, port 8080\nlisten = 0.0.0.0:8080\n\n",
        "run.sh": "#!/bin/sh\n",
    }
