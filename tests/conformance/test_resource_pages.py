"""Every manifest on the pages of file, exec and archive runs, under noop, so that nothing of this machine is changed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
CCM = Path(sys.executable).with_name("ccm")
EXAMPLE = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = [
    pytest.param(found[1], id=f"{page}-{number}")
    for page in ("file", "exec", "archive")
    for number, found in enumerate(EXAMPLE.finditer((TOP / f"docs/resources/{page}.md").read_text()), 1)
]


@pytest.mark.parametrize("manifest", EXAMPLES)
def test_an_example_does_what_its_page_says(manifest: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text(manifest)

    done = subprocess.run(
        [CCM, "apply", "--noop", "manifest.yaml"], cwd=tmp_path, capture_output=True, text=True
    )

    assert (done.returncode, done.stderr.count(" failed ")) == (0, 0), done.stderr
