/**
 * The daemon's place in the fleet: registers the worker with the workflow that represents it, and keeps the presence
 * heartbeat with the live snapshot going.
 */
import {
  ActivityCancelledError,
  ActivityNotFoundError,
  type Client,
  WithStartWorkflowOperation,
  WorkflowUpdateFailedError,
} from '@temporalio/client';
import { AtlasError, findErrorCode } from '../contract/errors.js';
import {
  CORDON_UPDATE,
  type DesiredState,
  DRAIN_UPDATE,
  DRAINED_SIGNAL,
  type DrainedNotice,
  type OperatorAnswer,
  type OwnerList,
  type PresenceRequest,
  type PresenceSnapshot,
  REGISTER_UPDATE,
  type RegisterAnswer,
  STOPPED_UPDATE,
  type StoppedNotice,
  UNCORDON_UPDATE,
  UNTOUCHED,
  WORKER_WORKFLOW_TYPE,
  type WorkerIdentity,
  type WorkerMemo,
} from '../contract/fleet.js';
import type { LocalOrder } from '../contract/local.js';
import { fleetControlQueue, workerWorkflowId } from '../contract/names.js';
import { sendUpdate } from '../temporal/updates.js';
import type { EventLog } from './ports.js';

/** One heartbeat in this part of the TTL, so that two may be lost. */
const INTERVALS_PER_TTL = 3;
/** How much longer than the presence TTL a registration is tried while another worker holds the name. */
const CONFLICT_PATIENCE_MS = 4_000;
/** After this many presence TTLs without being asked for presence the daemon registers again. */
const MISSING_AFTER_TTLS = 2;
const CONFLICT_RETRY_MS = 1_000;
const WORKFLOW_TASK_TIMEOUT = '3s';
const UPDATE_DEADLINE_MS = 10_000;
/** On a busy machine it takes seconds; without an answer a worker that has stopped shows as lost. */
const STOPPED_DEADLINE_MS = 6_000;
const UPDATE_OF_ORDER = { cordon: CORDON_UPDATE, uncordon: UNCORDON_UPDATE, drain: DRAIN_UPDATE } as const;
/** Changes come in bursts; one heartbeat tells them all, and a busy worker spares the server most of them. */
const CHANGE_DELAY_MS = 250;

export interface PresenceHooks {
  /** A presence is sent, by the monotonic clock. */
  readonly onSent: (sentAtMs: number) => void;
  /** A presence that was sent then, by the monotonic clock, was answered. */
  readonly onAnswered: (sentAtMs: number) => void;
  /** A registration that was sent then found a fleet that had not missed this worker. */
  readonly onNotMissed: (sentAtMs: number) => void;
  /** The server has ended the presence activity: it may have told the owners that this worker is suspected. */
  readonly onGone: () => void;
  readonly onUnanswered: () => void;
  /** Presence is asked for, and not because this worker was lost. */
  readonly onTrusted: () => void;
  /** What is wanted of the worker as it knows it, for a fleet that has forgotten. */
  readonly known: () => DesiredState;
  /** A registration was answered: this is what operators want of the worker. */
  readonly onDesired: (desired: DesiredState) => Promise<void>;
  /** The name belongs to another worker now. */
  readonly onSuperseded: (error: AtlasError) => void;
  readonly monotonicMs: () => number;
}

export class Presence {
  private token: Uint8Array | undefined;
  private timer: NodeJS.Timeout | undefined;
  private missingTimer: NodeJS.Timeout | undefined;
  private sending = false;
  private sendAgain = false;
  private stopped = false;

  constructor(
    private readonly client: Client,
    private readonly identity: WorkerIdentity,
    private readonly snapshot: () => Promise<PresenceSnapshot>,
    private readonly log: EventLog,
    private readonly hooks: PresenceHooks,
  ) {}

  /**
   * Registers the worker. While another live worker holds the name this waits until that one must have been lost, since
   * a host that was set up anew comes back before its predecessor is missed.
   *
   * @throws {@link AtlasError} `NameConflict`
   */
  async register(): Promise<RegisterAnswer> {
    const giveUpAtMs = performance.now() + this.identity.presenceTtlMs + CONFLICT_PATIENCE_MS;
    for (let tries = 1; ; tries += 1) {
      try {
        const answer = await this.registerOnce();
        this.watchForPresence();
        return answer;
      } catch (error) {
        const conflict = conflictOf(error);
        if (conflict === undefined) throw error;
        if (performance.now() >= giveUpAtMs || this.stopped) throw conflict;
        if (tries === 1)
          this.log.warn(
            { event: 'name-held', reason: conflict.message },
            'Another worker holds the name; waiting in case it is gone',
          );
        await new Promise((resolve) => setTimeout(resolve, CONFLICT_RETRY_MS));
      }
    }
  }

  private async registerOnce(): Promise<RegisterAnswer> {
    const { identity } = this;
    const start = () =>
      new WithStartWorkflowOperation<(memo?: WorkerMemo) => Promise<void>>(WORKER_WORKFLOW_TYPE, {
        workflowId: workerWorkflowId(identity.fleet, identity.name),
        taskQueue: fleetControlQueue(identity.fleet),
        workflowIdConflictPolicy: 'USE_EXISTING',
        // A frozen supervisor still has polls out; what they took is handed out again after this instead of 10 s.
        workflowTaskTimeout: WORKFLOW_TASK_TIMEOUT,
        args: [],
      });
    const sentAtMs = this.hooks.monotonicMs();
    const answer = await sendUpdate(this.client, UPDATE_DEADLINE_MS, () =>
      this.client.workflow.executeUpdateWithStart<
        (memo?: WorkerMemo) => Promise<void>,
        RegisterAnswer,
        [WorkerIdentity, DesiredState]
      >(REGISTER_UPDATE, { args: [identity, this.hooks.known()], startWorkflowOperation: start() }),
    );
    await this.hooks.onDesired(answer.desired ?? UNTOUCHED);
    if (answer.suspected === false) this.hooks.onNotMissed(sentAtMs);
    return answer;
  }

  /** The presence activity has been polled. */
  pickUp(taskToken: Uint8Array, request: PresenceRequest): void {
    // Meant for an earlier life of this daemon: left without an answer, since the registration that is on its way, or
    // has just been handled, makes the workflow schedule another.
    if (request.nonce !== this.identity.nonce || this.stopped) return;
    // The one before has timed out, perhaps without this worker having heard of it: its owners are asking. Before the new
    // one is answered, which would count as a sign of life.
    if (request.lost) this.hooks.onGone();
    this.token = taskToken;
    clearTimeout(this.missingTimer);
    this.changed();
    if (!request.lost) {
      this.hooks.onTrusted();
      return;
    }
    this.log.warn({ event: 'returned' }, 'The fleet took this worker for lost; it registers again');
    this.registerAgain();
  }

  /**
   * Registers again when presence is not asked for: the workflow of this worker was terminated, or belongs to another
   * instance by now.
   */
  private watchForPresence(): void {
    clearTimeout(this.missingTimer);
    this.missingTimer = setTimeout(() => {
      if (this.stopped || this.token !== undefined) return;
      this.log.warn(
        { event: 'presence-missed' },
        'The fleet does not ask for the presence of this worker; it registers again',
      );
      this.registerAgain();
      this.watchForPresence();
    }, this.identity.presenceTtlMs * MISSING_AFTER_TTLS);
  }

  private registerAgain(): void {
    this.registerOnce().catch((error: unknown) => {
      const conflict = conflictOf(error);
      if (conflict === undefined)
        this.log.warn(
          { event: 'register-failed', reason: String(error) },
          'The registration failed; it is tried again',
        );
      else if (!this.stopped) this.hooks.onSuperseded(conflict);
    });
  }

  /** Sends the snapshot soon, so that a young session is on the fleet's list. */
  changed(): void {
    this.schedule(CHANGE_DELAY_MS);
  }

  private schedule(delayMs: number): void {
    if (this.stopped || this.token === undefined) return;
    if (this.sending) {
      this.sendAgain = true;
      return;
    }
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.send(), delayMs);
  }

  private async send(): Promise<void> {
    const { token } = this;
    if (token === undefined || this.stopped) return;
    const intervalMs = this.identity.presenceTtlMs / INTERVALS_PER_TTL;
    this.sending = true;
    try {
      const details = await this.snapshot();
      const sentAtMs = this.hooks.monotonicMs();
      this.hooks.onSent(sentAtMs);
      await this.client.connection.withDeadline(Date.now() + intervalMs, () =>
        this.client.activity.heartbeat(token, details),
      );
      if (this.token === token) this.hooks.onAnswered(sentAtMs);
    } catch (error) {
      if (error instanceof ActivityNotFoundError || error instanceof ActivityCancelledError) {
        // The workflow has scheduled another one, or is about to; pickUp() goes on with it.
        if (this.token === token) {
          this.token = undefined;
          this.hooks.onGone();
          this.watchForPresence();
        }
        this.log.debug({ event: 'presence-ended' }, 'The presence activity has ended; waiting for the next');
      } else {
        this.hooks.onUnanswered();
        this.log.warn(
          { event: 'presence-unanswered', reason: error instanceof Error ? error.message : String(error) },
          'Presence was not answered',
        );
      }
    } finally {
      this.sending = false;
      const again = this.sendAgain;
      this.sendAgain = false;
      this.schedule(again ? CHANGE_DELAY_MS : intervalMs);
    }
  }

  /**
   * Tells the fleet of an order that was given on this host. Returns what came of it; throws where there is no answer.
   */
  async order({ kind, order }: LocalOrder): Promise<DesiredState | AtlasError> {
    try {
      const answer = await sendUpdate(this.client, UPDATE_DEADLINE_MS, () =>
        this.handle().executeUpdate<OperatorAnswer, [typeof order]>(UPDATE_OF_ORDER[kind], {
          args: [order],
          updateId: order.orderId,
        }),
      );
      return answer.desired;
    } catch (error) {
      if (error instanceof WorkflowUpdateFailedError && findErrorCode(error) === 'FleetConflict')
        return new AtlasError('FleetConflict', error.cause?.message ?? error.message, { cause: error });
      throw error;
    }
  }

  /** Tells the fleet that the last session of a drain has ended. */
  async drained(revision: number): Promise<void> {
    const notice: DrainedNotice = { nonce: this.identity.nonce, revision };
    await this.client.connection.withDeadline(Date.now() + UPDATE_DEADLINE_MS, () =>
      this.handle().signal<[DrainedNotice]>(DRAINED_SIGNAL, notice),
    );
  }

  private handle() {
    return this.client.workflow.getHandle(workerWorkflowId(this.identity.fleet, this.identity.name));
  }

  /** A last snapshot, then the word that the worker has stopped; bounded, and not answered it shows as lost. */
  async stop(owners: OwnerList): Promise<void> {
    if (this.stopped) return;
    this.stopped = true;
    clearTimeout(this.timer);
    clearTimeout(this.missingTimer);
    try {
      await sendUpdate(this.client, STOPPED_DEADLINE_MS, () =>
        this.handle().executeUpdate<void, [StoppedNotice]>(STOPPED_UPDATE, {
          args: [{ nonce: this.identity.nonce, owners }],
        }),
      );
    } catch (error) {
      this.log.warn(
        { event: 'stop-untold', reason: error instanceof Error ? error.message : String(error) },
        'The fleet could not be told that this worker stops; it will show as lost',
      );
    }
  }
}

function conflictOf(error: unknown): AtlasError | undefined {
  if (!(error instanceof WorkflowUpdateFailedError) || findErrorCode(error) !== 'NameConflict') return undefined;
  return new AtlasError('NameConflict', error.cause?.message ?? error.message, { cause: error });
}
