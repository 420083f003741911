"""What these tests share."""

import pytest

from dsagent.core.errors import NotCached
from dsagent.service import leases
from dsagent.service.evict import evict
from dsagent.service.node import Node


def assert_free(node: Node) -> None:
    assert leases.list_leases(node) == []
    evict(node, "imgs", force=False, dry_run=False)
    with pytest.raises(NotCached):
        node.find("imgs")
