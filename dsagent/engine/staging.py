"""The folder of a flight: what an attempt that was killed left there is used again if it can be trusted."""

from pathlib import Path

from dsagent.engine import journal
from dsagent.engine.tree import remove_tree


class Staging:
    """`staging/<flight>/` with `data/`, `manifest/` and the journal.

    Pages that were written but not synced are sure only while the mount lives through which they were written, so
    everything is thrown away if `mount` is another one than the last attempt's.
    """

    def __init__(self, folder: Path, mount: str) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.manifest = folder / "manifest"
        self.journal = folder / "journal"
        self.progress = folder / "progress"
        mark = folder / "mount"
        if not (mark.is_file() and mark.read_text() == mount):
            remove_tree(str(folder))
            folder.mkdir(parents=True, mode=0o755)
            self.data.mkdir(mode=0o755)
            self.manifest.mkdir(mode=0o755)
            mark.write_text(mount)
        self.done = journal.read(str(self.journal))

    def remove(self) -> None:
        """Removes the folder."""
        remove_tree(str(self.folder))
