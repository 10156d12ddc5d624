export interface SamplePage {
  readonly scanned: boolean;
  readonly paragraphs: readonly string[];
}
export const SAMPLE_PAGES: readonly SamplePage[];
export function makeSample(): Promise<Buffer>;
