"""What worker processes do in the tests of runners; each imports this, so it imports little."""

from __future__ import annotations

from selverify.errors import NoReply, ProtocolError, Refusal
from tasks.shards import Shard


def ends(shard: Shard) -> str:
    """The shard's name; the first try of each shard fails as ``failing`` says."""
    mark = shard.inputs["marks"] / shard.name
    if not mark.exists():
        mark.touch()
        failing = shard.inputs["failing"].name
        if failing == "busy":
            raise NoReply("no reply")
        if failing == "broken":
            raise ProtocolError("a reply of length 1, expected 2")
        if failing == "refusing":
            raise Refusal("not you", status=400)
    return shard.name
