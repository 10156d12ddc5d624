/**
 * Decides, page by page, whether the text layer can be used or the page has to be read by OCR, and cleans what either
 * of them gives. Pure.
 *
 * A document may mix both kinds of page, and a text layer may be there and still be worthless: fonts without a mapping
 * to Unicode give control characters, symbols or rare ideographs where a reader sees plain words.
 */
import type { PageFacts } from './pdf.js';

/** A page with fewer characters that are not white space may be a scan with a page number on it. */
export const MIN_LAYER_CHARACTERS = 20;
/** The share of characters without a Unicode mapping above which a text layer is not believed. */
export const MAX_UNMAPPED_SHARE = 0.3;
/** The share of characters that can not be what the page shows above which a text layer is not believed. */
export const MAX_IMPLAUSIBLE_SHARE = 0.3;

export type LayerVerdict =
  | { readonly use: 'text'; readonly why: string }
  | { readonly use: 'ocr'; readonly why: string }
  | { readonly use: 'nothing'; readonly why: string };

/** @param text The text of the facts after {@link cleanLayer}. */
export function judgeLayer(facts: PageFacts, text: string): LayerVerdict {
  const solid = [...text.replace(/\s+/gu, '')];
  if (solid.length === 0) {
    return facts.objects === 0 ? { use: 'nothing', why: 'the page is empty' } : { use: 'ocr', why: 'no text layer' };
  }
  if (facts.characters > 0 && facts.unmapped / facts.characters > MAX_UNMAPPED_SHARE) {
    return { use: 'ocr', why: `${facts.unmapped} of ${facts.characters} characters have no Unicode mapping` };
  }
  const implausible = implausibility(solid);
  if (implausible !== null) return { use: 'ocr', why: implausible };
  if (solid.length < MIN_LAYER_CHARACTERS && facts.pictures > 0) {
    return { use: 'ocr', why: `only ${solid.length} characters beside pictures` };
  }
  return { use: 'text', why: 'text layer' };
}

/** Why these characters can not be text, or null. */
function implausibility(solid: readonly string[]): string | null {
  let impossible = 0;
  let swapped = 0;
  let letters = 0;
  for (const character of solid) {
    if (/[\p{L}\p{N}\p{M}]/u.test(character)) {
      letters += 1;
      // Latin text whose two bytes were swapped comes out as ideographs that all end in a zero byte; of real
      // ideographs one in 256 does.
      if (isByteSwappedLatin(character)) swapped += 1;
    } else if (/[\p{Cc}\p{Co}\p{Cn}\uFFFD]/u.test(character)) {
      impossible += 1;
    } else if (isByteSwappedLatin(character)) {
      swapped += 1;
    }
  }
  if (impossible / solid.length > MAX_IMPLAUSIBLE_SHARE) return 'most of the text layer is control characters';
  if (swapped / solid.length > MAX_IMPLAUSIBLE_SHARE) return 'the text layer has its bytes swapped';
  if (letters / solid.length < MAX_IMPLAUSIBLE_SHARE) return 'the text layer has hardly any letters';
  return null;
}

function isByteSwappedLatin(character: string): boolean {
  const code = character.codePointAt(0) ?? 0;
  const swapped = code >> 8;
  return code <= 0xffff && (code & 0xff) === 0 && swapped > 0x20 && swapped < 0x7f;
}

/**
 * The text layer as text: lines end in `\n`, and a word that was hyphenated at the end of a line is whole again.
 * pdfium marks such a hyphen as U+FFFE.
 */
export function cleanLayer(raw: string): string {
  return tidy(raw.replace(/\uFFFE[ \t]*(?:\r?\n)?/g, ''));
}

/** What OCR gave, as text. A hyphen at the end of a line before a small letter is taken as one of the typesetter. */
export function cleanOcr(raw: string): string {
  return tidy(raw.replace(/(\p{L})[-\u2010\u00AD]\r?\n(\p{Ll})/gu, '$1$2'));
}

function tidy(text: string): string {
  return (
    text
      .replace(/\r\n?/g, '\n')
      // The control characters that are left carry nothing, and some would act on a terminal.

      .replace(/[\u0000-\u0008\u000B\u000C\u000E-\u001F\u007F-\u009F\uFFFE\uFFFF]/g, '')
      .replace(/[ \t]+\n/g, '\n')
      .replace(/\n{3,}/g, '\n\n')
      .trim()
  );
}
