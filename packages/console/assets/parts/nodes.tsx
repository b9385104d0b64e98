/** The lock nodes. While a quorum is away, they are at the top. */
import type { NodeView } from "../../src/page/state.ts";
import { now, state } from "../model.ts";
import { clock, duration, latency, printable, wholeDuration } from "../words.ts";
import { Cell, Empty, Name, None, Row, Section, Table } from "./common.tsx";

const COLUMNS = [
  { text: "Node" },
  { text: "State" },
  { text: "Votes" },
  { text: "Answers in", isRight: true },
  { text: "Clock", isRight: true },
];

export function Nodes() {
  const { nodes, findings } = state.value ?? {};
  const view = nodes?.value;
  const found = (findings?.value ?? []).filter(({ severity }) => severity !== "info");
  const answer =
    view === undefined || view.answering === view.nodes.length
      ? ""
      : `${view.answering} of ${view.nodes.length} answer, `;
  return (
    <Section
      id="nodes"
      title="Lock nodes"
      at={nodes?.at}
      note={
        view === undefined
          ? "not read yet"
          : view.isCluster
            ? `${answer}a Redis Cluster; each master has a part of the locks`
            : `${answer}${view.quorum} of ${view.nodes.length} votes take a lock`
      }
      end={
        findings?.at !== undefined && (
          <span>
            checked {wholeDuration(Math.max(0, now.value - findings.at))} ago
            {found.length === 0 ? ": nothing found" : ""}
          </span>
        )
      }
    >
      <Table label="Lock nodes" columns={COLUMNS}>
        {/* Two nodes may have the same name by mistake. */}
        {(view?.nodes ?? []).map((node, at) => (
          <Node key={`${at} ${node.node}`} node={node} />
        ))}
        {view === undefined && <Empty columns={COLUMNS.length}>Not read yet.</Empty>}
      </Table>
      {found.length > 0 && (
        <ul class="findings">
          {found.map(({ code, message, severity }) => (
            <li key={`${code} ${message}`} class={severity === "error" ? "bad" : "warn"}>
              {printable(message)}
            </li>
          ))}
        </ul>
      )}
    </Section>
  );
}

function Node({
  node: { node, error, downSince, tookMs, clockMs, quarantineLeftMs = 0 },
}: {
  readonly node: NodeView;
}) {
  const isAway = error !== undefined;
  return (
    <Row>
      <Name class="mono">{printable(node)}</Name>
      <Cell label="State" class="wide">
        {isAway ? (
          <>
            <span class="tag bad">no answer</span> <span class="mono">{printable(error)}</span>
            {downSince !== undefined && <span class="sub">since {clock(downSince)}</span>}
          </>
        ) : quarantineLeftMs > 0 ? (
          <span class="tag warn">quarantine</span>
        ) : (
          "answers"
        )}
      </Cell>
      <Cell label="Votes">
        {isAway ? <None /> : quarantineLeftMs > 0 ? `in ${wholeDuration(quarantineLeftMs)}` : "votes"}
      </Cell>
      <Cell label="Answers in" class="num">
        {isAway ? <None /> : latency(tookMs)}
      </Cell>
      <Cell label="Clock" class="num">
        {isAway || clockMs === undefined ? <None /> : <Clock ms={clockMs} />}
      </Cell>
    </Row>
  );
}

/** How far a node's clock is ahead of the page's clock. Less than 50 ms may be an error of measurement. */
function Clock({ ms }: { readonly ms: number }) {
  if (Math.abs(ms) < 50) return <>same</>;
  const text = `${duration(Math.abs(ms))} ${ms > 0 ? "ahead" : "behind"}`;
  return <span class={Math.abs(ms) > 500 ? "warn" : undefined}>{text}</span>;
}
