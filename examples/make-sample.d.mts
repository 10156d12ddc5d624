export interface SamplePage {
  readonly scanned: boolean;
  readonly paragraphs: readonly string[];
  readonly foot?: string;
}
export const SAMPLE_PAGES: readonly SamplePage[];
export function makeSample(): Promise<Buffer>;
export function makeDocument(pages: readonly SamplePage[]): Promise<Buffer>;
export function textOf(page: SamplePage, number: number): string;
