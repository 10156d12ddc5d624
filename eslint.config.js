/** Lint rules. Layout is prettier's; who may import whom is in `.dependency-cruiser.cjs`. */
import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['dist/', 'node_modules/', 'coverage/', 'test/fixtures/', 'examples/**/*.js', '**/*.d.ts'] },
  {
    files: ['src/**/*.{ts,tsx}', 'test/**/*.{ts,tsx}', 'bench/**/*.ts', 'vitest.config.ts'],
    extends: [tseslint.configs.recommendedTypeChecked],
    languageOptions: { parserOptions: { project: './tsconfig.test.json', tsconfigRootDir: import.meta.dirname } },
    linterOptions: { reportUnusedDisableDirectives: 'error' },
    rules: {
      // A promise that nobody waits for is a lease that nobody releases.
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/no-misused-promises': ['error', { checksVoidReturn: { attributes: false } }],
      '@typescript-eslint/await-thenable': 'error',
      '@typescript-eslint/return-await': ['error', 'error-handling-correctness-only'],
      '@typescript-eslint/promise-function-async': 'off',
      // Type imports vanish: workflows and lazily loaded packages depend on it.
      '@typescript-eslint/consistent-type-imports': ['error', { disallowTypeAnnotations: false }],
      '@typescript-eslint/consistent-type-exports': 'error',
      '@typescript-eslint/switch-exhaustiveness-check': ['error', { considerDefaultExhaustiveForUnions: true }],
      // What was caught is thrown again as it is.
      '@typescript-eslint/only-throw-error': ['error', { allowThrowingUnknown: true }],
      // It does not see that a variable is assigned inside a closure, and would have needed assertions removed.
      '@typescript-eslint/no-unnecessary-type-assertion': 'off',
      // Enums of protocol messages arrive as numbers.
      '@typescript-eslint/no-unsafe-enum-comparison': 'off',
      // A variable that a closure reads before its one assignment can not be a constant.
      'prefer-const': ['error', { ignoreReadBeforeAssign: true }],
      '@typescript-eslint/prefer-promise-reject-errors': 'error',
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_', varsIgnorePattern: '^_' }],
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true, allowBoolean: true }],
      // An async function without await still turns a throw into a rejection, which callers rely on.
      '@typescript-eslint/require-await': 'off',
      // Our objects of functions are written with method signatures; none of them uses `this`.
      '@typescript-eslint/unbound-method': 'off',
      // `Error & { code?: unknown }` and unions with unknown say what is meant.
      '@typescript-eslint/no-redundant-type-constituents': 'off',
      eqeqeq: ['error', 'always', { null: 'ignore' }],
      'no-console': 'error',
    },
  },
  {
    // The types that these get from their packages (pdfium's module, the `ms` of Temporal's Duration) do not resolve.
    files: ['src/jobs/document/pages/pdf.ts', 'src/workflow/options.ts', 'src/testing/wait.ts'],
    rules: {
      '@typescript-eslint/no-unsafe-argument': 'off',
      '@typescript-eslint/no-unsafe-assignment': 'off',
      '@typescript-eslint/no-unsafe-call': 'off',
    },
  },
  {
    files: ['test/**/*.{ts,tsx}', 'bench/**/*.ts'],
    rules: {
      'no-console': 'off',
      // Parsed output of programs is looked at field by field in expectations.
      '@typescript-eslint/no-unsafe-assignment': 'off',
      '@typescript-eslint/no-unsafe-member-access': 'off',
    },
  },
  {
    files: ['**/*.{js,mjs,cjs}'],
    extends: [tseslint.configs.base],
    linterOptions: { reportUnusedDisableDirectives: 'error' },
    rules: {
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_' }],
      eqeqeq: ['error', 'always', { null: 'ignore' }],
    },
  },
);
