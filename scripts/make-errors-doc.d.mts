export interface ErrorsDocumentInput {
  readonly errors: Readonly<
    Record<string, { readonly summary: string; readonly next: string; readonly retryable: boolean }>
  >;
  readonly exitOf: Readonly<Record<string, number>>;
  readonly exitMeanings: Readonly<Record<string, string>>;
}
export function errorsDocument(input: ErrorsDocumentInput): string;
