/** Escapes a text, so that HTML and SVG show it unchanged, even within an attribute. */
export function escaped(text: string): string {
  return text.replace(/[&<>"]/g, (char) => `&#${char.codePointAt(0) ?? 0};`);
}
