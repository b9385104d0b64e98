/** The outboxes of `@x/effects`. */
import type { OutboxView } from "../../src/page/state.ts";
import { isLive, now, state } from "../model.ts";
import { clock, count, duration, printable } from "../words.ts";
import { Cell, Count, Name, None, Row, Section, Table } from "./common.tsx";

/** An outbox with more jobs is not counted to its end. */
const MOST_COUNTED = 100_000;

const COLUMNS = [
  { text: "Outbox" },
  { text: "Jobs to relay", isRight: true },
  { text: "Oldest", isRight: true },
  { text: "Change", isRight: true },
  { text: "Read", isRight: true },
];

export function Outboxes() {
  const outboxes = state.value?.outboxes ?? [];
  if (outboxes.length === 0) return null;
  const rows = outboxes.reduce((sum, each) => sum + each.rows, 0);
  return (
    <Section
      id="outboxes"
      title="Outboxes"
      note={rows === 0 ? "nothing waits for a relay" : "jobs wait for their relay"}
    >
      <Table label="Outboxes" columns={COLUMNS}>
        {outboxes.map((outbox) => (
          <Outbox key={outbox.name} outbox={outbox} />
        ))}
      </Table>
    </Section>
  );
}

function Outbox({ outbox: { name, rows, oldestMs, growth, error, at } }: { readonly outbox: OutboxView }) {
  return (
    <Row>
      <Name class="mono">{printable(name)}</Name>
      <Cell label="Jobs to relay" class="num">
        {rows < MOST_COUNTED ? <Count value={rows} /> : `${count(rows)} or more`}
      </Cell>
      <Cell label="Oldest" class="num">
        {rows === 0 ? <None /> : <span class={oldestMs > 60_000 ? "warn" : undefined}>{duration(oldestMs)}</span>}
      </Cell>
      <Cell label="Change" class="num">
        {growth === undefined || rows >= MOST_COUNTED ? <None /> : rateText(growth)}
      </Cell>
      <Cell label="Read" class="num">
        {error !== undefined ? (
          <span class="bad">{printable(error)}</span>
        ) : at === undefined ? (
          "not yet"
        ) : isLive.value ? (
          `${duration(Math.max(0, now.value - at))} ago`
        ) : (
          clock(at)
        )}
      </Cell>
    </Row>
  );
}

export function rateText(growth: number): string {
  const rate = count(Math.round(Math.abs(growth) * 10) / 10);
  return rate === "0" ? "none" : `${growth < 0 ? "−" : "+"}${rate} a second`;
}
