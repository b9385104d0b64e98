/** The format of answers: tables for people, JSON for programs. */
import { styleText } from "node:util";
import Table from "cli-table3";

export { durationText } from "./page/rules/words.ts";

export type Tone = "good" | "bad" | "warn" | "dim";

const COLOURS = { good: "green", bad: "red", warn: "yellow", dim: "gray" } as const;

/** A cell of a table: a text, or a text with a tone. */
export type Cell = string | { readonly text: string; readonly tone: Tone };

export class Output {
  readonly isJson: boolean;
  readonly #hasColour: boolean;
  readonly #write: (text: string) => void;

  constructor(options: {
    readonly isJson: boolean;
    readonly hasColour: boolean;
    readonly write: (text: string) => void;
  }) {
    this.isJson = options.isJson;
    this.#hasColour = options.hasColour;
    this.#write = options.write;
  }

  /** Writes `value` as one line of JSON with --json. Otherwise calls `inWords`. */
  answer(value: unknown, inWords: () => void): void {
    if (this.isJson) this.#write(`${printable(JSON.stringify(value))}\n`);
    else inWords();
  }

  line(text: string, tone?: Tone): void {
    const line = printable(text).replaceAll("\n", "\\n");
    this.#write(`${tone === undefined ? line : this.#painted(line, tone)}\n`);
  }

  /** Writes a table. `widths`: the widths of columns with long texts, by the column's position. */
  table(
    head: readonly string[],
    rows: readonly (readonly Cell[])[],
    widths: Readonly<Record<number, number>> = {},
  ): void {
    const table = new Table({
      head: [...head],
      colWidths: head.map((_, index) => widths[index] ?? null),
      wordWrap: true,
      style: { head: [], border: [], compact: true },
    });
    for (const row of rows) {
      table.push(
        row.map((cell) =>
          typeof cell === "string" ? printable(cell) : this.#painted(printable(cell.text), cell.tone),
        ),
      );
    }
    this.#write(`${table.toString()}\n`);
  }

  clear(): void {
    this.#write("\u001b[H\u001b[J");
  }

  #painted(text: string, tone: Tone): string {
    return this.#hasColour ? styleText(COLOURS[tone], text, { validateStream: false }) : text;
  }
}

/**
 * Replaces the user and password of each address by `***`. If an address is in the position of a command or an option,
 * Commander's error message quotes the address.
 */
export function withoutPasswords(text: string): string {
  return text.replaceAll(/\S+/g, (word) => {
    const end = word.lastIndexOf("@");
    const [quote = ""] = /^'?/.exec(word) ?? [];
    return word.slice(0, Math.max(0, end)).includes(":") ? `${quote}***${word.slice(end)}` : word;
  });
}

/**
 * Escapes all control characters except the line end, as JSON does, so that a terminal only displays the text, in the
 * order of its characters. Names, reasons and errors come from Redis, where any client may have written them.
 */
export function printable(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}]/gu, (char) =>
    char === "\n" ? char : `\\u${(char.codePointAt(0) ?? 0).toString(16).padStart(4, "0")}`,
  );
}
