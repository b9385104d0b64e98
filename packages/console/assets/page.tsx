/**
 * The browser's part of the page. The script reads one stream of states, and shows the newest state. No part of the
 * page sets HTML, so texts from Redis stay texts.
 */
import { effect } from "@preact/signals";
import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { isLive, route, start, state } from "./model.ts";
import { Attention } from "./parts/attention.tsx";
import { Outcome, unfold } from "./parts/common.tsx";
import { Header } from "./parts/header.tsx";
import { Later } from "./parts/later.tsx";
import { Locks } from "./parts/locks.tsx";
import { Nodes } from "./parts/nodes.tsx";
import { Queues } from "./parts/queues.tsx";
import { TimeLine } from "./parts/time-line.tsx";
import { Workers } from "./parts/workers.tsx";
import { printable } from "./words.ts";

function Page() {
  const { queue, key, section } = route.value;
  const shown = useRef({ address: location.hash, isRead: false });
  const isRead = state.value !== undefined;
  // The view and the focus follow the address, so that a reader of the screen hears what has opened. The sections exist
  // from the first state on.
  useEffect(() => {
    const isNew = shown.current.address !== location.hash;
    const isFirst = isRead && !shown.current.isRead && location.hash !== "";
    shown.current = { address: location.hash, isRead };
    if (!isNew && !isFirst) return;
    unfold(section);
    const name = key !== "" ? "key-h" : section === "" ? "main" : section;
    const target = document.getElementById(name);
    if (isNew) target?.focus({ preventScroll: true });
    if (name === "main") scrollTo(0, 0);
    else if (key === "") target?.scrollIntoView();
  }, [queue, key, section, isRead]);
  return (
    <>
      <a class="skip" href="#main">
        Skip to what needs attention
      </a>
      <Header />
      <main id="main" tabIndex={-1} class={isLive.value ? undefined : "stale"}>
        {queue === "" ? <Overview /> : <Queue />}
      </main>
      {state.value !== undefined && <Footer />}
      <Later isQuiet show={({ Dialog }) => <Dialog />} />
      <Outcome />
    </>
  );
}

function Overview() {
  if (state.value === undefined) return <Attention />;
  const isAway = !isLive.value;
  return (
    <>
      <Attention />
      <Later isQuiet show={({ Found }) => <Found />} />
      {isAway && <Nodes />}
      <Workers />
      <Queues />
      <TimeLine />
      <Locks />
      <Later isQuiet show={({ Semaphores }) => <Semaphores />} />
      {!isAway && <Nodes />}
      <Later isQuiet show={({ Outboxes }) => <Outboxes />} />
    </>
  );
}

function Queue() {
  return (
    <>
      {!isLive.value && <Attention />}
      <Later show={({ QueuePage }) => <QueuePage />} />
    </>
  );
}

function Footer() {
  return (
    <footer>
      <span>{state.value?.actions === true ? "Actions are allowed" : "This page only reads"}</span>
      <span>All browsers share one look</span>
      <span>Times are in your time zone, by the clocks of the nodes</span>
    </footer>
  );
}

start();
const root = document.createElement("div");
document.body.append(root);
render(<Page />, root);

effect(() => {
  const { problems = [] } = state.value ?? {};
  const open = problems.filter(({ solvedAt, severity }) => solvedAt === undefined && severity !== "notice").length;
  const { queue, key } = route.value;
  const what = !isLive.value && state.value !== undefined ? "Not live" : open > 0 ? `${open} need attention` : "";
  document.title = [key, queue, what, "Coordination"]
    .filter((text) => text !== "")
    .map(printable)
    .join(" · ");
});
