/** Small parts that several sections use. */
import { signal } from "@preact/signals";
import type { ComponentChildren, JSX, RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { ActionView } from "../../src/page/state.ts";
import { blocked, type Dialog, dialog, isLive, now, outcome, state } from "../model.ts";
import { clock, count, printable, wholeDuration } from "../words.ts";

/** Text that only a screen reader reads. */
export const Hidden = ({ children }: { readonly children: ComponentChildren }) => <span class="vh">{children}</span>;

/** A number; 0 is dim. */
export const Count = ({ value }: { readonly value: number | undefined }) =>
  value === undefined ? (
    <span class="dim">not known</span>
  ) : (
    <span class={value === 0 ? "zero" : undefined}>{count(value)}</span>
  );

/** A value that does not apply. */
export const None = () => <span class="dim">–</span>;

/** Colours of processes. A process keeps its colour while the page is open. */
const colours = new Map<string, number>();

function colourOf(name: string): number {
  const processes = state.peek()?.processes ?? [];
  const isKnown =
    processes.some(({ at }) => at === name) ||
    state.peek()?.elections.some(({ terms }) => terms.some(({ id }) => id === name)) === true;
  if (!isKnown) return 6;
  const colour = colours.get(name) ?? (colours.size % 5) + 1;
  colours.set(name, colour);
  return colour;
}

/** The class with the colour of a process or leader. */
export const colourClass = (name: string): string => `p${colourOf(name)}`;

/** A process or client, with its colour. */
export const Who = ({ name, text = name }: { readonly name: string; readonly text?: string }) => (
  <span class="who">
    <i class={colourClass(name)} />
    {printable(text)}
  </span>
);

/** Slots as boxes, at most ten; more are shown as a share of ten. */
export function Pips({ on, of, odd = "" }: { readonly on: number; readonly of: number; readonly odd?: string }) {
  const shown = Math.min(of, 10);
  const full = of <= 10 ? on : Math.round((on / of) * 10);
  return (
    <span class={shown > 6 ? "pips ten" : "pips"} aria-hidden="true">
      {Array.from({ length: shown }, (_, at) => (
        <i key={at} class={at < full ? "on" : odd} />
      ))}
    </span>
  );
}

/** A command that can be copied. */
export function Command({ text }: { readonly text: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = (): void => {
    void navigator.clipboard?.writeText(text).then(
      () => setCopied(true),
      () => undefined,
    );
  };
  return (
    <span class="cmd">
      <code>{text}</code>
      <button type="button" aria-label={`Copy command: ${text}`} onClick={copy}>
        {isCopied ? "Copied" : "Copy"}
      </button>
    </span>
  );
}

/** A button that asks before it acts. Without actions there is none. */
export const Action = ({ action, kind }: { readonly action: ActionView; readonly kind?: string }) => (
  <Ask text={action.label} kind={kind} open={{ kind: "confirm", action }} />
);

interface AskProps {
  readonly text: string;
  readonly open: Dialog;
  readonly kind?: string | undefined;
}

/** A button that opens a dialog with actions. Off while nothing can be changed. */
export function Ask({ text, open, kind = "" }: AskProps) {
  const why = blocked.value;
  return (
    <button
      type="button"
      class={`btn ${kind}`}
      aria-disabled={why !== undefined}
      title={why}
      onClick={() => {
        if (why === undefined) dialog.value = open;
      }}
    >
      {text}
    </button>
  );
}

/** The button at the end of a row that opens the row's details. */
export const More = ({ label, open }: { readonly label: string; readonly open: Dialog }) => (
  <button
    type="button"
    class="more"
    aria-haspopup="dialog"
    aria-label={`Details of ${label}`}
    onClick={() => (dialog.value = open)}
  >
    ⋯
  </button>
);

/** The outcome of the last action, for some seconds. */
export function Outcome() {
  const told = outcome.value;
  return (
    <p id="outcome" role="status" class={told === undefined ? "outcome none" : told.isBad ? "outcome bad" : "outcome"}>
      {told === undefined ? "" : printable(told.text)}
    </p>
  );
}

/** The sections that are folded on a telephone. */
const isNarrow = matchMedia("(max-width: 920px)").matches;
const folded = signal<ReadonlySet<string>>(
  new Set(isNarrow ? ["workers", "time", "locks", "semaphores", "nodes", "outboxes"] : []),
);

export function unfold(section: string): void {
  if (folded.value.has(section)) folded.value = new Set([...folded.value].filter((each) => each !== section));
}

function toggle(section: string): void {
  if (folded.value.has(section)) unfold(section);
  else folded.value = new Set([...folded.value, section]);
}

interface SectionProps {
  readonly id: string;
  readonly title: string;
  readonly note?: ComponentChildren;
  readonly end?: ComponentChildren;
  /** The time of the data. Shown while the page is not live. */
  readonly at?: number | undefined;
  readonly canFold?: boolean;
  readonly children: ComponentChildren;
}

export function Section({ id, title, note, end, at, canFold = true, children }: SectionProps) {
  const isShut = folded.value.has(id);
  return (
    <section id={id} class={isShut ? "shut" : undefined} aria-labelledby={`${id}-h`} tabIndex={-1}>
      <div class="head">
        <h2 id={`${id}-h`}>{title}</h2>
        {note !== undefined && <span class="note">{note}</span>}
        <span class="end">
          {!isLive.value && at !== undefined && <Age at={at} />}
          {end}
        </span>
        {canFold && (
          <button
            type="button"
            class="toggle"
            aria-controls={`${id}-card`}
            aria-expanded={!isShut}
            onClick={() => toggle(id)}
          >
            {isShut ? "Show" : "Hide"}
            <Hidden> {title}</Hidden>
          </button>
        )}
      </div>
      <div class="card" id={`${id}-card`}>
        {children}
      </div>
    </section>
  );
}

export const Age = ({ at }: { readonly at: number }) => (
  <span class="age">
    as of {clock(at)}, {wholeDuration(now.value - at)} ago
  </span>
);

interface Column {
  readonly text: ComponentChildren;
  readonly isRight?: boolean;
  readonly sort?: "descending";
}

interface TableProps {
  readonly label: string;
  readonly columns: readonly Column[];
  readonly kind?: string;
  readonly children: ComponentChildren;
}

/** A table that keeps its greatest height for a minute, so that the sections below do not jump. */
export function Table({ label, columns, kind = "", children }: TableProps) {
  const table = useRef<HTMLTableElement>(null);
  const wrap = useRef<HTMLDivElement>(null);
  const heights = useRef<{ readonly at: number; readonly height: number }[]>([]);
  useLayoutEffect(() => {
    const height = table.current?.offsetHeight ?? 0;
    const at = now.peek();
    // A narrower window has other heights.
    if (heights.current.some((each) => at - each.at > 60_000))
      heights.current = heights.current.filter((each) => at - each.at <= 60_000);
    heights.current = [...heights.current.filter((each) => each.height > height), { at, height }];
    const tallest = heights.current[0]?.height ?? 0;
    if (wrap.current !== null) wrap.current.style.minHeight = tallest > height ? `${tallest}px` : "";
  });
  useEffect(() => {
    const forget = (): void => {
      heights.current = [];
    };
    addEventListener("resize", forget);
    return () => removeEventListener("resize", forget);
  }, []);
  return (
    <div class="wrap" ref={wrap}>
      {/* Styles that turn rows into cards would take the roles away. */}
      <table ref={table} role="table" class={`cards ${kind}`} aria-label={label}>
        <thead role="rowgroup">
          <tr role="row">
            {columns.map(({ text, isRight = false, sort }, at) => (
              <th key={at} role="columnheader" scope="col" class={isRight ? "r" : undefined} aria-sort={sort}>
                {text}
              </th>
            ))}
          </tr>
        </thead>
        <tbody role="rowgroup">{children}</tbody>
      </table>
    </div>
  );
}

export const Row = ({ children, ...rest }: JSX.HTMLAttributes<HTMLTableRowElement>) => (
  <tr role="row" {...rest}>
    {children}
  </tr>
);

export const Name = ({ children, ...rest }: JSX.HTMLAttributes<HTMLTableCellElement>) => (
  <th role="rowheader" scope="row" {...rest}>
    {children}
  </th>
);

/** A cell. `label`: the column's title, shown in a row that has become a card. */
export const Cell = ({
  label,
  children,
  ...rest
}: JSX.HTMLAttributes<HTMLTableCellElement> & { readonly label: string }) => (
  <td role="cell" data-l={label} {...rest}>
    {children}
  </td>
);

/** A row that says why there are no others. */
export const Empty = ({ columns, children }: { readonly columns: number; readonly children: ComponentChildren }) => (
  <tr role="row" class="empty">
    <td role="cell" colSpan={columns}>
      {children}
    </td>
  </tr>
);

interface PagesProps {
  readonly page: number;
  readonly rows: number;
  readonly of: number;
  readonly noun: string;
  readonly go: (page: number) => void;
  readonly note?: ComponentChildren;
}

export const PAGE_ROWS = 25;

/** The foot of a table: which rows are shown, and the way to the others. */
export function Pages({ page, rows, of, noun, go, note }: PagesProps) {
  const last = Math.max(0, Math.ceil(of / PAGE_ROWS) - 1);
  const from = page * PAGE_ROWS;
  const shown = rows === 0 ? `No ${noun}` : `${count(from + 1)} to ${count(from + rows)} of ${count(of)} ${noun}`;
  return (
    <div class="foot">
      <span>
        {shown}. {note}
      </span>
      {(last > 0 || page > 0) && (
        <span class="filters">
          <PageButton text="Previous" noun={noun} isOff={page === 0} go={() => go(page - 1)} />
          <PageButton text={`Next ${PAGE_ROWS}`} noun={noun} isOff={page >= last} go={() => go(page + 1)} />
        </span>
      )}
    </div>
  );
}

interface PageButtonProps {
  readonly text: string;
  readonly noun: string;
  readonly isOff: boolean;
  readonly go: () => void;
}

/** Stays focusable at the last page, so that the focus is not lost. */
const PageButton = ({ text, noun, isOff, go }: PageButtonProps) => (
  <button type="button" class="btn" aria-disabled={isOff} onClick={() => !isOff && go()}>
    {text}
    <Hidden> {noun}</Hidden>
  </button>
);

/**
 * Returns the items in an order that changes at most every 5 s, and never under the pointer or the focus.
 */
export function useSettled<Item>(
  items: readonly Item[],
  idOf: (item: Item) => string,
  box: RefObject<HTMLElement>,
): readonly Item[] {
  const settled = useRef<{ at: number; ids: readonly string[] }>({ at: 0, ids: [] });
  const at = now.peek();
  const element = box.current;
  const isUsed = element !== null && (element.matches(":hover") || element.contains(document.activeElement));
  if (settled.current.ids.length === 0 || (at - settled.current.at >= 5_000 && !isUsed))
    settled.current = { at, ids: items.map(idOf) };
  const places = new Map(settled.current.ids.map((id, place) => [id, place]));
  // A new row waits at the end for its place.
  const placeOf = (item: Item): number => places.get(idOf(item)) ?? places.size;
  return items.toSorted((one, other) => placeOf(one) - placeOf(other));
}
