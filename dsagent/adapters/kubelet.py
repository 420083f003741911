"""What kubelet has on the host: folders of pods, and the mounts it made for their containers."""

import os
from pathlib import Path

from dsagent.adapters.linux import mount_of, mounts
from dsagent.contract import PODS_IN_ROOT
from dsagent.core.bound_pods import MountedVersion, Traces, mounted_version
from dsagent.core.errors import UnfitRoot, local_error

_HINT = "mount the host's folder there with mountPropagation HostToContainer"


class Kubelet:
    """Kubelet's root folder at the same path as on the host. All methods raise UnfitRoot if it is not seen."""

    def __init__(self, root: str, in_container: bool) -> None:
        self._root = root.rstrip("/")
        self._in_container = in_container
        self.traces()

    def mounted(self) -> list[MountedVersion]:
        """The versions that are mounted in pods. In a container they are seen only if mounts propagate into it."""
        if self._in_container and not mount_of(self._root).receives:
            raise UnfitRoot("use", f"kubelet's folder {self._root}", "mounts of the host do not appear in it", _HINT)
        found = (mounted_version(self._root, mount.point, mount.root) for mount in mounts())
        return [mount for mount in found if mount is not None]

    def traces(self) -> Traces:
        """What there is of pods: first the mounts, for a folder goes after them."""
        mounted = frozenset(mount.pod for mount in self.mounted())
        folder = Path(self._root) / PODS_IN_ROOT
        try:
            return Traces(mounted, frozenset(os.listdir(folder)))
        except FileNotFoundError as error:
            raise UnfitRoot("use", f"kubelet's folder {self._root}", f"there is no {folder}", _HINT) from error
        except OSError as error:
            raise local_error("list", str(folder), error) from error
