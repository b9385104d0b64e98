/**
 * The reports of the processes of a chaos run, and the actions of the run itself. Times are milliseconds of the
 * machine's monotonic clock, which all processes share.
 */

export type Told =
  | {
      /** A process believes to hold a resource: first seen, seen again, given up by itself. */
      readonly type: "held";
      readonly state: "start" | "seen" | "end";
      readonly hold: string;
      readonly resource: string;
      readonly fencingToken: number;
      /** The time before the lock, the term or the job was asked whether it is still valid. */
      readonly atMs: number;
    }
  | { readonly type: "write"; readonly hold: string; readonly resource: string; readonly fencingToken: number }
  | { readonly type: "job"; readonly key: string; readonly seq: number; readonly atMs: number }
  | { readonly type: "trouble"; readonly message: string };

export type FaultKind = "killed" | "frozen" | "network" | "none";

export type HistoryLine =
  | { readonly kind: "told"; readonly who: string; readonly told: Told }
  /** The protected store has decided on a write. */
  | {
      readonly kind: "write";
      readonly who: string;
      readonly hold: string;
      readonly resource: string;
      readonly fencingToken: number;
      readonly accepted: boolean;
      readonly atMs: number;
    }
  | {
      readonly kind: "fault";
      /** The same number for the end of the fault. */
      readonly id: number;
      /** The server or process that was struck. Undefined for all processes. */
      readonly on: string | undefined;
      readonly what: FaultKind;
      readonly text: string;
      readonly atMs: number;
    }
  | { readonly kind: "mended"; readonly id: number; readonly atMs: number }
  | { readonly kind: "added"; readonly key: string; readonly seq: number }
  | { readonly kind: "completed"; readonly key: string; readonly seq: number };

export type History = readonly HistoryLine[];
