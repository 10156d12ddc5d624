/**
 * The workflows of the document job: four steps on one worker, and a later request for what it kept.
 *
 * An ordinary customer of the public library. Runs inside Temporal's sandbox, so it imports types of the activities
 * only.
 */
import { ActivityFailure, ApplicationFailure, TimeoutFailure } from '@temporalio/workflow';
import { withSession, workerActivities } from 'temporal-atlas/workflow';
import type { DeliverRequest, DocumentRequest, DocumentResult } from '../../contract/document.js';
import { ERRORS } from '../../contract/errors.js';
import type * as activities from './activities.js';
import type { SentArtifacts } from './steps.js';

type Activities = typeof activities;

const DEFAULT_LANGUAGE = 'eng';
const DEFAULT_SUMMARY_SENTENCES = 6;

/**
 * Downloads a document, reads its pages, summarises it and delivers the artifacts, all on one worker. When that worker
 * is lost the steps run again from the first on another.
 */
export async function processDocument(request: DocumentRequest): Promise<DocumentResult> {
  return await withSession(
    {
      ...(request.capabilities === undefined ? {} : { capabilities: [...request.capabilities] }),
      ...(request.leaseTtlMs === undefined ? {} : { leaseTtl: request.leaseTtlMs }),
      ...(request.acquireTimeoutMs === undefined ? {} : { acquireTimeout: request.acquireTimeoutMs }),
    },
    async (session) => {
      // A server that does not answer is asked five times over some ten seconds, then the run ends with its message.
      // What can not succeed is not retryable by its code. Deaths of the executor count as attempts too.
      const { downloadDocument } = session.proxyActivities<Activities>({
        startToCloseTimeout: '4 hours',
        retry: { initialInterval: '1 second', backoffCoefficient: 2, maximumInterval: '3 seconds', maximumAttempts: 5 },
      });
      // A failed page is no failed attempt, and each attempt goes on where the last one ended: these attempts are for
      // executors that died.
      const { extractPages } = session.proxyActivities<Activities>({
        startToCloseTimeout: '4 hours',
        retry: { initialInterval: '1 second', maximumInterval: '10 seconds', maximumAttempts: 20 },
      });
      const { summarizeDocument, deliverDocument } = session.proxyActivities<Activities>({
        startToCloseTimeout: '30 minutes',
        retry: { initialInterval: '1 second', maximumInterval: '10 seconds', maximumAttempts: 5 },
      });

      const { password, deliverTo, deliverToDirectory } = request;
      const directory = deliverToDirectory === undefined ? {} : { deliverToDirectory };
      const document = await downloadDocument(request.source, {
        ...(password === undefined ? {} : { password }),
        ...directory,
      });
      const extracted = await extractPages({ document, language: request.language ?? DEFAULT_LANGUAGE });
      await summarizeDocument({ document, sentences: request.summarySentences ?? DEFAULT_SUMMARY_SENTENCES });
      const delivery = await deliverDocument({ ...(deliverTo === undefined ? {} : { deliverTo }), ...directory });

      return {
        ...document,
        pages: extracted.pages,
        engine: extracted.engine,
        ...delivery,
        sessionAttempts: session.attempt,
      };
    },
  );
}

/**
 * Sends the artifacts that a worker kept. The worker is reached through its own queue: nothing else has them.
 *
 * @throws ApplicationFailure `ArtifactsGone` when the worker does not answer.
 */
export async function deliverArtifacts(request: DeliverRequest): Promise<SentArtifacts> {
  const { worker, queue } = request.artifacts;
  const { sendKeptArtifacts } = workerActivities<Activities>(queue, {
    startToCloseTimeout: '30 minutes',
    heartbeatTimeout: '1 minute',
    retry: { initialInterval: '1 second', maximumAttempts: 3 },
  });
  try {
    return await sendKeptArtifacts(request);
  } catch (error) {
    if (isNotTaken(error)) {
      throw ApplicationFailure.create({
        type: 'ArtifactsGone',
        message: `Worker ${worker}, which keeps the artifacts, did not answer.`,
        nonRetryable: true,
        details: [
          { next: `Start worker ${worker} again and ask again, or run the job again. ${ERRORS.ArtifactsGone.summary}` },
        ],
      });
    }
    throw error;
  }
}

function isNotTaken(error: unknown): boolean {
  return (
    error instanceof ActivityFailure &&
    error.cause instanceof TimeoutFailure &&
    error.cause.timeoutType === 'SCHEDULE_TO_START'
  );
}
