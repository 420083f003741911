"""/datasets/<name>: what it leads to, whether the data are really there, and putting it in place."""

import os
from stat import S_ISDIR, S_ISLNK

from dsagent.contract import ENV_DATASETS_DIR, ENV_ROOT, ENV_SOURCE_DIR, ExitCode
from dsagent.entrypoints.init.answers import Part
from dsagent.entrypoints.init.datasets import Wanted
from dsagent.entrypoints.init.failure import Failure
from dsagent.entrypoints.init.settings import Settings


def cached_tree(settings: Settings, part: Part) -> str:
    """Where the job finds a dataset that the agent says is ready; raises Failure unless it is seen to be there.

    The tree below the root is compared with the version that was promised; of a mount of that tree alone, only that it
    is not empty can be seen.
    """
    mount = os.path.join(settings.data_dir, part.name)
    tree = os.path.join(settings.root, "pods", settings.pod.uid, part.name) if settings.root else part.path
    if tree is not None and _is_directory(tree):
        _check_version(tree, part)
        if _is_directory(mount) and not os.path.samefile(mount, tree):
            raise _missing(part, f"{mount} is another folder than {tree}", "see how it is mounted")
    elif _is_directory(mount):
        tree = mount
    else:
        hint = f"mount the cache's root into this container, read-only, at the same path or at the one in {ENV_ROOT}"
        raise _missing(part, f"there is neither {tree} nor {mount}", hint)
    if part.files and _is_empty(tree):
        raise _missing(part, f"{tree} is empty, but {part.files:,} files were promised", "see how it is mounted")
    return mount if settings.data_dir_given or _is_directory(mount) else tree


def mounted_source(settings: Settings, wanted: Wanted) -> str:
    """Where the source of a dataset is mounted; raises Failure if it is nowhere, or empty."""
    path = os.path.join(settings.source_dir, wanted.name) if settings.source_dir else wanted.directory
    if path is None:
        raise Failure(
            ExitCode.SOURCE,
            f"{wanted.name} cannot be read from its source: that is a URL and no folder; "
            f"mount it at FOLDER/{wanted.name} and set {ENV_SOURCE_DIR}=FOLDER",
        )
    hint = "mount it into this container as into the job's"
    if not _is_directory(path):
        raise Failure(
            ExitCode.SOURCE, f"{wanted.name} cannot be read from its source: there is no folder {path}; {hint}"
        )
    if _is_empty(path):
        raise Failure(ExitCode.SOURCE, f"{wanted.name} cannot be read from its source: {path} is empty; {hint}")
    return path


def put_link(settings: Settings, name: str, target: str) -> None:
    """Makes `datasets_dir`/`name` lead to the target, in one step; raises Failure."""
    link = os.path.join(settings.datasets_dir, name)
    try:
        if _reads(link) == target:
            return
        os.makedirs(settings.datasets_dir, exist_ok=True)
        scratch = os.path.join(settings.datasets_dir, f".{name}.new")
        if _reads(scratch) is not None:
            os.unlink(scratch)
        os.symlink(target, scratch)
        os.replace(scratch, link)
    except OSError as error:
        hint = f"mount an emptyDir at {settings.datasets_dir}, writable, or name another folder in {ENV_DATASETS_DIR}"
        code = ExitCode.PERMISSION if isinstance(error, PermissionError) else ExitCode.FAILURE
        raise Failure(code, f"cannot link {link}: {error.strerror}; {hint}") from error


def _check_version(tree: str, part: Part) -> None:
    """Compares the manifest beside a tree below the root with the version that was promised."""
    manifests = os.path.join(os.path.dirname(os.path.realpath(tree)), "manifest", "manifests")
    digest = (part.version or "").partition(":")[2]
    if _is_directory(manifests) and not os.path.exists(os.path.join(manifests, f"{digest}.json")):
        raise _missing(part, f"{tree} holds another version than {part.version}", "see how it is mounted")


def _missing(part: Part, cause: str, hint: str) -> Failure:
    return Failure(ExitCode.NOT_FOUND, f"{part.name} is not where the agent says: {cause}; {hint}")


def _is_directory(path: str) -> bool:
    try:
        return S_ISDIR(os.stat(path).st_mode)
    except OSError:
        return False


def _is_empty(path: str) -> bool:
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is None
    except OSError as error:
        raise Failure(ExitCode.PERMISSION, f"cannot list {path}: {error.strerror}; see whose it is") from error


def _reads(link: str) -> str | None:
    """Where a symlink leads, or None if there is none."""
    try:
        return os.readlink(link) if S_ISLNK(os.lstat(link).st_mode) else None
    except FileNotFoundError:
        return None
