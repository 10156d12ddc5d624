/**
 * What is done to the picture of a page before OCR looks at it again. Pure.
 */
import type { PageImage } from './pdf.js';

/** The page turned by quarters, clockwise. */
export function turn(image: PageImage, quarters: 1 | 2 | 3): PageImage {
  const { width, height, dpi } = image;
  const pixels = pixelsOf(image);
  const [newWidth, newHeight] = quarters === 2 ? [width, height] : [height, width];
  const { pgm, at: start } = emptyPgm(newWidth, newHeight);
  let at = start;
  for (let y = 0; y < newHeight; y += 1) {
    for (let x = 0; x < newWidth; x += 1) {
      const from =
        quarters === 1
          ? (height - 1 - x) * width + y
          : quarters === 3
            ? x * width + (width - 1 - y)
            : (height - 1 - y) * width + (width - 1 - x);
      pgm[at] = pixels[from] ?? 255;
      at += 1;
    }
  }
  return { pgm, width: newWidth, height: newHeight, dpi };
}

/** The page at half its resolution: each pixel is the mean of four. */
export function halve(image: PageImage): PageImage {
  const pixels = pixelsOf(image);
  const width = Math.max(1, Math.floor(image.width / 2));
  const height = Math.max(1, Math.floor(image.height / 2));
  const { pgm, at: start } = emptyPgm(width, height);
  let at = start;
  for (let y = 0; y < height; y += 1) {
    let from = 2 * y * image.width;
    for (let x = 0; x < width; x += 1) {
      const upper = (pixels[from] ?? 255) + (pixels[from + 1] ?? 255);
      const lower = (pixels[from + image.width] ?? 255) + (pixels[from + image.width + 1] ?? 255);
      pgm[at] = (upper + lower) >> 2;
      at += 1;
      from += 2;
    }
  }
  return { pgm, width, height, dpi: image.dpi / 2 };
}

function pixelsOf({ pgm, width, height }: PageImage): Uint8Array {
  return pgm.subarray(Math.max(0, pgm.length - width * height));
}

function emptyPgm(width: number, height: number): { readonly pgm: Uint8Array; readonly at: number } {
  const header = Buffer.from(`P5\n${width} ${height}\n255\n`, 'latin1');
  const pgm = new Uint8Array(header.length + width * height);
  pgm.set(header);
  return { pgm, at: header.length };
}
