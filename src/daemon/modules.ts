/** The modules that an executor serves: those of the configuration, and else those of the document job, by their paths. */
import { fileURLToPath } from 'node:url';
import type { ExecutorSettings } from '../contract/local.js';
import type { Config } from './config.js';

const DEFAULT_ACTIVITIES = fileURLToPath(new URL('../jobs/document/activities.js', import.meta.url));
const DEFAULT_WORKFLOWS = fileURLToPath(new URL('../bundles/document.js', import.meta.url));
/** The ending by which a file given with --workflows is known to be a bundle that was built before. */
const BUNDLE_SUFFIX = '.bundle.js';

export type Modules = Pick<ExecutorSettings, 'activitiesPath' | 'workflows'>;

export function modulesOf({ activitiesPath, workflowsPath }: Config): Modules {
  return {
    activitiesPath: activitiesPath ?? DEFAULT_ACTIVITIES,
    workflows:
      workflowsPath === undefined
        ? { kind: 'bundle', path: DEFAULT_WORKFLOWS }
        : { kind: workflowsPath.endsWith(BUNDLE_SUFFIX) ? 'bundle' : 'path', path: workflowsPath },
  };
}
