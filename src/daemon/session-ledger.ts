/**
 * Opens the ledger of sessions at the start of a daemon, and drops from it what is not this worker's to go on with.
 *
 * The queue file and the ledger are two files, so a crash can come between their changes: the ledger says by itself for
 * which instance it was written.
 */
import { LedgerFile } from './ledger-file.js';
import type { EventLog } from './ports.js';
import { executorsRecord, type LedgerRecord, SessionTable } from './session-table.js';
import { isSameDirectory, type StateDirectory } from './state-directory.js';

export interface OpenedSessionLedger {
  readonly ledger: LedgerFile<LedgerRecord>;
  readonly table: SessionTable;
}

/** Reads and compacts the ledger. The caller holds the lock of the directory. */
export async function openSessionLedger(directory: StateDirectory, log: EventLog): Promise<OpenedSessionLedger> {
  const { ledger, records, damage } = await LedgerFile.open<LedgerRecord>(directory.ledgerPath);
  if (damage !== null)
    log.error(
      { event: 'ledger-damaged', ...damage },
      'The ledger was damaged; it is kept aside, and what was readable is used',
    );
  if (directory.damaged !== null)
    log.error(
      { event: 'queue-file-damaged', movedTo: directory.damaged },
      'The file with the queue name was unreadable; this worker has a new queue',
    );
  const table = SessionTable.replay(records);
  const { instance, directoryId } = directory.identity;
  const owner = table.owner();
  if (owner?.instance !== instance) {
    // The sessions belong to the queue of another instance, which may well be alive: they are not ours to end.
    const dropped = table.sessions();
    for (const entry of dropped) table.apply({ type: 'session-gone', key: entry.key });
    for (const attempt of table.attempts()) table.apply({ type: 'attempt-ended', id: attempt.id });
    if (dropped.length > 0 || directory.copied || directory.renamed)
      log.warn(
        {
          event: 'sessions-dropped',
          count: dropped.length,
          reason: directory.copied
            ? 'the state directory is a copy'
            : 'the worker has another name or queue than before',
        },
        'Sessions of an earlier identity are dropped',
      );
  }
  // A copy beside the original names the original's executor, which is at work; a renamed worker's own has to end.
  if (owner !== null && !isSameDirectory(owner.directoryId, directoryId)) table.apply(executorsRecord([]));
  table.apply({ type: 'instance', owner: { instance, directoryId } });
  await ledger.compact(table.records());
  return { ledger, table };
}
