/** The semaphores and read-write locks: most waiters first, then the fullest. */
import type { SemaphoreView } from "../../src/page/state.ts";
import { isLive, state } from "../model.ts";
import { count, counted, duration, printable } from "../words.ts";
import { Cell, Count, Name, None, Pips, Row, Section, Table } from "./common.tsx";

const COLUMNS = [
  { text: "Semaphore" },
  { text: "Permits held" },
  { text: "Holders", isRight: true },
  { text: "First lease ends in", isRight: true },
  { text: "Waiters", isRight: true },
];

export function Semaphores() {
  const { semaphores, nodes } = state.value ?? {};
  const { semaphores: rows = [], total = 0 } = semaphores ?? {};
  if (total === 0) return null;
  return (
    <Section
      id="semaphores"
      title="Semaphores"
      at={nodes?.at}
      note={rows.length < total ? `${count(rows.length)} of ${count(total)} known` : `${count(total)} known`}
      end={<span>Most waiters first, then the fullest</span>}
    >
      <Table label="Semaphores and read-write locks" kind="lines" columns={COLUMNS}>
        {rows.map((each) => (
          <Semaphore key={`${each.kind} ${each.name}`} semaphore={each} />
        ))}
      </Table>
    </Section>
  );
}

function Semaphore({ semaphore }: { readonly semaphore: SemaphoreView }) {
  const { name, leases, endsInMs, waiters } = semaphore;
  return (
    <Row data-semaphore={name}>
      <Name class="mono">{printable(name)}</Name>
      <Cell label="Permits held" class="l2 nw">
        <Held semaphore={semaphore} />
      </Cell>
      <Cell label="Holders" class="num rest">
        <Count value={leases} />
      </Cell>
      <Cell label="ends in" class="num r2">
        {!isLive.value ? <span class="dim">not known</span> : endsInMs === undefined ? <None /> : duration(endsInMs)}
      </Cell>
      <Cell label="Waiters" class="num big" data-u="waiting">
        <Count value={waiters} />
      </Cell>
    </Row>
  );
}

/** Each reader holds one permit of a read-write lock, and the writer holds all permits. */
function Held({ semaphore: { kind, used, permits } }: { readonly semaphore: SemaphoreView }) {
  if (kind === "read-write lock")
    return <>{used === 0 ? "free" : used === permits ? "1 writer" : counted(used, "reader")}</>;
  if (permits === undefined) return <>{count(used)}</>;
  return (
    <span class="slots">
      <Pips on={used} of={permits} />
      <span class={used >= permits ? "warn" : undefined}>
        {count(used)} of {count(permits)}
      </span>
    </span>
  );
}
