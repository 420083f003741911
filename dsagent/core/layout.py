"""Where things lie in a store, and the same below a version's `manifest/` on a node."""

import xxhash

STORE_KEY = "dsagent-store.json"
POINTER_KEY = "current.json"
MANIFESTS = "manifests/"
SHARDS = "shards/"
BUNDLES = "bundles/"
STAMPS = "stamps/"


def manifest_key(version: str) -> str:
    """The key of a version's manifest."""
    return f"{MANIFESTS}{version.partition(':')[2]}.json"


def shard_key(digest: str) -> str:
    """The key of a shard of entries."""
    return f"{SHARDS}{digest}.zst"


def bundle_key(digest: str) -> str:
    """The key of a bundle."""
    return f"{BUNDLES}{digest}.tar.zst"


def stamps_key(version: str, source: str) -> str:
    """The key of the stamps that the entries of `version` had at the source with that URL."""
    return f"{STAMPS}{version.partition(':')[2]}-{xxhash.xxh3_128_hexdigest(source.encode())}.zst"
