"""The images of the project: built by buildah on a base of debootstrap, unpacked into a store that nodes copy."""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.cluster.containerd import PAUSE, STORE, ctr, start_containerd
from tools.cluster.layout import IMAGE_NAMESPACE, IMAGE_TAG, ClusterError
from tools.cluster.rooms import Room, close_room, give_own_folders, open_room, stop
from tools.servers import tools_directory

REPOSITORY = Path(__file__).parents[2]
TARGETS = ("agent", "init", "control", "topology")
# Which most changes leave as they are.
_KEPT_STAGES = ("requirements", "packages-agent", "packages-control", "packages-topology")
BASE = "localhost/dsagent-base:bookworm"
_PACKAGES = "ca-certificates,python3,python3-venv"
_COPIED = ("pyproject.toml", "requirements.lock", "packaging/images/requirements.py", "packaging/images/Dockerfile")
_UNWANTED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/cache/apt", "var/lib/apt/lists")


def image(target: str) -> str:
    """The name by which pods know the image of one of TARGETS."""
    return f"docker.io/{IMAGE_NAMESPACE}/{target}:{IMAGE_TAG}"


def build_images() -> Path:
    """A containerd's store that has all images, made anew if what they are made from has changed."""
    _images().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dsagent-images-") as folder:
        context = Path(folder)
        _make_context(context)
        made = _images() / _digest(context)
        if not made.exists():
            _build(context, made)
    return made / STORE


def last_store() -> Path:
    """The store of the last build, which the nodes of a running cluster have their images from."""
    (made,) = [path for path in _images().iterdir() if path != _storage() and not path.suffix]
    return made / STORE


def copy_store(room: Room, store: Path, target: Path) -> None:
    """Give a room's containerd that does not run yet the images of another one that does not run either.

    All but the databases are hard links: containerd writes its content and unpacked layers once.
    """
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_suffix(".new")
    room.run("cp", "--archive", "--link", str(store), str(scratch))
    for database in scratch.rglob("*.db"):
        database.unlink()
        shutil.copyfile(store / database.relative_to(scratch), database)
    scratch.rename(target)


def abandon_build() -> None:
    """End what a build that was killed has left running."""
    for record in _images().glob("*/room.json"):
        close_room(_unpacking_room(record.parent))


def _images() -> Path:
    return tools_directory() / "images"


def _storage() -> Path:
    """What buildah keeps from one build to the next."""
    return _images() / "storage"


def _make_context(context: Path) -> None:
    wheel = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(context / "dist")]
    client = [sys.executable, "-m", "dsagent.entrypoints.init.zipapp", str(context / "dist" / "dsagent-init.pyz")]
    for command in (wheel, client):
        subprocess.run(command, check=True, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for name in _COPIED:
        target = context / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPOSITORY / name, target)


def _digest(context: Path) -> str:
    files = sorted(path for path in context.rglob("*") if path.is_file())
    parts = [f"{path.relative_to(context)} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _build(context: Path, made: Path) -> None:
    _make_base()
    scratch = made.with_suffix(".new")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    for stage in _KEPT_STAGES:
        _build_target(context, stage, f"localhost/dsagent-{stage}")
    for target in TARGETS:
        print(f"building {image(target)}", flush=True)
        _build_target(context, target, image(target))
        _buildah("push", image(target), f"docker-archive:{scratch}/{target}.tar:docker.io/{image(target)}")
    _build_pause(scratch / "pause.tar")
    _buildah("rm", "--all")
    _buildah("rmi", "--prune")  # what earlier builds have left that this one has not used
    _fill_store(scratch)
    for old in _images().iterdir():
        if old not in (scratch, _storage()):
            shutil.rmtree(old)
    scratch.rename(made)


def _build_target(context: Path, target: str, tag: str) -> None:
    # The host's certificate authorities and proxies: pip needs those of this machine.
    authorities = "/etc/ssl/certs/ca-certificates.crt"
    options = ["--isolation=chroot", "--network=host", "--layers", f"--volume={authorities}:{authorities}:ro"]
    source = [f"--build-arg=BASE={BASE}", f"--file={context}/packaging/images/Dockerfile", f"--target={target}"]
    _buildah("build", *options, *source, f"--tag={tag}", str(context))


def _fill_store(directory: Path) -> None:
    """Let a containerd unpack all archives of the directory, which then has its store and no archive."""
    room = _unpacking_room(directory)
    try:
        open_room(room)
        give_own_folders(room)
        start_containerd(room)
        for archive in directory.glob("*.tar"):
            ctr(room, "images", "import", str(archive))
            archive.unlink()
        stop(room, "containerd")
    finally:
        close_room(room)


def _unpacking_room(directory: Path) -> Room:
    return Room("images", directory, directory, own_network=False)


def _make_base() -> None:
    if _buildah("images", "--quiet", BASE, check=False).returncode == 0:
        return
    print("building a base of Debian bookworm with Python", flush=True)
    with tempfile.TemporaryDirectory(prefix="base-", dir=_images()) as folder:
        command = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", "bookworm", folder]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise ClusterError(f"debootstrap: {' | '.join(done.stdout.splitlines()[-3:])}")
        for unwanted in _UNWANTED:
            shutil.rmtree(Path(folder, unwanted))
            Path(folder, unwanted).mkdir()
        container = _buildah("from", "scratch").stdout.strip()
        _buildah("copy", container, folder, "/")
        _buildah("commit", "--rm", container, BASE)


def _build_pause(archive: Path) -> None:
    """The image that holds a pod's namespaces: busybox, waiting."""
    container = _buildah("from", "scratch").stdout.strip()
    with tempfile.TemporaryDirectory(prefix="dsagent-pause-") as folder:
        shutil.copy2("/bin/busybox", folder)
        for applet in subprocess.run(["busybox", "--list"], check=True, capture_output=True, text=True).stdout.split():
            if applet != "busybox":
                Path(folder, applet).symlink_to("busybox")
        _buildah("copy", container, folder, "/bin")
    _buildah("config", '--entrypoint=["/bin/busybox", "sleep", "2147483647"]', container)
    _buildah("commit", "--rm", container, f"docker-archive:{archive}:{PAUSE}")


def _buildah(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    storage = _storage()
    # In namespaces of its own, so that a build that fails leaves no mounts, and one that is killed no processes.
    alone = ["setpriv", "--pdeathsig=KILL", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command = [*alone, "buildah", f"--root={storage}", f"--runroot={storage}/run", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if check and done.returncode:
        raise ClusterError(f"buildah {' '.join(arguments)}: {' | '.join(done.stderr.splitlines()[-5:])}")
    return done
