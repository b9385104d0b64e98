/** The time line as a table. */
import { gapsOf } from "../figures.ts";
import { state } from "../model.ts";
import { clock, dayClock, duration, printable } from "../words.ts";
import { Empty, Hidden, Name, Row, Table } from "./common.tsx";
import { axis, marksIn, TICK_WORDS } from "./time-line.tsx";

/** The time line in words: marks, terms, gaps, and ticks that did not run. */
export function Happened() {
  const shown = axis();
  const { elections = [], schedules } = state.value ?? {};
  const rows = [
    ...marksIn(shown).map(({ at, text }) => ({ at, what: "Mark", text })),
    ...elections.flatMap((election) => [
      ...election.terms.map(({ since, id, term, until, end }) => ({
        at: since,
        what: `Election ${election.name}`,
        text: `${id} began term ${term}${until === undefined ? ", which lasts" : `, until ${clock(until)}${end === undefined ? "" : ` (${end})`}`}`,
      })),
      ...gapsOf(election, shown.now).map(({ since, until }) => ({
        at: since,
        what: `Election ${election.name}`,
        text: `nobody led for ${duration(until - since)}`,
      })),
    ]),
    ...(schedules?.value?.schedules ?? []).flatMap(({ name, history }) =>
      history.map(({ at, outcome }) => ({ at, what: `Schedule ${name}`, text: TICK_WORDS[outcome] })),
    ),
  ]
    .filter(({ at }) => at >= shown.from)
    .toSorted((one, other) => other.at - one.at)
    .slice(0, 200);
  return (
    <Table label="Time line" columns={[{ text: "Time" }, { text: "What" }, { text: "Happened" }]}>
      {rows.map(({ at, what, text }, index) => (
        <Row key={`${at} ${what} ${index}`}>
          <Name>{dayClock(at, shown.now)}</Name>
          <td role="cell" data-l="What">
            {printable(what)}
          </td>
          <td role="cell" data-l="Happened">
            {printable(text)}
          </td>
        </Row>
      ))}
      {rows.length === 0 && (
        <Empty columns={3}>
          Nothing happened in this time.<Hidden> Choose a longer time range.</Hidden>
        </Empty>
      )}
    </Table>
  );
}
