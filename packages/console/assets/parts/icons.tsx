/** The few drawings of the page. All are decoration: a word says the same. */
import type { Severity } from "../../src/page/state.ts";

export const Logo = () => (
  <svg width="20" height="20" viewBox="0 0 20 20" aria-hidden="true" fill="none" stroke="currentColor">
    <circle cx="10" cy="4.5" r="3" stroke-width="1.7" />
    <circle cx="4.5" cy="14.5" r="3" stroke-width="1.7" />
    <circle class="accent" cx="15.5" cy="14.5" r="3" stroke-width="1.7" />
    <path d="M8.6 7.2L6 11.8M11.4 7.2L14 11.8M7.5 14.5h5" stroke-width="1.5" />
  </svg>
);

const OCTAGON = "M11 2h14l9 9v14l-9 9H11l-9-9V11z";

/** The large mark next to the verdict. */
export function Glyph({ kind }: { readonly kind: "good" | "bad" | "warn" | "away" | "wait" }) {
  return (
    <svg viewBox="0 0 36 36" aria-hidden="true" class={`glyph ${kind}`} fill="none" stroke="currentColor">
      {kind === "good" && (
        <>
          <circle cx="18" cy="18" r="17" class="soft" stroke-width="1.5" />
          <path d="M11 18.5l5 5 9.5-10.5" stroke-width="2.6" stroke-linecap="round" stroke-linejoin="round" />
        </>
      )}
      {kind === "wait" && <circle cx="18" cy="18" r="16" stroke-width="2" stroke-dasharray="5 5" />}
      {kind === "warn" && (
        <>
          <path d="M18 3l16 29H2z" class="soft" stroke-width="1.5" stroke-linejoin="round" />
          <path d="M18 13v9" stroke-width="3" stroke-linecap="round" />
          <circle cx="18" cy="27" r="1.9" fill="currentColor" stroke="none" />
        </>
      )}
      {(kind === "bad" || kind === "away") && (
        <>
          <path d={OCTAGON} class="soft" stroke-width="1.5" stroke-linejoin="round" />
          {kind === "bad" ? (
            <>
              <path d="M18 9.5v11" stroke-width="3" stroke-linecap="round" />
              <circle cx="18" cy="26" r="2" fill="currentColor" stroke="none" />
            </>
          ) : (
            <path d="M12 12l12 12M24 12L12 24" stroke-width="2.8" stroke-linecap="round" />
          )}
        </>
      )}
    </svg>
  );
}

/** The shape of a severity, so that its colour is not all that says it. */
export function SeverityMark({ severity }: { readonly severity: Severity | "solved" }) {
  return (
    <svg viewBox="0 0 14 14" aria-hidden="true" fill="none" stroke="currentColor">
      {severity === "critical" && (
        <>
          <path d="M4.2 .5h5.6l3.7 3.7v5.6l-3.7 3.7H4.2L.5 9.8V4.2z" fill="currentColor" stroke="none" />
          <path class="cut" d="M7 3.4v4.2" stroke-width="1.7" stroke-linecap="round" />
          <circle class="cut dot" cx="7" cy="10.3" r="1.05" />
        </>
      )}
      {severity === "warning" && (
        <>
          <path d="M7 1l6.3 11.5H.7z" stroke-width="1.4" stroke-linejoin="round" />
          <path d="M7 5v3.4" stroke-width="1.5" stroke-linecap="round" />
          <circle cx="7" cy="10.4" r=".85" fill="currentColor" stroke="none" />
        </>
      )}
      {severity === "notice" && (
        <>
          <circle cx="7" cy="7" r="6" stroke-width="1.4" />
          <path d="M7 6.5v3.7" stroke-width="1.5" stroke-linecap="round" />
          <circle cx="7" cy="4" r=".9" fill="currentColor" stroke="none" />
        </>
      )}
      {severity === "solved" && (
        <path d="M2 7.5l3.2 3.2L12 3.5" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round" />
      )}
    </svg>
  );
}

/** Whether a fact holds. */
export const Tick = ({ isTrue }: { readonly isTrue: boolean }) => (
  <svg viewBox="0 0 12 12" aria-hidden="true" class={isTrue ? "" : "bad"} fill="none" stroke="currentColor">
    <path
      d={isTrue ? "M2 6.5l2.7 2.7L10 3" : "M2.5 2.5l7 7M9.5 2.5l-7 7"}
      stroke-width="1.8"
      stroke-linecap="round"
      stroke-linejoin="round"
    />
  </svg>
);
