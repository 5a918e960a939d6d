from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster, blockbuster_ctx


@pytest.fixture(autouse=True)
def blockbuster() -> Iterator[BlockBuster]:
    with blockbuster_ctx("ccm_agent") as one:
        # a record goes to the page cache in a microsecond; a hop to a thread costs a hundred (ADR 0020)
        one.functions["os.write"].can_block_in("storage/journal.py", "append")
        yield one
