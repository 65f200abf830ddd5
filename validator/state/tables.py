"""The Delta tables of a state folder: schemas, creation, and idempotent appends.

`facts` is the source of truth. `verdicts`, `violations` and `frontiers` are derived from it, and can be rebuilt.
`faults` has the records of the faults topic. `runs` lists the starts of the sidecar. docs/state.md describes every
column.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from enum import StrEnum
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from validator.codecs.columns import list_of
from validator.reconcile.facts import FACTS_SCHEMA, FRONTIER_TYPE
from validator.reconcile.judge import CONTRIBUTIONS, RESULTS
from validator.state.folder import holds_links


class Table(StrEnum):
    """The tables. The value is the name of the folder."""

    FACTS = "facts"
    VERDICTS = "verdicts"
    VIOLATIONS = "violations"
    FAULTS = "faults"
    FRONTIERS = "frontiers"
    RUNS = "runs"


VERDICTS_SCHEMA: Final = pa.schema(
    [
        ("batch", pa.int64()),
        ("lookup_us", pa.int64()),
        ("window_start_us", pa.int64()),
        ("key", pa.string()),
        ("state", pa.string()),
        ("closed_us", pa.int64()),
        *[(name, pa.int64()) for name in (*CONTRIBUTIONS, *RESULTS)],
    ]
)
"""A cell's verdict after a batch that changed it. The row with the newest ``batch`` of a cell is the current one."""

VIOLATIONS_SCHEMA: Final = pa.schema(
    [
        ("violation", pa.string()),
        ("class", pa.string()),
        ("batch", pa.int64()),
        ("lookup_us", pa.int64()),
        ("state", pa.string()),
        ("window_start_us", pa.int64()),
        ("key", pa.string()),
        ("count", pa.int64()),
        ("confirmed", pa.int64()),
        ("retracted", pa.int64()),
        ("provable_us", pa.int64()),
        ("ids", list_of(pa.string())),
        ("phase", pa.string()),
        ("fault", pa.string()),
        ("explanation", pa.string()),
    ]
)
"""A violation (a cell and a class) after a batch that changed it. The row with the newest ``batch`` is the current one.

``count``: contributions in it now. ``confirmed``, ``retracted``: contributions that this change confirmed, and
confirmed ones that it retracted (a suspected row confirms none). ``provable_us``: the first instant at which it could
be proven."""

FRONTIERS_SCHEMA: Final = pa.schema(
    [
        ("batch", pa.int64()),
        ("lookup_us", pa.int64()),
        ("side", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        *FRONTIER_TYPE,
    ]
)
"""The frontier rows of a batch, one per partition, copied periodically from the facts for readers."""

FAULTS_SCHEMA: Final = pa.schema(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("kind", pa.string()),
        ("target", pa.string()),
        ("state", pa.string()),
        ("time_us", pa.int64()),
        ("plan", pa.string()),
        ("seed", pa.int64()),
        ("parameters", pa.string()),
        ("expects", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("batch", pa.int64()),
    ]
)
"""Records of the faults topic, as read. ``expects``: JSON."""

RUNS_SCHEMA: Final = pa.schema(
    [
        ("generation", pa.int64()),
        ("started_us", pa.int64()),
        ("version", pa.string()),
        ("schema", pa.int64()),
        ("configuration", pa.string()),
    ]
)
"""One row per start of the sidecar that found a topic to read. It contains no secrets."""

SCHEMAS: Final[dict[Table, pa.Schema]] = {
    Table.FACTS: FACTS_SCHEMA,
    Table.VERDICTS: VERDICTS_SCHEMA,
    Table.VIOLATIONS: VIOLATIONS_SCHEMA,
    Table.FAULTS: FAULTS_SCHEMA,
    Table.FRONTIERS: FRONTIERS_SCHEMA,
    Table.RUNS: RUNS_SCHEMA,
}

_PROPERTIES: Final[dict[str, str | None]] = {
    # Removed files are deleted after an hour, not after Delta's default of a week: readers use the newest version only.
    "delta.deletedFileRetentionDuration": "interval 1 hours",
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.checkpointInterval": "50",
}
_SKIPPING: Final = ("batch", "window_start_us", "min_id", "max_id")
"""Skipping files by these columns makes the comparison of a few cells cheap. More statistics slow every commit."""
_FACTS_PROPERTIES: Final[dict[str, str | None]] = {
    **_PROPERTIES,
    "delta.dataSkippingStatsColumns": ",".join(_SKIPPING),
}
_REPEATED: Final = (
    *("kind", "batch", "lookup_us", "side", "topic", "partition", "status", "window_start_us", "reach_us"),
    *("records", "contributions", "first_time_us", "last_time_us", "newest_event_time_us"),
)
"""Columns of facts that repeat their values, and get a Parquet dictionary: for others it costs more than it saves."""
_RISING: Final = (
    *("first_offset", "last_offset", "ids.list.element.id", "ids.list.element.offset"),
    *("text_ids.list.element.offset", "times.list.element.offset", "times.list.element.time_us"),
    *(f"results.list.element.{name}" for name in ("offset", "time_us", "count", "ids.list.element")),
)
"""Columns of facts in which a value is near the one before it: their differences take few bits."""

COMPACT_EVERY: Final = 100
"""Versions between two compactions: an append takes a tenth of a millisecond per file of the table."""
COMPACTED_BYTES: Final = 32 * 1024 * 1024
"""Target size of joined files. Larger files are not changed."""
_JOINED_BYTES: Final = 256 * 1024 * 1024
"""Target size of joined files of facts in memory."""
_VACUUM_EVERY: Final = 36 * COMPACT_EVERY
"""Versions between two removals of joined files that no reader needs any more: an hour or less under traffic."""

_TIDYING: Final = ThreadPoolExecutor(1, "compaction")
"""Joins small files beside the batches, since joining the files of 100 batches can take longer than a batch may.

It joins the files of one table at a time, so that batches keep a core. A process that ends waits for it.
"""
_ROWS_PER_GROUP: Final = 2**18
"""Rows of a row group of a data file: a reader holds a group at a time."""
_MAKING: Final = {table: threading.Lock() for table in Table}
"""Two concurrent commits that create a table would conflict. The state's lock excludes other processes."""
_WRITER: Final = "writer"
"""Name of a Delta transaction in every commit of a sidecar. Its version is the sidecar's turn (docs/decisions/0011)."""
_REWRITER: Final = "rewriter"
"""Name of a Delta transaction in every commit that joins files of facts."""
_FIRST_TURN: Final = 1
_TAKE_TRIES: Final = 100
"""Attempts to commit a turn while another sidecar commits about once per second."""


def path_of(state: Path, table: Table) -> str:
    """The folder of a table."""
    return str(state / table.value)


def exists(state: Path, table: Table) -> bool:
    """Whether the table exists: its log has a commit. A full disk or a kill can leave a log without one."""
    log = state / table.value / "_delta_log"
    return any(log.glob("*.json")) or any(log.glob("*.checkpoint*.parquet"))


def has_rows(state: Path, table: Table) -> bool:
    """Whether the table's folder contains data files."""
    return exists(state, table) and any((state / table.value).rglob("*.parquet"))


def create_absent(state: Path, transactions: Sequence[Transaction] = ()) -> list[Table]:
    """Create the absent tables, empty, in a commit with ``transactions`` each. `append` creates its table itself.

    Returns the tables that were created.
    """
    created = []
    for table in Table:
        with _MAKING[table]:
            if not exists(state, table):
                _refuse_without_log(state, table)
                DeltaTable.create(
                    path_of(state, table),
                    SCHEMAS[table],
                    partition_by=_partitions(table),
                    configuration=dict(properties_of(table)),
                    commit_properties=CommitProperties(app_transactions=list(transactions)),
                )
                created.append(table)
    return created


def _refuse_without_log(state: Path, table: Table) -> None:
    """Raise FileNotFoundError if the absent table has remaining data files, or if other tables were derived from it.

    Creating it again would give an empty table, and the facts or results of the state would be lost.
    """
    derived = (Table.VERDICTS, Table.VIOLATIONS) if table is Table.FACTS else ()
    if any((state / table.value).rglob("*.parquet")) or any(has_rows(state, other) for other in derived):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(state / table.value / "_delta_log"))


def properties_of(table: Table) -> Mapping[str, str | None]:
    """The Delta properties with which a table is created."""
    return _FACTS_PROPERTIES if table is Table.FACTS else _PROPERTIES


def _partitions(table: Table) -> list[str] | None:
    return ["epoch"] if table is Table.FACTS else None


def _written(folder: Path, facts: pa.Table) -> list[AddAction | RemoveAction]:
    """Write facts to new data files in the ``folder`` of their table, one for each epoch."""
    assert not facts["epoch"].null_count, "every row is of an epoch"
    epochs, rows = pc.unique(facts["epoch"]).to_pylist(), facts.drop_columns("epoch")
    return [
        # A filter copies all ids and texts.
        _file(folder, epoch, rows if len(epochs) == 1 else rows.filter(pc.equal(facts["epoch"], epoch)))
        for epoch in epochs
    ]


def _file(folder: Path, epoch: int, rows: pa.Table, *, is_new: bool = True) -> AddAction:
    """Write a data file of the epoch's facts. ``is_new``: whether the table does not have the rows yet.

    Arrow writes it in a third of the time that the Delta library takes (docs/decisions/0007).
    """
    path = folder / f"epoch={epoch}" / f"part-{uuid.uuid4()}.parquet"
    path.parent.mkdir(exist_ok=True)
    try:
        pq.write_table(
            rows,
            path,
            row_group_size=_ROWS_PER_GROUP,
            compression="snappy" if is_new else "zstd",
            use_dictionary=list(_REPEATED),
            column_encoding=dict.fromkeys(_RISING, "DELTA_BINARY_PACKED"),
            write_statistics=list(_SKIPPING),
            store_schema=False,
        )
        size = path.stat().st_size
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    name, now_ms = f"{path.parent.name}/{path.name}", int(time.time() * 1_000)
    return AddAction(name, size, {"epoch": str(epoch)}, now_ms, data_change=is_new, stats=_statistics(rows))


def join_facts(folder: Path, known: DeltaTable) -> None:
    """Join the small files of facts in ``known`` to files of up to `COMPACTED_BYTES`, in one commit.

    The Delta library's own compaction commits also what another sidecar has joined since ``known``: the table would
    have the rows twice. Of two commits with one transaction, Delta refuses the second.
    """
    changes: list[AddAction | RemoveAction] = []
    schema = SCHEMAS[Table.FACTS]
    without_epoch = schema.remove(schema.get_field_index("epoch"))
    try:
        for files in _bins(folder, pa.table(known.get_add_actions(flatten=True)).to_pylist()):
            epoch = files[0]["partition.epoch"]
            rows = pa.concat_tables(
                pq.read_table(folder / one["path"], schema=without_epoch, partitioning=None) for one in files
            )
            changes.append(_file(folder, epoch, rows, is_new=False))
            changes += [
                RemoveAction(one["path"], False, int(time.time() * 1_000), one["size_bytes"], {"epoch": str(epoch)})
                for one in files
            ]
    except BaseException:
        _unlink_added(folder, changes)
        raise
    if not changes:
        return
    once = CommitProperties(app_transactions=[Transaction(_REWRITER, known.version())])
    try:
        known.create_write_transaction(changes, "append", schema, _partitions(Table.FACTS), commit_properties=once)
    except CommitFailedError:
        # After any other error the log may name the files: a step after the commit can fail, too.
        _unlink_added(folder, changes)
        raise


def _unlink_added(folder: Path, changes: Iterable[AddAction | RemoveAction]) -> None:
    for change in changes:
        if isinstance(change, AddAction):
            (folder / change.path).unlink(missing_ok=True)


def _bins(folder: Path, files: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Group files of one epoch each that together have up to `COMPACTED_BYTES`, also in memory up to `_JOINED_BYTES`.
    Files that stay alone are left out."""
    of_epoch = itemgetter("partition.epoch")
    for _, same in groupby(sorted(files, key=of_epoch), of_epoch):
        of_one = list(same)
        if len(of_one) == 1:
            continue
        taken, size, memory = list[dict[str, Any]](), 0, 0
        for one in of_one:
            more, in_memory = one["size_bytes"], _bytes_in_memory(folder / one["path"])
            if taken and (size + more > COMPACTED_BYTES or memory + in_memory > _JOINED_BYTES):
                if len(taken) > 1:
                    yield taken
                taken, size, memory = [], 0, 0
            taken.append(one)
            size, memory = size + more, memory + in_memory
        if len(taken) > 1:
            yield taken


def _bytes_in_memory(path: Path) -> int:
    """About how much memory the rows of a data file take: ids that follow each other take next to nothing in it."""
    found = pq.read_metadata(path)
    groups = [found.row_group(number) for number in range(found.num_row_groups)]
    columns = [group.column(number) for group in groups for number in range(group.num_columns)]
    return sum(max(8 * column.num_values, column.total_uncompressed_size) for column in columns)


def _statistics(facts: pa.Table) -> str:
    """Return Delta's statistics of a data file, by which readers skip it. They must have all columns of which the table
    keeps statistics: a reader skips a file whose bounds of a column are absent."""
    bounds = {name: pc.min_max(facts[name]).as_py() for name in _SKIPPING}
    present = {name: bound for name, bound in bounds.items() if bound["min"] is not None}
    return json.dumps(
        {
            "numRecords": facts.num_rows,
            "minValues": {name: bound["min"] for name, bound in present.items()},
            "maxValues": {name: bound["max"] for name, bound in present.items()},
            "nullCount": {name: facts[name].null_count for name in _SKIPPING},
        }
    )


def rows_of(table: Table, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows for a table. Absent columns are null."""
    return pa.Table.from_pylist([dict(row) for row in rows], SCHEMAS[table])


class PathUnfit(Exception):
    """The Delta library would misread the path of the folder."""

    exit_status = 2


class StateTaken(Exception):
    """Another sidecar took over the state while this one ran. This one has committed nothing since."""

    exit_status = 2


class StateTables:
    """The tables of one state folder, read and appended to without Spark. A commit takes tens of milliseconds.

    Only the process that holds the state's lock may append. Threads may share an object.
    """

    def __init__(self, state: Path) -> None:
        """Raises `PathUnfit` if the path contains a percent-encoded character: ``%20`` would be read as a blank."""
        if re.search("%[0-9A-Fa-f]{2}", str(state)):
            raise PathUnfit(
                f"state.path {state}: Delta Lake misreads a percent sign before two hex digits; name another folder"
            )
        self.state = state
        self._open: dict[Table, DeltaTable] = {}
        self._turns: dict[Table, int] = {}
        self._appended: dict[Table, Future[None]] = {}
        self._tidied: dict[Table, tuple[int, Future[None]]] = {}

    def take_over(self) -> None:
        """Create absent tables, and make this object the only one that can commit to the tables.

        If the file system does not share the state's lock between hosts, a sidecar may still run on another host. Each
        table's log gets a turn above all earlier ones. From then on a commit with an earlier turn is refused, also one
        that has already begun. Raises `StateTaken` if another sidecar takes over at the same moment.
        """
        # A new table has the first turn from its first commit on: a commit less for each table of a new state.
        created = create_absent(self.state, [Transaction(_WRITER, _FIRST_TURN)])
        self._turns = dict.fromkeys(created, _FIRST_TURN)
        for table in Table:
            if table not in created:
                with _MAKING[table]:
                    self._commit_turn(table)

    def _commit_turn(self, table: Table) -> None:
        """Commit the turn of this object to ``table``."""
        for _ in range(_TAKE_TRIES):
            known = self._newest(table)
            assert known is not None
            turn = self._turns[table] = (known.transaction_version(_WRITER) or 0) + 1
            try:
                self._commit(known, table, rows_of(table, []), [])
            except (CommitFailedError, StateTaken) as error:
                # The previous sidecar may have committed a batch in between.
                if (DeltaTable(path_of(self.state, table)).transaction_version(_WRITER) or 0) >= turn:
                    raise self._taken() from error
            else:
                return
        raise self._taken()

    def _commit(self, known: DeltaTable, table: Table, rows: pa.Table, transactions: list[Transaction]) -> None:
        """Append ``rows`` to the table version ``known``.

        Delta refuses a commit if another commit with the same transaction was made since that version. A turn that was
        the newest in ``known`` is therefore still the newest when the commit succeeds.
        """
        turn = self._turns.get(table)
        if turn is not None:
            transactions = [*transactions, Transaction(_WRITER, turn)]
        try:
            once = CommitProperties(app_transactions=transactions)
            if table is Table.FACTS:
                files = _written(Path(path_of(self.state, table)), rows)
                known.create_write_transaction(
                    files, "append", SCHEMAS[table], _partitions(table), commit_properties=once
                )
            else:
                write_deltalake(known, rows, mode="append", target_file_size=COMPACTED_BYTES, commit_properties=once)
        except CommitFailedError as error:
            if turn is None or DeltaTable(path_of(self.state, table)).transaction_version(_WRITER) == turn:
                raise
            raise self._taken() from error

    def _check_turn(self, known: DeltaTable, table: Table) -> None:
        if table in self._turns and known.transaction_version(_WRITER) != self._turns[table]:
            raise self._taken()

    def _taken(self) -> StateTaken:
        return StateTaken(
            f"another sidecar took over the state {self.state}; its lock on another host is not visible here: run only "
            "one of the two, and disable the automatic restart of the other one"
        )

    def append(self, rows: pa.Table, table: Table, *, writer: str, version: int) -> None:
        """Append idempotently: an append with a ``version`` not above the ``writer``'s highest one changes nothing.

        ``rows``: columns of `SCHEMAS`, in any order. The versions of one writer only rise. Delta stores the highest
        version per writer in the table. Raises `StateTaken`.
        """
        application = f"{table.value}-{writer}"
        typed = rows.select(SCHEMAS[table].names).cast(SCHEMAS[table])
        once = Transaction(application, version)
        with _MAKING[table]:
            known = self._newest(table)
            if known is None:
                write_deltalake(
                    path_of(self.state, table),
                    typed,
                    mode="append",
                    partition_by=_partitions(table),
                    configuration=dict(properties_of(table)),
                    commit_properties=CommitProperties(app_transactions=[once]),
                )
                return
            self._check_turn(known, table)
            done = known.transaction_version(application)
            if done is None or done < version:
                self._commit(known, table, typed, [once])
                self._tidy(table, known)

    def begin_append(self, rows: pa.Table, table: Table, *, writer: str, version: int) -> Future[None]:
        """Begin an `append` in another thread. `scan` of the table waits for its end.

        The rows are stored once the future has a result. It has the exception if `append` raised one.
        """
        begun = self._appended[table] = Future[None]()

        def write() -> None:
            try:
                self.append(rows, table, writer=writer, version=version)
            except BaseException as error:  # noqa: BLE001 - raised again by `Future.result`
                begun.set_exception(error)
            else:
                begun.set_result(None)

        # A process that ends does not wait for a disk that hangs: the end has the effect of a kill.
        threading.Thread(target=write, name="streamproof-append", daemon=True).start()
        return begun

    def scan(
        self, table: Table, columns: Sequence[str] | None = None, where: ds.Expression | None = None
    ) -> Iterable[pa.Table]:
        """The rows of the newest version that match ``where``, in parts; none if the table does not exist."""
        if table in self._appended:
            # If the append failed, the caller of `begin_append` has its exception.
            wait([self._appended[table]])
        with _MAKING[table]:
            known = self._newest(table)
            if known is None:
                return []
            # The library's own file system is Python code. A thread of Arrow that still needs it while the process
            # ends would abort the process. Arrow's file system needs no Python.
            files = SubTreeFileSystem(path_of(self.state, table), LocalFileSystem())
            dataset = known.to_pyarrow_dataset(filesystem=files)
        batches = dataset.to_batches(columns=None if columns is None else list(columns), filter=where)
        return (pa.Table.from_batches([batch]) for batch in batches if batch.num_rows)

    def delete_facts(self, through_epoch: int) -> None:
        """Delete the facts of epochs up to ``through_epoch`` from the table. Their files stay on the disk."""
        # A deletion cannot be committed if the files that it removes from the table were joined meanwhile.
        self._await_tidying(Table.FACTS)
        with _MAKING[Table.FACTS]:
            known = self._newest(Table.FACTS)
            if known is not None:
                self._check_turn(known, Table.FACTS)
                known.delete(f"epoch <= {through_epoch}")

    def close(self) -> None:
        """Wait until the files that are being joined have been joined."""
        for table in Table:
            self._await_tidying(table)

    def _await_tidying(self, table: Table) -> None:
        if table in self._tidied:
            wait([self._tidied[table][1]])

    def _tidy(self, table: Table, known: DeltaTable) -> None:
        """Periodically begin to join small files, beside further appends. Does nothing while they are being joined."""
        known.update_incremental()
        version = known.version()
        begun, running = self._tidied.get(table, (version - 1, None))
        if version // COMPACT_EVERY > begun // COMPACT_EVERY and (running is None or running.done()):
            vacuums = version // _VACUUM_EVERY > begun // _VACUUM_EVERY
            self._tidied[table] = version, _TIDYING.submit(self._compact, table, vacuums=vacuums)

    def _compact(self, table: Table, *, vacuums: bool) -> None:
        """Join small files in a commit that changes no row. The joined files are removed by a later vacuum.

        If this fails, for example on a full disk, the table keeps its small files, and the next round joins them.
        """
        with contextlib.suppress(DeltaError, OSError, StateTaken):
            known = DeltaTable(path_of(self.state, table))
            self._check_turn(known, table)
            if table is Table.FACTS:
                join_facts(Path(path_of(self.state, table)), known)
            else:
                known.optimize.compact(target_size=COMPACTED_BYTES, max_concurrent_tasks=1)
            # Vacuum removes every file that the log does not name, also through links.
            if vacuums and not holds_links(self.state / table.value):
                known.vacuum(dry_run=False)

    def _newest(self, table: Table) -> DeltaTable | None:
        known = self._open.get(table)
        if known is not None:
            known.update_incremental()
            return known
        try:
            self._open[table] = known = DeltaTable(path_of(self.state, table))
        except TableNotFoundError:
            return None
        return known
