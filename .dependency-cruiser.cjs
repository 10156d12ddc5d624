/**
 * Who may import whom. `test/unit/import-rules.test.ts` runs these rules over a tree that violates each of them, so that
 * a rule that has stopped matching is noticed.
 */

/** A package by name, whether it could be resolved (a path) or not (the name itself). */
const npm = (...names) => `(^|node_modules/)(${names.join('|')})(/|$)`;

/** @type {import('dependency-cruiser').IConfiguration} */
module.exports = {
  forbidden: [
    {
      name: 'contract-imports-nothing',
      comment: 'The contract is shared by workflows, daemon and command line; it imports only itself.',
      severity: 'error',
      from: { path: '^src/contract/' },
      to: { pathNot: '^src/contract/' },
    },
    {
      name: 'workflow-imports-only-contract-and-sdk',
      comment: 'Workflow code runs in a sandbox and is replayed: the contract and @temporalio/workflow, nothing else.',
      severity: 'error',
      from: { path: '^src/workflow/' },
      to: { pathNot: ['^src/(workflow|contract)/', npm('@temporalio/workflow'), npm('@temporalio/common')] },
    },
    {
      name: 'workflow-imports-common-for-types-only',
      comment: 'Types of @temporalio/common vanish; its code comes through @temporalio/workflow.',
      severity: 'error',
      from: { path: '^src/workflow/' },
      to: { path: npm('@temporalio/common'), dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'executor-never-imports-daemon',
      comment: 'The executor runs user code; what the supervisor knows reaches it over the socket.',
      severity: 'error',
      from: { path: '^src/executor/' },
      to: { path: '^src/daemon/' },
    },
    {
      name: 'nothing-imports-the-embedded-worker',
      comment: 'It puts sessions and activities into one process, which the parts of atlasd are apart for.',
      severity: 'error',
      from: { pathNot: '^src/embedded/' },
      to: { path: '^src/embedded/' },
    },
    {
      name: 'embedded-runs-no-executor-process',
      comment:
        'Of the executor it needs the guard of attempts and the memory of sessions; the rest of it is about being a child process.',
      severity: 'error',
      from: { path: '^src/embedded/' },
      to: { path: '^src/executor/', pathNot: '^src/executor/(attempts|memories|worker-options|failures)\\.ts$' },
    },
    {
      name: 'commands-never-import-daemon-or-executor',
      comment: 'The command line reaches workers through Temporal, and starts atlasd as a process.',
      severity: 'error',
      from: { path: '^src/commands/' },
      to: { path: '^src/(daemon|executor)/' },
    },
    {
      name: 'local-imports-only-contract',
      comment: 'What daemon and command line both know of the local socket; neither may come in through it.',
      severity: 'error',
      from: { path: '^src/local/' },
      to: { path: '^src/', pathNot: '^src/(local|contract)/' },
    },
    {
      name: 'nothing-imports-testing',
      comment: 'For the tests of users; a part of Atlas that needs it would ship it to production.',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/testing/' },
      to: { path: '^src/testing/' },
    },
    {
      name: 'testing-stays-light',
      comment: 'It runs in the process of any test: no test framework, no server, no terminal, no command line.',
      severity: 'error',
      from: { path: '^src/testing/' },
      to: {
        path: ['^src/(commands|terminal|fleet|local|jobs)/', npm('@temporalio/testing', 'vitest', 'pino', 'execa')],
      },
    },
    {
      name: 'ink-and-react-only-under-terminal',
      comment: 'ink takes half a second to load; only the live views may pull it in.',
      severity: 'error',
      from: { pathNot: '^src/terminal/' },
      to: { path: npm('ink', 'react') },
    },
    {
      name: 'commander-only-under-commands-and-mains',
      comment: 'Commands are specifications; one place turns them into a parser.',
      severity: 'error',
      from: { pathNot: ['^src/commands/', '^src/atlas(d)?\\.ts$'] },
      to: { path: npm('commander') },
    },
    {
      name: 'nothing-imports-the-document-job',
      comment: 'The job is a customer of Atlas. Only the configuration knows its settings; the rest loads it by path.',
      severity: 'error',
      from: { pathNot: ['^src/jobs/document/', '^src/daemon/config\\.ts$'] },
      to: { path: '^src/jobs/document/' },
    },
    {
      name: 'config-imports-only-settings-of-the-job',
      comment: 'The configuration needs the schema of the job, not the job.',
      severity: 'error',
      from: { path: '^src/daemon/config\\.ts$' },
      to: { path: '^src/jobs/document/', pathNot: '^src/jobs/document/settings\\.ts$' },
    },
    {
      name: 'document-job-uses-public-entry-points',
      comment: 'The job imports Atlas as a user does: temporal-atlas/workflow, /activity, /client, /errors.',
      severity: 'error',
      from: { path: '^src/jobs/document/' },
      to: { path: '^src/', pathNot: '^src/(jobs/document|contract)/' },
    },
    {
      name: 'no-cycles',
      comment:
        'A cycle has no order of loading. Types vanish and import() comes later, so a cycle through either is none.',
      severity: 'error',
      from: {},
      to: { circular: true, viaOnly: { dependencyTypesNot: ['type-only', 'dynamic-import'] } },
    },
    {
      name: 'no-unlisted-packages',
      comment: 'What is imported has to be a dependency; a development one is not there for users.',
      severity: 'error',
      from: { path: '^src/' },
      to: { dependencyTypes: ['npm-dev', 'npm-no-pkg', 'npm-unknown'], dependencyTypesNot: ['type-only'] },
    },
  ],
  options: {
    doNotFollow: { path: ['node_modules', '^dist/'] },
    // Counts type imports too: they are dependencies for a reader.
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    enhancedResolveOptions: { exportsFields: ['exports'], conditionNames: ['import', 'node', 'default', 'types'] },
  },
};
