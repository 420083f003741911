"""Puts training datasets on the node's local disk: whole, verified and read-only.

    with dsagent.cache("/mnt/nfs/imagenet") as dataset:
        train(dataset.path)

The functions are the verbs of dsctl; importing this package loads none of them before the first is asked for.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # type checkers take it for true; importing typing would take longer than all the rest

if TYPE_CHECKING:
    from dsagent.core.errors import (
        AgentUnreachable,
        BadStore,
        DigestMismatch,
        DsagentError,
        InsufficientStorage,
        Interrupted,
        InUse,
        NotCached,
        NotPermitted,
        SourceChanged,
        SourceError,
        TimedOut,
        UnfitRoot,
        UsageError,
        WorkerDied,
    )
    from dsagent.core.progress import Progress
    from dsagent.entrypoints.library import Cached, cache, pack, run
    from dsagent.entrypoints.upkeep import (
        df,
        diff,
        doctor,
        evict,
        lease_add,
        lease_ls,
        lease_release,
        lease_renew,
        ls,
        ls_store,
        path,
        store_check,
        store_forget,
        store_prune,
        verify,
    )
__all__ = [
    "AgentUnreachable",
    "BadStore",
    "Cached",
    "DigestMismatch",
    "DsagentError",
    "InUse",
    "InsufficientStorage",
    "Interrupted",
    "NotCached",
    "NotPermitted",
    "Progress",
    "SourceChanged",
    "SourceError",
    "TimedOut",
    "UnfitRoot",
    "UsageError",
    "WorkerDied",
    "cache",
    "df",
    "diff",
    "doctor",
    "evict",
    "lease_add",
    "lease_ls",
    "lease_release",
    "lease_renew",
    "ls",
    "ls_store",
    "pack",
    "path",
    "run",
    "store_check",
    "store_forget",
    "store_prune",
    "verify",
]


_HOME = dict.fromkeys(("Cached", "cache", "pack", "run"), "dsagent.entrypoints.library")
_HOME["Progress"] = "dsagent.core.progress"

if not TYPE_CHECKING:  # it would make any misspelt name look known

    def __getattr__(name: str) -> object:
        """Loads what is asked for."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415 - only when needed

        others = "dsagent.core.errors" if name[0].isupper() else "dsagent.entrypoints.upkeep"
        found = getattr(import_module(_HOME.get(name, others)), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
