"""The catalog as an SQLite file. It can be lost: service/records.py makes it anew from the disk."""

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from dsagent.core.datasets import DatasetKey
from dsagent.core.errors import (
    DsagentError,
    InsufficientStorage,
    NotPermitted,
    TimedOut,
    UnfitRoot,
    local_error,
)
from dsagent.core.ports import CachedVersion, Decision, Reservation
from dsagent.core.space import Space
from dsagent.service.records import recorded

WAIT_SECONDS = 60.0
# SQLite waits in C, where Ctrl-C is not seen: it waits for short times, and we for long ones.
_POLL_SECONDS = 0.25
# Before this release a checkpoint may race with a writer and corrupt the file.
_WAL_SINCE = (3, 51, 3)
Row = tuple[Any, ...]

_APPLICATION = 0x64736167
_FORMAT = 1
_COLUMNS = (
    "id, namespace, name, version, source, fingerprint, files, bytes, allocated_bytes, allocated_inodes, "
    "published, synced, mount, shares"
)
_SCHEMA = f"""
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_FORMAT};
CREATE TABLE versions (
    id TEXT PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL, version TEXT NOT NULL,
    source TEXT NOT NULL, fingerprint TEXT NOT NULL, files INTEGER NOT NULL, bytes INTEGER NOT NULL,
    allocated_bytes INTEGER NOT NULL, allocated_inodes INTEGER NOT NULL, published TEXT NOT NULL,
    synced INTEGER NOT NULL, mount TEXT NOT NULL, shares INTEGER NOT NULL
);
CREATE INDEX datasets ON versions (namespace, name);
CREATE TABLE reservations (flight TEXT PRIMARY KEY, bytes INTEGER NOT NULL, inodes INTEGER NOT NULL);
"""


class SqliteCatalog:
    """The catalog of the root `root` in the file `path`.

    Nothing is made before the first decision; a catalog that is not there reads as what the disk holds. Each thread
    keeps a connection for reading and locking; none is carried into a fork. Threads of one process take turns before
    they ask SQLite for its lock: whoever waits there sleeps for up to 0.1 s at a time, while others overtake it.
    """

    def __init__(self, path: Path, root: Path) -> None:
        self._path = path
        self._kept = threading.local()
        self._turns: dict[int, threading.Lock] = {}
        self._versions = str(root / "versions")

    @property
    def engine(self) -> str:
        """See Catalog.engine."""
        return f"SQLite {sqlite3.sqlite_version}, journal mode {_journal_mode()}"

    def versions(self, dataset: DatasetKey | None = None) -> list[CachedVersion]:
        """See Catalog.versions."""
        key = (dataset.namespace, dataset.name) if dataset else ()
        found = self._found("WHERE namespace = ? AND name = ?" if dataset else "", key)
        if found is None:
            return [version for version in self._on_disk() if dataset in (None, version.dataset)]
        return found

    def ids(self) -> set[str]:
        """See Catalog.ids."""
        rows = self._read("SELECT id FROM versions")
        return {version.id for version in self._on_disk()} if rows is None else {row[0] for row in rows}

    def unsynced(self) -> list[CachedVersion]:
        """See Catalog.unsynced."""
        found = self._found("WHERE NOT synced")
        return [version for version in self._on_disk() if not version.synced] if found is None else found

    def reservations(self) -> list[Reservation]:
        """See Catalog.reservations."""
        rows = self._read("SELECT flight, bytes, inodes FROM reservations ORDER BY flight") or []
        return [Reservation(flight, Space(size, inodes)) for flight, size, inodes in rows]

    @contextlib.contextmanager
    def decide(self) -> Iterator[Decision]:
        """See Catalog.decide. Decisions do not nest."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise local_error("make", str(self._path.parent), error) from error
        with self._converted("change"), contextlib.closing(self._connect("rwc")) as connection:
            if not os.access(self._path, os.W_OK):  # SQLite would begin a decision that locks nobody out
                raise self._not_permitted("change", "it cannot be written")
            _set_journal(connection)
            with self._turn():
                _patiently(connection, "BEGIN IMMEDIATE")
                try:
                    self._settle(connection)
                    yield _Decision(connection)
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                _patiently(connection, "COMMIT")

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """See Catalog.lock. Locks and decisions do not nest."""
        with self._converted("lock"):
            connection = self._connection()
            if connection is not None:
                if not os.access(self._path, os.W_OK):
                    raise self._not_permitted("lock", "it cannot be written")
                with self._turn(), _transaction(connection, "BEGIN IMMEDIATE"):
                    if not self._is_new(connection):
                        yield
                        return
            with self.decide():
                yield

    def _turn(self) -> threading.Lock:
        """The lock among this process's threads; a child has one of its own, as the parent's may be held for ever."""
        return self._turns.setdefault(os.getpid(), threading.Lock())

    def _found(self, where: str, parameters: Sequence[str] = ()) -> list[CachedVersion] | None:
        """Those of the versions whose folders are there, or None if there is no catalog yet."""
        query = f"SELECT {_COLUMNS} FROM versions {where} ORDER BY published, id"  # noqa: S608 - constants
        rows = self._read(query, parameters)
        if rows is None:
            return None
        return [version for row in rows if (version := self._version(row)) is not None]

    def _settle(self, connection: sqlite3.Connection) -> None:
        """Makes a new catalog, from what the disk holds; drops rows whose folders are gone."""
        if self._is_new(connection):
            for statement in filter(str.strip, _SCHEMA.split(";")):
                connection.execute(statement)
            for version in self._on_disk():
                _Decision(connection).add(version)
            return
        rows = connection.execute("SELECT id, namespace, name FROM versions").fetchall()
        for version_id, namespace, name in rows:
            if not os.path.lexists(f"{self._versions}/{namespace}/{name}/{version_id}"):
                connection.execute("DELETE FROM versions WHERE id = ?", (version_id,))

    def _read(self, query: str, parameters: Sequence[str] = ()) -> list[Row] | None:
        """The rows, or None if there is no catalog yet."""
        with self._converted("read"):
            try:
                connection = self._connection()
                return None if connection is None else self._rows(connection, query, parameters)
            except sqlite3.OperationalError:
                if os.access(self._path.parent, os.W_OK):
                    raise
            # WAL needs files beside the catalog, which cannot be made here.
            with contextlib.closing(self._connect("ro&immutable=1")) as connection:
                return self._rows(connection, query, parameters)

    def _rows(self, connection: sqlite3.Connection, query: str, parameters: Sequence[str]) -> list[Row] | None:
        # The file's lock is taken once for all of it; whoever holds it already reads inside.
        with contextlib.nullcontext() if connection.in_transaction else _transaction(connection, "BEGIN"):
            return None if self._is_new(connection) else _patiently(connection, query, parameters)

    def _connection(self) -> sqlite3.Connection | None:
        """The thread's connection to the file that is there now, which may be new; None if there is none."""
        try:
            found = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise local_error("read", str(self._path), error) from error
        identity = (os.getpid(), found.st_dev, found.st_ino)
        kept: _Kept | None = getattr(self._kept, "kept", None)
        if kept is not None and kept.identity == identity:
            return kept.connection
        connection = self._connect("rw")
        if kept is not None and kept.identity[0] != identity[0]:
            _of_the_parent.append(kept.connection)  # closing it here would take the parent's locks off
        self._kept.kept = _Kept(identity, connection)
        return connection

    def _connect(self, mode: str) -> sqlite3.Connection:
        uri = f"{self._path.absolute().as_uri()}?mode={mode}"
        connection = sqlite3.connect(uri, uri=True, timeout=_POLL_SECONDS, isolation_level=None)
        _patiently(connection, "PRAGMA synchronous = NORMAL")
        return connection

    def _is_new(self, connection: sqlite3.Connection) -> bool:
        """Whether the file is still empty; raises UnfitRoot if it is not ours."""
        # Asked first: whoever finds a table finds all of the commit that made it, however late it asks for the rest.
        if not _patiently(connection, "SELECT 1 FROM sqlite_master LIMIT 1"):
            return True
        if _patiently(connection, "PRAGMA application_id")[0][0] != _APPLICATION:
            raise self._unfit("read", "it is not a catalog of dsagent")
        if (found := _patiently(connection, "PRAGMA user_version")[0][0]) != _FORMAT:
            raise self._unfit("read", f"its format {found} is unknown to this release")
        return False

    def _version(self, row: Row) -> CachedVersion | None:
        try:
            used = os.stat(f"{self._versions}/{row[1]}/{row[2]}/{row[0]}").st_mtime
        except OSError:
            return None
        return CachedVersion(
            row[0],
            DatasetKey(row[1], row[2]),
            row[3],
            row[4],
            row[5],
            files=row[6],
            bytes=row[7],
            allocated=Space(row[8], row[9]),
            published=datetime.fromisoformat(row[10]),
            last_used=datetime.fromtimestamp(used, UTC),
            synced=bool(row[11]),
            mount=row[12],
            shares=bool(row[13]),
        )

    def _on_disk(self) -> list[CachedVersion]:
        try:
            return recorded(Path(self._versions))
        except OSError as error:
            raise local_error("list", self._versions, error) from error

    @contextlib.contextmanager
    def _converted(self, action: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._error(action, error) from error

    def _error(self, action: str, error: sqlite3.Error) -> DsagentError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        cause = str(error)
        if code == sqlite3.SQLITE_BUSY:
            hint = "another process decides for very long: see dsctl doctor"
            return TimedOut(action, str(self._path), f"it was locked for {WAIT_SECONDS:.0f} s", hint)
        if code == sqlite3.SQLITE_FULL:
            return InsufficientStorage(action, str(self._path), cause, "free space on the root's filesystem")
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM) or (
            code == sqlite3.SQLITE_CANTOPEN and not os.access(self._path.parent, os.W_OK)
        ):
            return self._not_permitted(action, cause)
        return self._unfit(action, cause)

    def _not_permitted(self, action: str, cause: str) -> NotPermitted:
        hint = "check the owner and mode of the root and how it is mounted"
        return NotPermitted(action, str(self._path), cause, hint)

    def _unfit(self, action: str, cause: str) -> UnfitRoot:
        hint = "make it anew from what is on the disk: dsctl doctor --rebuild"
        return UnfitRoot(action, str(self._path), cause, hint)


class _Kept(NamedTuple):
    """A connection, and the process and file that it belongs to."""

    identity: tuple[int, int, int]
    connection: sqlite3.Connection


_of_the_parent: list[sqlite3.Connection] = []


class _Decision:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(self, version: CachedVersion) -> None:
        self._connection.execute(
            f"INSERT OR REPLACE INTO versions ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            (
                version.id,
                version.dataset.namespace,
                version.dataset.name,
                version.version,
                version.source,
                version.fingerprint,
                version.files,
                version.bytes,
                version.allocated.bytes,
                version.allocated.inodes,
                version.published.astimezone(UTC).isoformat(timespec="microseconds"),
                version.synced,
                version.mount,
                version.shares,
            ),
        )

    def mark_synced(self, version_ids: Iterable[str]) -> None:
        ids = [(version_id,) for version_id in version_ids]
        self._connection.executemany("UPDATE versions SET synced = 1 WHERE id = ?", ids)

    def remove(self, version_id: str) -> None:
        self._connection.execute("DELETE FROM versions WHERE id = ?", (version_id,))

    def reserve(self, reservation: Reservation) -> None:
        space = reservation.space
        self._connection.execute(
            "INSERT OR REPLACE INTO reservations (flight, bytes, inodes) VALUES (?, ?, ?)",
            (reservation.flight, space.bytes, space.inodes),
        )

    def release(self, flight: str) -> None:
        self._connection.execute("DELETE FROM reservations WHERE flight = ?", (flight,))


def _set_journal(connection: sqlite3.Connection) -> None:
    wanted = _journal_mode()
    with contextlib.suppress(sqlite3.OperationalError):  # others have it open: the next one changes it
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != wanted:
            connection.execute(f"PRAGMA journal_mode = {wanted}")


def _journal_mode() -> str:
    return "wal" if sqlite3.sqlite_version_info >= _WAL_SINCE else "delete"


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    """One that writes nothing."""
    _patiently(connection, begin)
    try:
        yield
    finally:
        if connection.in_transaction:  # some errors have ended it
            connection.execute("ROLLBACK")


def _patiently(connection: sqlite3.Connection, statement: str, parameters: Sequence[str] = ()) -> list[Row]:
    """All rows of a statement, which waits for others for up to WAIT_SECONDS."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return connection.execute(statement, parameters).fetchall()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
