/** The locks: most waiters first, then the longest held. */
import { useRef } from "preact/hooks";
import type { LockView } from "../../src/page/state.ts";
import { isLive, now, state, tables } from "../model.ts";
import { clock, count, counted, duration, printable } from "../words.ts";
import { Cell, Count, Empty, More, Name, Pages, Pips, Row, Section, Table, useSettled, Who } from "./common.tsx";

const COLUMNS = [
  { text: "Resource" },
  { text: "Held by" },
  { text: "First seen", isRight: true },
  { text: "Lease ends in" },
  { text: "Lock nodes" },
  { text: "Waiters", isRight: true },
  { text: <span class="vh">Details</span> },
];

export function Locks() {
  const locks = state.value?.locks;
  const box = useRef<HTMLDivElement>(null);
  const rows = useSettled(locks?.value?.locks ?? [], ({ resource }) => resource, box);
  const { total = 0, found = 0, isComplete = false } = locks?.value ?? {};
  const { findLock, locks: page } = tables.value;
  const isFound = findLock !== "";
  return (
    <div ref={box}>
      <Section
        id="locks"
        title="Locks"
        at={locks?.at}
        note={
          locks?.value === undefined
            ? "not read yet"
            : isFound
              ? `${count(found)} of ${counted(total, "lock")} contain “${findLock}”`
              : `${count(total)} known`
        }
        end={<span>Most waiters first, then the longest held</span>}
      >
        <Table label="Locks" kind="lines" columns={COLUMNS}>
          {rows.map((lock) => (
            <Lock key={lock.resource} lock={lock} />
          ))}
          {rows.length === 0 && (
            <Empty columns={COLUMNS.length}>
              {locks?.value === undefined || !isLive.value
                ? "Not known."
                : isFound
                  ? "No known lock contains this text."
                  : isComplete
                    ? "No lock is held."
                    : "No lock was found yet."}
            </Empty>
          )}
        </Table>
        <Pages
          page={page}
          rows={rows.length}
          of={found}
          noun="locks"
          go={(page) => (tables.value = { ...tables.value, locks: page })}
          note={
            isComplete ? "All keys of the nodes have been searched." : "The page still searches the keys of the nodes."
          }
        />
      </Section>
    </div>
  );
}

/** Names that are this long may have been cut: nothing can be asked about a part of a name. */
const LONGEST_NAME = 500;

function Lock({ lock }: { readonly lock: LockView }) {
  const { resource, state: held, owner, holder, seenAt, remainingMs, leaseMs, votes, waiters } = lock;
  const nodes = state.value?.nodes.value;
  const of = nodes?.isCluster === true ? 1 : (nodes?.nodes.length ?? 0);
  const name = printable(resource);
  return (
    <Row data-lock={resource}>
      <Name class="mono">{name}</Name>
      <Cell label="Held by" class="l2">
        {held === "reserved" ? (
          <span class="dim">being handed over</span>
        ) : owner !== undefined ? (
          <Who name={owner} />
        ) : (
          <span class="dim">
            unnamed client <span class="mono">{holder}</span>
          </span>
        )}
        {held === "contended" && <span class="tag warn gap-before">below quorum</span>}
      </Cell>
      <Cell label="First seen" class="num rest">
        {isLive.value ? `${duration(Math.max(0, now.value - seenAt))} ago` : clock(seenAt)}
      </Cell>
      <Cell label="ends in" class="nw r2">
        <Lease remainingMs={remainingMs} leaseMs={leaseMs} />
      </Cell>
      <Cell label="Lock nodes" class="nw rest">
        <Pips on={votes} of={of} /> {votes} of {of}
      </Cell>
      <Cell label="Waiters" class="num big" data-u="waiting">
        <Count value={waiters} />
      </Cell>
      <Cell label="Details" class="r act">
        {resource.length < LONGEST_NAME && <More label={`lock ${name}`} open={{ kind: "lock", name: resource }} />}
      </Cell>
    </Row>
  );
}

function Lease({ remainingMs, leaseMs }: Pick<LockView, "remainingMs" | "leaseMs">) {
  if (remainingMs < 0) return <span class="warn">never</span>;
  if (!isLive.value) return <span class="dim">not known, was {duration(remainingMs)}</span>;
  const share = Math.min(100, (remainingMs / Math.max(1, leaseMs)) * 100);
  return (
    <>
      <span class={share < 34 ? "bar low" : "bar"} aria-hidden="true">
        <i style={{ width: `${share}%` }} />
      </span>
      {duration(remainingMs)}
    </>
  );
}
