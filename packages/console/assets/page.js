// What a browser runs: it asks for the state by server-sent events, and writes it into tables. Texts are only ever texts.
// oxlint-disable unicorn/prefer-add-event-listener -- what is written again replaces what its buttons do
/** @typedef {import("../src/page/state.ts").PageState} PageState */
/** @typedef {import("../src/page/state.ts").TickView} TickView */
/** @typedef {{ label: string, about: string, run: () => void, marks?: readonly TickView["outcome"][], isAction?: boolean }} CellButton */
/** @typedef {{ text: string, tone?: string, buttons?: CellButton[] }} Cell */

const PAGE_ROWS = 25;
/** Characters of the longest name that is sent whole (`LONGEST_TEXT` of `state.ts`). */
const LONGEST_NAME = 500;
/** An outbox with more jobs is not counted to its end. */
const MOST_COUNTED = 100_000;
const token = element("meta[name=x-console-token]").getAttribute("content") ?? "";
/** Names this page, which has a budget of its own. */
const client = element("meta[name=x-console-client]").getAttribute("content") ?? "";

/** What of each table is shown. */
const wanted = { locks: 0, findLock: "", queue: "", keys: 0, findKey: "", schedules: 0 };
/** @type {EventSource | undefined} */
let source;
/** @type {PageState | undefined} */
let latest;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let hiding;
/** Whether too few nodes answer: what is shown is old, and nothing can be changed. */
let isAway = false;

/** @param {string} selector @returns {HTMLElement} */
function element(selector) {
  const found = document.querySelector(selector);
  if (found === null) throw new Error(`no ${selector}`);
  return /** @type {HTMLElement} */ (found);
}

/** @param {string} selector @param {string} text */
function write(selector, text) {
  const found = element(selector);
  if (found.textContent !== text) found.textContent = text;
}

/** @param {number} ms */
function duration(ms) {
  const sign = ms < 0 ? "−" : "";
  const left = Math.abs(ms);
  if (left < 1000) return `${sign}${Math.round(left)} ms`;
  if (left < 60_000) return `${sign}${(left / 1000).toFixed(1)} s`;
  const minutes = Math.floor(left / 60_000);
  if (minutes < 60) return `${sign}${minutes} min ${Math.floor((left % 60_000) / 1000)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${sign}${hours} h ${minutes % 60} min` : `${sign}${Math.floor(hours / 24)} days`;
}

/** @param {number} value */
function count(value) {
  return value.toLocaleString("en-US");
}

// oxlint-disable-next-line no-control-regex -- these are the characters to show
const CONTROL_CHARACTERS = /[\u0000-\u001f\u007f-\u009f]/g;

/**
 * Shows control characters as escapes: the lock's name of a key with several slots contains one.
 *
 * @param {string} text
 */
function printable(text) {
  return text.replaceAll(CONTROL_CHARACTERS, (each) => `\\x${each.charCodeAt(0).toString(16).padStart(2, "0")}`);
}

/** @param {number} value @param {string} noun */
function counted(value, noun) {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** @param {number} ms */
function clock(ms) {
  return new Date(ms).toLocaleTimeString();
}

/** @param {number | undefined} ms @param {number} now */
function moment(ms, now) {
  if (ms === undefined) return "";
  return ms > now ? `in ${duration(ms - now)}` : `${duration(now - ms)} ago`;
}

/**
 * Writes rows into a table. A row that stays is the same element as before, so that the focus stays in it.
 * @param {string} selector @param {readonly string[]} head @param {readonly { key: string, cells: readonly Cell[] }[]} rows
 * @param {string} nothing
 */
function table(selector, head, rows, nothing) {
  const found = /** @type {HTMLTableElement} */ (element(selector));
  if (found.tHead === null) {
    const row = found.createTHead().insertRow();
    row.setAttribute("role", "row");
    for (const text of head) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.setAttribute("role", "columnheader");
      cell.textContent = text;
      row.append(cell);
    }
    found.createTBody();
  }
  const body = found.tBodies[0];
  if (body === undefined) return;
  const before = new Map([...body.rows].map((row) => [row.dataset["key"], row]));
  const shown = rows.length > 0 ? rows : [{ key: "", cells: [{ text: nothing, tone: "dim" }] }];
  shown.forEach(({ key, cells }, at) => {
    const row = before.get(key) ?? newRow(key);
    before.delete(key);
    if (body.rows[at] !== row) body.insertBefore(row, body.rows[at] ?? null);
    cells.forEach((cell, column) => fill(row, column, cell, key === "" ? "" : (head[column] ?? "")));
  });
  for (const row of before.values()) row.remove();
}

/** @param {string} key */
function newRow(key) {
  const row = document.createElement("tr");
  row.dataset["key"] = key;
  row.setAttribute("role", "row");
  return row;
}

/** @param {HTMLTableRowElement} row @param {number} column @param {Cell} cell @param {string} label */
function fill(row, column, { text: given, tone, buttons = [] }, label) {
  const text = printable(given);
  let cell = row.cells[column];
  if (cell === undefined) {
    cell = row.insertCell();
    cell.setAttribute("role", "cell");
    cell.dataset["label"] = label;
    if (label === "") cell.colSpan = 20;
  }
  const tones = `${tone ?? ""}${column === 0 && label !== "" ? " name" : ""}`.trim();
  if (cell.className !== tones) cell.className = tones;
  if (buttons.length === 0) {
    if (cell.textContent !== text) cell.textContent = text;
    return;
  }
  if (cell.children.length !== buttons.length) {
    cell.replaceChildren(
      ...buttons.map(() => {
        const button = document.createElement("button");
        button.type = "button";
        return button;
      }),
    );
  }
  // A button that stays is the same element as before, whatever it says now: it may have the focus.
  buttons.forEach(({ label, about: given, run, marks, isAction = false }, at) => {
    const about = printable(given);
    const button = /** @type {HTMLButtonElement} */ (cell.children[at]);
    button.onclick = run;
    button.disabled = isAction && isAway;
    const says = `${label}\n${about}\n${marks?.join() ?? ""}`;
    if (button.dataset["says"] === says) return;
    button.dataset["says"] = says;
    button.setAttribute("aria-label", about);
    button.replaceChildren(...(marks === undefined ? [label] : [marksOf(marks)]));
  });
}

/** How high the mark of an outcome is, so that its colour is not all that tells it: what went wrong is the highest. */
const HEIGHTS = { run: 8, running: 8, skipped: 4, failed: 16, unfinished: 16, missed: 16 };
const MARK_WIDTH = 6;

/** Draws the newest ticks as bars, the newest on the right. @param {readonly TickView["outcome"][]} outcomes */
function marksOf(outcomes) {
  const marks = document.createElementNS(SVG, "svg");
  const width = Math.max(1, outcomes.length) * MARK_WIDTH;
  marks.setAttribute("class", "marks");
  marks.setAttribute("viewBox", `0 0 ${width} 16`);
  marks.setAttribute("width", String(width));
  marks.setAttribute("height", "16");
  marks.setAttribute("aria-hidden", "true");
  outcomes.toReversed().forEach((outcome, at) => {
    const bar = document.createElementNS(SVG, "rect");
    const height = HEIGHTS[outcome];
    bar.setAttribute("x", String(at * MARK_WIDTH + 1));
    bar.setAttribute("y", String(16 - height + 0.5));
    bar.setAttribute("width", String(MARK_WIDTH - 2));
    bar.setAttribute("height", String(height - 1));
    bar.setAttribute("class", `mark-${outcome}`);
    marks.append(bar);
  });
  return marks;
}

/** Says in words what the marks draw. @param {readonly TickView["outcome"][]} outcomes */
function tally(outcomes) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const outcome of outcomes) counts.set(outcome, (counts.get(outcome) ?? 0) + 1);
  return [...counts].map(([outcome, count]) => `${count} ${outcome}`).join(", ");
}

/**
 * @param {string} selector @param {number} page @param {number} found @param {(page: number) => void} go
 */
function pages(selector, page, found, go) {
  const nav = element(selector);
  const last = Math.max(0, Math.ceil(found / PAGE_ROWS) - 1);
  nav.hidden = last === 0 && page === 0;
  if (nav.children.length === 0) {
    const [before, text, after] = [
      document.createElement("button"),
      document.createElement("span"),
      document.createElement("button"),
    ];
    before.textContent = "Previous";
    after.textContent = "Next";
    nav.append(before, text, after);
  }
  const [before, text, after] = /** @type {HTMLButtonElement[]} */ ([...nav.children]);
  if (before === undefined || text === undefined || after === undefined) return;
  before.disabled = page === 0;
  after.disabled = page >= last;
  before.onclick = () => go(page - 1);
  after.onclick = () => go(page + 1);
  const label = `${page + 1} of ${last + 1}`;
  if (text.textContent !== label) text.textContent = label;
}

/** @param {Partial<typeof wanted>} change */
function want(change) {
  Object.assign(wanted, change);
  listen();
}

/** @param {string} label @param {string} question @param {Record<string, string>} about */
function action(label, question, about) {
  const { name, key, resource } = about;
  return {
    label,
    about: `${label}: ${name ?? key ?? resource}`,
    run: () => ask(label, question, about),
    isAction: true,
  };
}

/** Returns the buttons of a row, unless its name was cut: nothing can be asked about a part of a name. */
function buttonsFor(/** @type {string} */ name, /** @type {CellButton[]} */ buttons) {
  return name.length > LONGEST_NAME ? [] : buttons;
}

/** @param {string} path @param {Record<string, string>} query */
function addressOf(path, query) {
  return `${path}?${new URLSearchParams({ ...query, client })}`;
}

/** @param {PageState} state */
function show(state) {
  latest = state;
  const { now, nodes, locks, schedules } = state;
  write("#mode", state.actions ? "actions are allowed" : "read-only");
  const problem = nodes.error ?? locks.error;
  isAway = problem !== undefined;
  const banner = element("#banner");
  banner.hidden = problem === undefined;
  write(
    "#banner",
    problem === undefined
      ? ""
      : `Redis: ${problem}. ${nodes.at === undefined ? "" : `What is shown is of ${clock(nodes.at)}.`}`,
  );
  const connection = element("#connection");
  const { answering = 0, nodes: all = [], quorum = 0 } = nodes.value ?? {};
  connection.className = `pill ${problem !== undefined ? "bad" : answering < all.length ? "warn" : "good"}`;
  write("#connection", `${isAway ? "" : "live, "}${count(answering)} of ${counted(all.length, "node")} answer`);
  showNodes(state, quorum);
  showElections(state);
  element("#schedules-section").hidden = schedules.value === undefined && schedules.error === undefined;
  showSchedules(state);
  showLocks(state);
  element("#keys-section").hidden = state.queues.length === 0;
  showKeys(state);
  element("#outboxes-section").hidden = state.outboxes.length === 0;
  showOutboxes(state);
  element("#events-section").hidden = state.events.length === 0;
  const events = state.events.map(({ at, text }) => `${clock(at)}  ${text}`);
  const list = element("#events");
  if (list.dataset["texts"] !== events.join("\n")) {
    list.dataset["texts"] = events.join("\n");
    list.replaceChildren(...events.map((text) => item(text)));
  }
  document.documentElement.dataset["now"] = String(now);
}

/** @param {string} text @param {string} [tone] */
function item(text, tone = "") {
  const line = document.createElement("li");
  line.textContent = text;
  line.className = tone;
  return line;
}

/** @param {PageState} state @param {number} quorum */
function showNodes({ nodes, findings }, quorum) {
  const count = nodes.value?.nodes.length ?? 0;
  write(
    "#nodes-note",
    nodes.value === undefined
      ? ""
      : nodes.value.isCluster
        ? `A Redis Cluster of ${count} masters. Each has a part of the locks.`
        : `${quorum} of ${count} make a quorum.`,
  );
  table(
    "#nodes",
    ["Node", "State", "Answers in", "Clock", "Quarantine"],
    (nodes.value?.nodes ?? []).map(({ node, error, tookMs, clockMs, quarantineLeftMs = 0 }, at) => ({
      key: `${at} ${node}`,
      cells: [
        { text: node },
        error === undefined ? { text: "answers", tone: "good" } : { text: error, tone: "bad" },
        { text: error === undefined ? duration(tookMs) : "" },
        {
          text:
            clockMs === undefined
              ? ""
              : Math.abs(clockMs) < 50
                ? "as here"
                : `${duration(Math.abs(clockMs))} ${clockMs > 0 ? "ahead" : "behind"}`,
          tone: clockMs !== undefined && Math.abs(clockMs) > 500 ? "warn" : "",
        },
        quarantineLeftMs > 0 ? { text: `casts no vote for ${duration(quarantineLeftMs)}`, tone: "warn" } : { text: "" },
      ],
    })),
    "no answer yet",
  );
  const list = element("#findings");
  const found = (findings.value ?? []).filter(({ severity }) => severity !== "info");
  const texts = found.map(({ severity, code, message }) => `${severity}: ${code}: ${message}`);
  if (list.dataset["texts"] === texts.join("\n")) return;
  list.dataset["texts"] = texts.join("\n");
  list.replaceChildren(...texts.map((text, at) => item(text, found[at]?.severity === "error" ? "bad" : "warn")));
}

/** @param {PageState} state */
function showElections(state) {
  const { elections } = state;
  const box = element("#elections");
  const before = new Map(
    [...box.children].map((card) => [
      /** @type {HTMLElement} */ (card).dataset["name"],
      /** @type {HTMLElement} */ (card),
    ]),
  );
  elections.forEach((election, at) => {
    const card = before.get(election.name) ?? newCard(election.name);
    before.delete(election.name);
    if (box.children[at] !== card) box.insertBefore(card, box.children[at] ?? null);
    showElection(card, election, state);
  });
  for (const card of before.values()) card.remove();
  if (elections.length === 0) {
    if (box.textContent === "") box.append("none yet");
  } else {
    for (const node of [...box.childNodes]) if (node.nodeType === Node.TEXT_NODE) node.remove();
  }
}

/** @param {string} name */
function newCard(name) {
  const card = document.createElement("article");
  card.className = "card";
  card.dataset["name"] = name;
  const title = document.createElement("h3");
  title.textContent = name;
  const text = document.createElement("p");
  text.dataset["part"] = "leader";
  const timeline = document.createElementNS(SVG, "svg");
  timeline.setAttribute("class", "timeline");
  timeline.setAttribute("role", "img");
  timeline.setAttribute("viewBox", "0 0 1000 32");
  timeline.setAttribute("preserveAspectRatio", "none");
  const scale = document.createElement("div");
  scale.className = "scale";
  card.append(title, text, timeline, scale);
  return card;
}

const SVG = "http://www.w3.org/2000/svg";

/** @param {HTMLElement} card @param {PageState["elections"][number]} election @param {PageState} state */
function showElection(card, { name, leader, error, terms }, { now, actions }) {
  const [, text, timeline, scale] = card.children;
  if (text === undefined || timeline === undefined || scale === undefined) return;
  const value = leader?.value === undefined ? "" : `, ${leader.value}`;
  const said =
    error !== undefined
      ? `not known: ${error}`
      : leader === undefined
        ? "nobody leads"
        : `${leader.id} has led for ${duration(now - leader.since)}, term ${leader.term}${value}; lease ends in ${duration(leader.expiresInMs)} unless renewed`;
  const tone = error !== undefined || leader === undefined ? "bad" : "";
  if (text.className !== tone) text.className = tone;
  if (text.textContent !== printable(said)) text.textContent = printable(said);
  let button = card.querySelector("button");
  if (actions && button === null && name.length <= LONGEST_NAME) {
    button = document.createElement("button");
    button.type = "button";
    button.textContent = "Ask to resign";
    button.setAttribute("aria-label", `Ask the leader of ${name} to resign`);
    button.onclick = () =>
      ask("Ask to resign", `The leader of ${name} drains, and another one leads.`, { do: "resign", election: name });
    card.append(button);
  }
  if (button !== null) button.disabled = isAway || leader === undefined;
  const first = terms[0]?.since ?? now;
  const from = Math.min(first, now - 10_000);
  const place = (/** @type {number} */ ms) =>
    ((Math.max(from, Math.min(now, ms)) - from) / Math.max(1, now - from)) * 1000;
  const rects = [rect(place(first), 1000, "none", "nobody leads")];
  const ids = [...new Set(terms.map(({ id }) => id))];
  for (const { term, id, since, until } of terms) {
    const label = `${id}, term ${term}, ${clock(since)} to ${until === undefined ? "now" : clock(until)}`;
    rects.push(rect(place(since), place(until ?? now), `c${ids.indexOf(id) % 6}`, label));
  }
  timeline.replaceChildren(...rects);
  timeline.setAttribute(
    "aria-label",
    `${terms.length} terms since ${clock(from)}: ${terms
      .slice(-5)
      .map(({ id, since }) => `${id} from ${clock(since)}`)
      .join(", ")}`,
  );
  const legend = `${clock(from)}\n${ids.slice(-6).join("\n")}\n${ids.length}`;
  if (/** @type {HTMLElement} */ (scale).dataset["legend"] === legend) return;
  /** @type {HTMLElement} */ (scale).dataset["legend"] = legend;
  const names = document.createElement("span");
  for (const id of ids.slice(-6)) {
    const swatch = document.createElementNS(SVG, "svg");
    swatch.setAttribute("class", `swatch c${ids.indexOf(id) % 6}`);
    swatch.setAttribute("viewBox", "0 0 10 10");
    swatch.setAttribute("aria-hidden", "true");
    const square = document.createElementNS(SVG, "rect");
    square.setAttribute("width", "10");
    square.setAttribute("height", "10");
    swatch.append(square);
    names.append(swatch, id);
  }
  const [start, end] = [document.createElement("span"), document.createElement("span")];
  start.textContent = clock(from);
  end.textContent = "now";
  scale.replaceChildren(start, names, end);
}

/** @param {number} from @param {number} to @param {string} kind @param {string} label */
function rect(from, to, kind, label) {
  const found = document.createElementNS(SVG, "rect");
  found.setAttribute("x", from.toFixed(1));
  found.setAttribute("y", "2");
  found.setAttribute("height", "28");
  found.setAttribute("width", Math.max(1.5, to - from - 1).toFixed(1));
  found.setAttribute("class", kind);
  const title = document.createElementNS(SVG, "title");
  title.textContent = label;
  found.append(title);
  return found;
}

const TONES = { run: "", running: "", skipped: "warn", failed: "bad", unfinished: "bad", missed: "bad" };

/** @param {PageState} state */
function showSchedules({ schedules, now, actions }) {
  const { schedules: list = [], total = 0 } = schedules.value ?? {};
  write(
    "#schedules-note",
    schedules.error === undefined ? counted(total, "schedule") : `not known: ${schedules.error}`,
  );
  table(
    "#schedules",
    [
      "Schedule",
      "Last",
      "Outcome",
      "Late",
      "History",
      "Next",
      "Missed",
      "State",
      "Leader",
      ...(actions ? ["Actions"] : []),
    ],
    list.map((schedule) => {
      const { scheduler, name, last, next, outcome, failure, tookMs, lateMs, missed, paused, running, owner } =
        schedule;
      // A tick that was triggered is the last of no calendar.
      const { history, tickAt } = schedule;
      const about = { scheduler, name };
      return {
        key: `${scheduler} ${name}`,
        cells: [
          { text: name },
          { text: moment(tickAt === undefined ? last : Math.max(last ?? 0, tickAt), now) },
          {
            text: [outcome ?? "", tookMs === undefined ? "" : `in ${duration(tookMs)}`, failure ?? ""]
              .filter((text) => text !== "")
              .join(", "),
            tone: outcome === undefined ? "" : TONES[outcome],
          },
          { text: lateMs === undefined ? "" : duration(lateMs) },
          {
            text: "",
            buttons:
              history.length === 0
                ? []
                : buttonsFor(name, [
                    {
                      label: "History",
                      about: `History of ${name}, of the last ticks: ${tally(history.map(({ outcome }) => outcome))}`,
                      marks: history.map(({ outcome }) => outcome),
                      run: () => void showHistory(scheduler, name),
                    },
                  ]),
          },
          { text: next !== undefined && next <= now ? `due ${moment(next, now)}` : moment(next, now) },
          { text: missed === 0 ? "" : count(missed), tone: "warn" },
          {
            text: [paused ? "paused" : "", running === 0 ? "" : `${running} running`]
              .filter((text) => text !== "")
              .join(", "),
            tone: paused ? "warn" : "",
          },
          { text: owner ?? "nobody", tone: owner === undefined ? "bad" : "" },
          ...(actions
            ? [
                {
                  text: "",
                  buttons: buttonsFor(name, [
                    paused
                      ? action("Resume", `Ticks of ${name} run again.`, { do: "resume-schedule", ...about })
                      : action(
                          "Pause",
                          `No tick of ${name} runs until it is resumed; those that pass are not caught up.`,
                          { do: "pause-schedule", ...about },
                        ),
                    action("Run now", `The leader runs ${name} once, now.`, { do: "trigger-schedule", ...about }),
                  ]),
                },
              ]
            : []),
        ],
      };
    }),
    "none",
  );
  pages("#schedules-pages", wanted.schedules, total, (page) => want({ schedules: page }));
}

/** @param {PageState} state */
function showLocks({ locks, now, actions }) {
  const { locks: list = [], total = 0, found = 0, isComplete = false } = locks.value ?? {};
  const known = `${counted(total, "lock")}${isComplete ? "" : ", still looking for more"}`;
  write(
    "#locks-note",
    `${wanted.findLock === "" ? known : `${count(found)} of ${known}`}. First those with most waiters, then the oldest.`,
  );
  table(
    "#locks",
    ["Resource", "State", "Holder", "First seen", "Ends in", "Waiters", "Nodes", ...(actions ? ["Actions"] : [])],
    list.map(({ resource, state, owner, holder, seenAt, remainingMs, waiters, votes }) => ({
      key: resource,
      cells: [
        { text: resource },
        state === "contended"
          ? { text: "below a quorum", tone: "dim" }
          : { text: state === "reserved" ? "handed over" : "held" },
        { text: state === "reserved" ? "" : (owner ?? `client ${holder}`) },
        { text: moment(seenAt, now) },
        { text: remainingMs < 0 ? "never" : duration(remainingMs), tone: remainingMs < 0 ? "warn" : "" },
        { text: waiters === 0 ? "" : count(waiters) },
        { text: String(votes) },
        ...(actions
          ? [
              {
                text: "",
                buttons: buttonsFor(resource, [
                  action("Take away", `${resource} is taken away from its holder, who may still work for a moment.`, {
                    do: "release-lock",
                    resource,
                  }),
                ]),
              },
            ]
          : []),
      ],
    })),
    isAway ? "not known" : "none",
  );
  pages("#locks-pages", wanted.locks, found, (page) => want({ locks: page }));
}

/** @param {PageState} state */
function showKeys({ queues, keys, now, actions }) {
  table(
    "#queues",
    [
      "Queue",
      "Run",
      "Can run",
      "Wait for their key",
      "Of limited keys",
      "Longest line",
      "Busy keys",
      "Paused keys",
      "As of",
    ],
    queues.map(({ name, running, runnable, parked, limited, longestLine, busyKeys, pausedKeys, error, at }) => ({
      key: name,
      cells: [
        {
          text: "",
          buttons: [{ label: name, about: `Show the keys of ${name}`, run: () => want({ queue: name, keys: 0 }) }],
        },
        { text: count(running) },
        { text: count(runnable) },
        { text: count(parked) },
        { text: limited === 0 ? "" : count(limited), tone: "warn" },
        { text: count(longestLine) },
        { text: count(busyKeys) },
        { text: pausedKeys === 0 ? "" : count(pausedKeys), tone: "warn" },
        asOf(error, at, now),
      ],
    })),
    "none",
  );
  const queue = keys?.queue ?? "";
  for (const button of document.querySelectorAll("#queues button"))
    button.setAttribute("aria-current", String(button.textContent === queue));
  write("#queue-title", `Keys of ${queue}`);
  write(
    "#keys-note",
    keys === undefined
      ? ""
      : `${count(keys.found)} of ${counted(keys.total, "key")}. First those with the longest lines.`,
  );
  table(
    "#keys",
    ["Key", "Waiting", "Runs", "Since", "Why it waits", "Policy", "Actions"],
    (keys?.keys ?? []).map(({ key, parked, holder, holders, sinceMs, paused, isStalled, limitedUntilMs, policy }) => ({
      key,
      cells: [
        { text: key },
        { text: count(parked) },
        { text: holders.map((id) => `job ${id}`).join(", ") },
        { text: sinceMs === undefined ? "" : moment(sinceMs, now + 1) },
        why({ parked, holder, sinceMs, paused, isStalled, limitedUntilMs, now }),
        { text: policyText(policy) },
        {
          text: "",
          buttons: buttonsFor(key, [
            { label: "Who waits", about: `Who waits for key ${key}`, run: () => void explain(queue, key) },
            ...(!actions
              ? []
              : paused === undefined
                ? [
                    action("Pause", `No job of key ${key} starts any more; what runs goes on.`, {
                      do: "pause-key",
                      queue,
                      key,
                    }),
                  ]
                : [
                    action(
                      "Resume",
                      `Key ${key} goes on. A job that halted it is skipped unless it is retried before.`,
                      { do: "resume-key", queue, key },
                    ),
                  ]),
            ...(!actions || policy === undefined
              ? []
              : [
                  action("Remove policy", `For key ${key}, what the workers' options say holds again.`, {
                    do: "remove-policy",
                    queue,
                    key,
                  }),
                ]),
          ]),
        },
      ],
    })),
    "no key is busy",
  );
  pages("#keys-pages", wanted.keys, keys?.found ?? 0, (page) => want({ keys: page }));
}

/** @param {PageState} state */
function showOutboxes({ outboxes, now }) {
  table(
    "#outboxes",
    ["Outbox", "Jobs to relay", "Oldest", "Change", "As of"],
    outboxes.map(({ name, rows, oldestMs, growth, error, at }) => ({
      key: name,
      cells: [
        { text: name },
        { text: rows < MOST_COUNTED ? count(rows) : `${count(rows)} or more` },
        { text: rows === 0 ? "" : duration(oldestMs), tone: oldestMs > 60_000 ? "warn" : "" },
        { text: growth === undefined || rows >= MOST_COUNTED ? "" : perSecond(growth) },
        asOf(error, at, now),
      ],
    })),
    "none",
  );
}

/** @param {number} growth */
function perSecond(growth) {
  const rate = count(Math.round(Math.abs(growth) * 10) / 10);
  return rate === "0" ? "none" : `${growth < 0 ? "−" : "+"}${rate} / s`;
}

/** @param {string | undefined} error @param {number | undefined} at @param {number} now @returns {Cell} */
function asOf(error, at, now) {
  if (error !== undefined) return { text: error, tone: "bad" };
  return { text: at === undefined ? "no answer yet" : moment(at, now + 1) };
}

/**
 * What `setKeyPolicy` has said of a key.
 *
 * @param {import("@x/workers").BusyKey["policy"]} policy
 */
function policyText(policy) {
  const { concurrency, rate, maxWaiting, weight } = policy ?? {};
  return [
    concurrency === undefined ? "" : `${concurrency} at a time`,
    rate === undefined ? "" : `${rate.max} start in ${duration(rate.duration)}`,
    maxWaiting === undefined ? "" : `${maxWaiting.max} wait`,
    weight === undefined ? "" : `weight ${weight}`,
  ]
    .filter((text) => text !== "")
    .join(", ");
}

/**
 * @param {Pick<import("@x/workers").BusyKey, "parked" | "holder" | "sinceMs" | "paused" | "isStalled" | "limitedUntilMs"> & { now: number }} key
 * @returns {Cell}
 */
function why({ parked, holder, sinceMs, paused, isStalled, limitedUntilMs, now }) {
  if (paused !== undefined) {
    const until = paused.untilMs === undefined ? "" : ` ${moment(paused.untilMs, now)}`;
    const by = paused.jobId === undefined ? "" : ` (job ${paused.jobId} failed)`;
    return { text: `paused: ${paused.reason}${until}${by}`, tone: "warn" };
  }
  if (limitedUntilMs !== undefined && limitedUntilMs > now)
    return { text: `limited, next ${moment(limitedUntilMs, now)}`, tone: "warn" };
  if (isStalled) return { text: `the worker of job ${holder} is gone`, tone: "bad" };
  if (parked === 0) return { text: "" };
  if (holder === undefined) return { text: "its turn comes" };
  return { text: sinceMs === undefined ? `job ${holder} has it and waits for a slot` : `job ${holder} runs` };
}

/** @param {string} queue @param {string} key */
async function explain(queue, key) {
  const response = await fetch(addressOf("key", { queue, key })).catch(() => undefined);
  const body = element("#dialog-body");
  body.replaceChildren();
  if (response?.ok !== true)
    body.append(response === undefined ? "The server does not answer." : await response.text());
  else {
    /** @type {{ holders: string[], parked: string[], reasons: { job: string, why: string }[] }} */
    const { holders, parked, reasons } = await response.json();
    const list = document.createElement("ul");
    list.append(item(holders.length === 0 ? "Nobody has it." : `Has it: job ${holders.join(", job ")}.`));
    for (const { job, why } of reasons) list.append(item(`Job ${job} ${why}`));
    body.append(list, parked.length === 0 ? "Nobody waits." : `In line: ${parked.join(", ")}`);
  }
  openDialog(`Key ${printable(key)}`, undefined);
}

/** @param {string} scheduler @param {string} name */
async function showHistory(scheduler, name) {
  const response = await fetch(addressOf("history", { scheduler, name })).catch(() => undefined);
  const body = element("#dialog-body");
  if (response?.ok !== true)
    body.replaceChildren(response === undefined ? "The server does not answer." : await response.text());
  else {
    /** @type {{ ticks: TickView[] }} */
    const { ticks } = await response.json();
    const list = document.createElement("table");
    list.id = "history";
    list.setAttribute("role", "table");
    list.setAttribute("aria-labelledby", "dialog-title");
    body.replaceChildren(list);
    table(
      "#history",
      ["Due", "Outcome", "Late", "Took", "Attempt", "Why"],
      ticks.map(({ outcome, at, lateMs, tookMs, attempt, error, reason, count }, place) => ({
        key: String(place + 1),
        cells: [
          { text: new Date(at).toLocaleString() },
          { text: outcome, tone: TONES[outcome] },
          { text: lateMs === undefined ? "" : duration(lateMs) },
          { text: tookMs === undefined ? "" : duration(tookMs) },
          { text: attempt === undefined ? "" : String(attempt) },
          { text: error ?? reason ?? (count === undefined ? "" : `${count} ticks`) },
        ],
      })),
      "nothing is known",
    );
  }
  openDialog(`History of ${printable(name)}`, undefined);
}

/** @param {string} label @param {string} question @param {Record<string, string>} about */
function ask(label, question, about) {
  element("#dialog-body").replaceChildren(printable(question));
  openDialog(`${label}?`, { label, run: () => void act(about) });
}

/** @param {string} title @param {{ label: string, run: () => void } | undefined} yes */
function openDialog(title, yes) {
  const dialog = /** @type {HTMLDialogElement} */ (element("#dialog"));
  const button = element("#dialog-yes");
  write("#dialog-title", title);
  button.hidden = yes === undefined;
  button.textContent = yes?.label ?? "";
  button.onclick = () => {
    dialog.close();
    yes?.run();
  };
  element("#dialog-no").textContent = yes === undefined ? "Close" : "Cancel";
  element("#dialog-no").onclick = () => dialog.close();
  if (!dialog.open) dialog.showModal();
}

/** @param {Record<string, string>} about */
async function act(about) {
  const response = await fetch(addressOf("act", about), {
    method: "POST",
    headers: { "x-console-token": token },
  }).catch(() => undefined);
  const text = response === undefined ? "The server does not answer." : await response.text();
  tell(response?.ok === true ? JSON.parse(text).message : text.trim());
}

/** @param {string} text */
function tell(text) {
  const outcome = element("#outcome");
  outcome.hidden = false;
  outcome.textContent = text;
  clearTimeout(hiding);
  hiding = setTimeout(() => {
    outcome.hidden = true;
  }, 8000);
}

/** Asks for the state of what is wanted, from now on. */
function listen() {
  source?.close();
  const query = Object.entries(wanted).map(([name, value]) => [name, String(value)]);
  source = new EventSource(addressOf("events", Object.fromEntries(query)));
  source.addEventListener("state", (event) => show(JSON.parse(event.data)));
  source.addEventListener("error", () => {
    const connection = element("#connection");
    connection.className = "pill bad";
    write(
      "#connection",
      latest === undefined
        ? "no answer from the server, trying again"
        : `the server is away, trying again; shown is ${clock(latest.now)}`,
    );
    // A browser gives up after an answer that is an error, such as one of a proxy.
    if (source?.readyState === EventSource.CLOSED) setTimeout(listen, 2000);
  });
}

/** @param {string} selector @param {(text: string) => void} find */
function onFind(selector, find) {
  const input = /** @type {HTMLInputElement} */ (element(selector));
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let waiting;
  input.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => find(input.value), 300);
  });
}

onFind("#locks-find", (text) => want({ findLock: text, locks: 0 }));
onFind("#keys-find", (text) => want({ findKey: text, keys: 0 }));
listen();
