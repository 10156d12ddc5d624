/**
 * Why a worker that drains is not done yet: what each session that it holds is doing, and whether it moves. Told from the
 * owner's `describe`, which costs the server no event; nothing is asked of the hosts.
 *
 * Heartbeats alone do not show that anything moves: the executor sends them by itself. What does is a change of what they
 * carry, so that a look can only judge against the looks before it.
 */
import { type Client, WorkflowNotFoundError } from '@temporalio/client';
import type { temporal } from '@temporalio/proto';
import { parseSessionActivityId } from '../contract/names.js';
import { isProgress, type Progress } from '../contract/progress.js';
import { isUnavailable } from '../temporal/connect.js';
import type { SessionRecord } from './records.js';

type Pending = temporal.api.workflow.v1.IPendingActivityInfo;

/** A pinned activity of a session, as its owner waits for it. */
export interface PinnedStep {
  readonly activity: string;
  readonly attempt: number;
  /** Whether the worker has it; if not it waits for the worker, or for its next attempt. */
  readonly started: boolean;
  readonly progress: Progress | null;
  /** Changes when anything does. */
  readonly signature: string;
  /** When the next attempt may begin, after one that failed. */
  readonly nextAttemptAtMs: number | null;
  readonly scheduledAtMs: number | null;
  readonly lastFailure: string | null;
}

/** What the owner of a session is at. */
export interface OwnerLook {
  /** Such as `RUNNING` or `TERMINATED`; `NOT_FOUND` where the server knows no such run. */
  readonly status: string;
  readonly steps: readonly PinnedStep[];
  /** Activities that it waits for beside the session. */
  readonly elsewhere: readonly string[];
  /** A workflow task that is not done. */
  readonly task: { readonly attempt: number; readonly started: boolean; readonly sinceMs: number | null } | null;
}

export interface Blocker {
  readonly session: SessionRecord;
  /** Null where the owner could not be looked at. */
  readonly owner: OwnerLook | null;
  /** When anything of it was last seen to change; null where it has not been seen to. */
  readonly movedAtMs: number | null;
  /** When it was first looked at. */
  readonly watchedSinceMs: number;
}

interface Watched {
  readonly signature: string;
  readonly owner: OwnerLook;
  readonly movedAtMs: number | null;
  readonly watchedSinceMs: number;
  readonly lookedAtMs: number;
}

/** Owners are described this many at once, and so many in one look; of more, those that were not looked at for longest. */
const CONCURRENCY = 8;
const OWNERS_PER_LOOK = 32;

/** Looks at sessions again and again and remembers what changed. */
export class BlockerWatch {
  private watched = new Map<string, Watched>();

  constructor(
    private readonly client: Client,
    private readonly now: () => number = Date.now,
  ) {}

  async look(sessions: readonly SessionRecord[]): Promise<Blocker[]> {
    const kept = new Map<string, Watched>();
    for (const { key } of sessions) {
      const before = this.watched.get(key);
      if (before !== undefined) kept.set(key, before);
    }
    this.watched = kept;
    const lookedAt = ({ key }: SessionRecord): number => kept.get(key)?.lookedAtMs ?? 0;
    const due = [...sessions].sort((a, b) => lookedAt(a) - lookedAt(b)).slice(0, OWNERS_PER_LOOK);
    const lane = async (): Promise<void> => {
      for (let session = due.pop(); session !== undefined; session = due.pop()) await this.lookAt(session);
    };
    await Promise.all(Array.from({ length: Math.min(CONCURRENCY, due.length) }, lane));
    return sessions.map((session) => {
      const seen = kept.get(session.key);
      return {
        session,
        owner: seen?.owner ?? null,
        movedAtMs: seen?.movedAtMs ?? null,
        watchedSinceMs: seen?.watchedSinceMs ?? this.now(),
      };
    });
  }

  private async lookAt(session: SessionRecord): Promise<void> {
    const owner = await lookAtOwner(this.client, session);
    if (owner === undefined) return;
    const nowMs = this.now();
    const before = this.watched.get(session.key);
    const signature = JSON.stringify([owner.steps.map((step) => step.signature), session.lastStep, session.state]);
    const moved = before !== undefined && before.signature !== signature;
    this.watched.set(session.key, {
      signature,
      owner,
      movedAtMs: moved ? nowMs : (before?.movedAtMs ?? null),
      watchedSinceMs: before?.watchedSinceMs ?? nowMs,
      lookedAtMs: nowMs,
    });
  }
}

/** Undefined where the server does not answer: what was seen before still counts. */
async function lookAtOwner(client: Client, session: SessionRecord): Promise<OwnerLook | undefined> {
  try {
    const description = await client.workflow.getHandle(session.workflowId, session.runId).describe();
    const { pendingActivities, pendingWorkflowTask: task } = description.raw;
    const pending = pendingActivities ?? [];
    return {
      status: description.status.name,
      steps: pending.filter((each) => isStepOf(session.session, each)).map((each) => stepOf(client, each)),
      elsewhere: pending
        .filter(({ activityId }) => parseSessionActivityId(activityId ?? '') === undefined)
        .map(({ activityType }) => activityType?.name ?? ''),
      task:
        task == null
          ? null
          : {
              attempt: Math.max(1, task.attempt ?? 1),
              started: milliseconds(task.startedTime) !== null,
              sinceMs: milliseconds(task.originalScheduledTime) ?? milliseconds(task.scheduledTime),
            },
    };
  } catch (error) {
    if (error instanceof WorkflowNotFoundError) return { status: 'NOT_FOUND', steps: [], elsewhere: [], task: null };
    if (isUnavailable(error)) return undefined;
    throw error;
  }
}

/** A pinned call has a number in its id; lease, release and the like have words. */
function isStepOf(session: string, { activityId }: Pending): boolean {
  const id = parseSessionActivityId(activityId ?? '');
  return id?.session === session && /^\d/.test(id.step);
}

/** Temporal's PENDING_ACTIVITY_STATE_SCHEDULED: no worker has the activity. */
const STATE_SCHEDULED: number = 1;

function stepOf(client: Client, raw: Pending): PinnedStep {
  const attempt = Math.max(1, raw.attempt ?? 1);
  const data = raw.heartbeatDetails?.payloads?.[0]?.data;
  const signature = [raw.activityId, attempt, data == null ? '' : Buffer.from(data).toString('base64')].join(' ');
  return {
    activity: raw.activityType?.name ?? '',
    attempt,
    started: Number(raw.state) !== STATE_SCHEDULED,
    progress: progressOf(client, raw),
    signature,
    nextAttemptAtMs:
      attempt > 1 ? (milliseconds(raw.nextAttemptScheduleTime) ?? milliseconds(raw.scheduledTime)) : null,
    scheduledAtMs: milliseconds(raw.scheduledTime),
    lastFailure: raw.lastFailure?.message ?? null,
  };
}

function progressOf(client: Client, raw: Pending): Progress | null {
  const payload = raw.heartbeatDetails?.payloads?.[0];
  if (payload === undefined) return null;
  try {
    const value: unknown = client.options.loadedDataConverter.payloadConverter.fromPayload(payload);
    return isProgress(value) ? value : null;
  } catch {
    // Encrypted by a codec that this client does not have: changes are seen all the same, without their numbers.
    return null;
  }
}

function milliseconds(time: Pending['scheduledTime']): number | null {
  if (time?.seconds === undefined || time.seconds === null) return null;
  const ms = Number(time.seconds) * 1_000 + (time.nanos ?? 0) / 1e6;
  return ms === 0 ? null : ms;
}
