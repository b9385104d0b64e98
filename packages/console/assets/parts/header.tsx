/** The top of the page: sections, search, and whether the page is live. */
import { useEffect, useRef } from "preact/hooks";
import { isLive, now, route, serverError, state, tables } from "../model.ts";
import { clock, count, wholeDuration } from "../words.ts";
import { Hidden, unfold } from "./common.tsx";
import { Logo } from "./icons.tsx";

/** The text that is searched: locks on the overview, keys in an open queue. */
export function find(text: string): void {
  tables.value =
    route.value.queue === ""
      ? { ...tables.value, findLock: text, locks: 0 }
      : { ...tables.value, findKey: text, keys: 0 };
}

export function Header() {
  const { problems = [], processes = [], queues = [], locks, nodes, semaphores, outboxes = [] } = state.value ?? {};
  const open = problems.filter(({ solvedAt }) => solvedAt === undefined).length;
  const isOverview = route.value.queue === "";
  const sections = [
    { id: "main", text: "Attention", number: open },
    ...(queues.length > 0
      ? [{ id: "workers", text: "Workers", number: processes.filter((each) => !each.isGone).length }]
      : []),
    ...(queues.length > 0 ? [{ id: "queues", text: "Queues", number: queues.length }] : []),
    { id: "time", text: "Time line", number: undefined },
    { id: "locks", text: "Locks", number: locks?.value?.total },
    ...(semaphores !== undefined && semaphores.total > 0
      ? [{ id: "semaphores", text: "Semaphores", number: semaphores.total }]
      : []),
    { id: "nodes", text: "Lock nodes", number: nodes?.value?.nodes.length },
    ...(outboxes.length > 0 ? [{ id: "outboxes", text: "Outboxes", number: outboxes.length }] : []),
  ];
  const current = isOverview ? route.value.section || "main" : "queues";
  return (
    <header class="top">
      <div>
        <a class="brand" href="#main">
          <Logo />
          Coordination
        </a>
        <nav class="nav" aria-label="Sections">
          {sections.map(({ id, text, number }) => (
            <a key={id} href={`#${id}`} aria-current={id === current ? "true" : undefined} onClick={() => unfold(id)}>
              {text}
              {number !== undefined && (
                <i class={id === "main" && number > 0 ? "hot" : undefined}>
                  {count(number)}
                  {id === "main" && <Hidden> open</Hidden>}
                </i>
              )}
            </a>
          ))}
        </nav>
        <Search />
        <Live />
      </div>
    </header>
  );
}

/** The search field. `/` focuses it. */
function Search() {
  const input = useRef<HTMLInputElement>(null);
  const waiting = useRef<ReturnType<typeof setTimeout>>();
  const { queue } = route.value;
  useEffect(() => {
    const focus = (event: KeyboardEvent): void => {
      const isTyping = event.target instanceof HTMLElement && /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
      if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || document.querySelector("dialog[open]"))
        return;
      event.preventDefault();
      input.current?.focus();
    };
    addEventListener("keydown", focus);
    return () => removeEventListener("keydown", focus);
  }, []);
  // Another queue has other keys.
  useEffect(() => {
    if (input.current !== null) input.current.value = queue === "" ? tables.peek().findLock : tables.peek().findKey;
  }, [queue]);
  const label = queue === "" ? "Find a queue, key or lock" : "Find a key of this queue";
  return (
    <div class="find" role="search">
      <input
        ref={input}
        id="find"
        type="search"
        aria-label={label}
        placeholder={label}
        maxLength={200}
        autoComplete="off"
        spellcheck={false}
        onInput={({ currentTarget: { value } }) => {
          clearTimeout(waiting.current);
          waiting.current = setTimeout(() => find(value), 300);
        }}
      />
      <kbd aria-hidden="true">/</kbd>
    </div>
  );
}

/** One verdict for the whole page. */
function Live() {
  const current = state.value;
  if (current === undefined)
    return (
      <span class="live off" id="live">
        <i class="dot" />
        {serverError.value === "connecting" ? "Connecting" : "No answer"}
      </span>
    );
  if (isLive.value)
    return (
      <span class="live" id="live">
        <i class="dot" />
        Live <span>{clock(now.value)}</span>
      </span>
    );
  const at = serverError.value === undefined ? current.live.at : current.now;
  return (
    <span class="live off" id="live">
      <i class="dot" />
      Not live {at !== undefined && <span>{wholeDuration(now.value - at)} old</span>}
    </span>
  );
}
