/**
 * Whether the server has what Atlas needs. Updates and update-with-start are needed: a daemon registers with one. What only
 * newer servers have is told and decides nothing.
 */
import type { Client } from '@temporalio/client';
import { compareVersions, MIN_SERVER_VERSION } from '../../temporal/server-versions.js';
import { bad, type Finding, ok } from './findings.js';

const GRPC_INVALID_ARGUMENT = 3;
const GRPC_PERMISSION_DENIED = 7;
const GRPC_UNIMPLEMENTED = 12;

export interface ServerFacts {
  readonly address: string;
  readonly namespace: string;
  /** Empty where the server does not say. */
  readonly version: string;
  readonly namespaceIsRegistered: boolean;
  /** Updates that wait for their result. */
  readonly updates: boolean;
  /** Null where it works; else what the server says to it. */
  readonly updateWithStartRefusal: string | null;
  readonly listsWorkers: boolean;
}

export async function askServer(client: Client, address: string): Promise<ServerFacts> {
  const { workflowService } = client.connection;
  const { namespace } = client.options;
  const [system, described, updateWithStartRefusal, listsWorkers] = await Promise.all([
    workflowService.getSystemInfo({}),
    workflowService.describeNamespace({ namespace }),
    refusalOfUpdateWithStart(client),
    offersWorkerList(client),
  ]);
  const { namespaceInfo } = described;
  return {
    address,
    namespace,
    version: system.serverVersion ?? '',
    namespaceIsRegistered: namespaceInfo?.state === 1,
    updates: namespaceInfo?.capabilities?.syncUpdate === true,
    updateWithStartRefusal,
    listsWorkers,
  };
}

/** A request without operations changes nothing: a server that has the call switched on finds it invalid. */
async function refusalOfUpdateWithStart(client: Client): Promise<string | null> {
  try {
    await client.connection.workflowService.executeMultiOperation({
      namespace: client.options.namespace,
      operations: [],
    });
    return null;
  } catch (error) {
    const { code, details } = error as { code?: unknown; details?: unknown };
    if (code === GRPC_INVALID_ARGUMENT) return null;
    // Permission denied: it is switched off by `frontend.enableExecuteMultiOperation`.
    if (typeof code === 'number' && [GRPC_UNIMPLEMENTED, GRPC_PERMISSION_DENIED].includes(code))
      return typeof details === 'string' && details !== '' ? details : String(error);
    throw error;
  }
}

async function offersWorkerList(client: Client): Promise<boolean> {
  try {
    await client.connection.workflowService.listWorkers({ namespace: client.options.namespace, pageSize: 1 });
    return true;
  } catch (error) {
    const { code } = error as { code?: unknown };
    // Not there, switched off, or not allowed to this client: it is not needed.
    if (typeof code === 'number' && [GRPC_UNIMPLEMENTED, GRPC_INVALID_ARGUMENT, GRPC_PERMISSION_DENIED].includes(code))
      return false;
    throw error;
  }
}

/** Pure. */
export function checkServer(facts: ServerFacts): readonly Finding[] {
  const { address, namespace, version } = facts;
  const found: Finding[] = [];
  if (!facts.namespaceIsRegistered)
    found.push(
      bad(
        'server',
        'fail',
        address,
        `the namespace "${namespace}" is deprecated or deleted`,
        `\`temporal operator namespace describe --namespace ${namespace}\``,
      ),
    );
  if (!facts.updates)
    found.push(
      bad(
        'server',
        'fail',
        address,
        `workflow updates are off in the namespace "${namespace}": no worker can register`,
        'set `frontend.enableUpdateWorkflowExecution: true` in the dynamic configuration of the server',
      ),
    );
  if (facts.updateWithStartRefusal !== null)
    found.push(
      bad(
        'server',
        'fail',
        address,
        `update-with-start does not work, so that no worker can register: ${facts.updateWithStartRefusal}`,
        'set `frontend.enableExecuteMultiOperation: true` in the dynamic configuration of the server',
      ),
    );
  if (version !== '' && compareVersions(version, MIN_SERVER_VERSION) < 0)
    found.push(
      bad(
        'server',
        'warn',
        address,
        `the server is ${version}; Atlas is tested with ${MIN_SERVER_VERSION} and later`,
        `upgrade the Temporal server to ${MIN_SERVER_VERSION} or later`,
      ),
    );
  const optional = facts.listsWorkers ? 'offers' : 'does not offer';
  return [
    ...found,
    ...(found.some(({ level }) => level === 'fail')
      ? []
      : [
          ok(
            'server',
            address,
            `Temporal ${version === '' ? 'of unknown version' : version}, namespace "${namespace}", update-with-start works; it ${optional} a list of workers, which Atlas does not need`,
          ),
        ]),
  ];
}
