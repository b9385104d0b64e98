/**
 * Pure: the texts of BullMQ's scripts that have passed the contract tests. The texts of a release are a set of six, and
 * a release is known only if its whole set is. `npm run bullmq -- VERSION` tests a release and adds its set.
 */
import { createHash } from "node:crypto";
import { type BullScript, type EmbeddedScript, embedded } from "./compose.ts";

/** The first 16 digits of the SHA-1 of each text. */
export type ScriptTexts = Readonly<Record<EmbeddedScript, string>>;

export interface ScriptSet {
  /** The oldest and the newest release that contain these texts. The tests run with the newest. */
  readonly from: string;
  readonly to: string;
  readonly texts: ScriptTexts;
}

/** The known sets, the oldest release first. */
export const SCRIPT_SETS: readonly ScriptSet[] = [
  {
    from: "5.64.0",
    to: "5.66.2",
    texts: {
      moveToActive: "6c4c6de2bece2ad8",
      moveToFinished: "0b7bd48fc19cd7a5",
      moveToDelayed: "2ee2d13db5126969",
      moveToWaitingChildren: "bbb6163481b4e259",
      retryJob: "4500167f688cb8d0",
      promote: "494df440a22d9222",
    },
  },
  {
    from: "5.66.3",
    to: "5.66.5",
    texts: {
      moveToActive: "6c4c6de2bece2ad8",
      moveToFinished: "ca59e57c8a28d288",
      moveToDelayed: "2ee2d13db5126969",
      moveToWaitingChildren: "bbb6163481b4e259",
      retryJob: "4500167f688cb8d0",
      promote: "494df440a22d9222",
    },
  },
  {
    from: "5.66.6",
    to: "5.70.1",
    texts: {
      moveToActive: "6c4c6de2bece2ad8",
      moveToFinished: "303794c450bb9319",
      moveToDelayed: "2ee2d13db5126969",
      moveToWaitingChildren: "bbb6163481b4e259",
      retryJob: "4500167f688cb8d0",
      promote: "494df440a22d9222",
    },
  },
  {
    from: "5.70.2",
    to: "5.71.1",
    texts: {
      moveToActive: "6c4c6de2bece2ad8",
      moveToFinished: "ad2108d6beeb60e2",
      moveToDelayed: "2ee2d13db5126969",
      moveToWaitingChildren: "bbb6163481b4e259",
      retryJob: "4500167f688cb8d0",
      promote: "494df440a22d9222",
    },
  },
  {
    from: "5.72.0",
    to: "5.73.2",
    texts: {
      moveToActive: "6c4c6de2bece2ad8",
      moveToFinished: "4c483e66706d8921",
      moveToDelayed: "2ee2d13db5126969",
      moveToWaitingChildren: "bbb6163481b4e259",
      retryJob: "4500167f688cb8d0",
      promote: "494df440a22d9222",
    },
  },
  {
    from: "5.73.3",
    to: "5.76.6",
    texts: {
      moveToActive: "6c4c6de2bece2ad8",
      moveToFinished: "6915018337087ae3",
      moveToDelayed: "50f67b9ae294f395",
      moveToWaitingChildren: "bbb6163481b4e259",
      retryJob: "4500167f688cb8d0",
      promote: "494df440a22d9222",
    },
  },
  {
    from: "5.76.7",
    to: "5.77.3",
    texts: {
      moveToActive: "6c4c6de2bece2ad8",
      moveToFinished: "560199762fb846c1",
      moveToDelayed: "50f67b9ae294f395",
      moveToWaitingChildren: "bbb6163481b4e259",
      retryJob: "4500167f688cb8d0",
      promote: "494df440a22d9222",
    },
  },
  {
    from: "5.77.4",
    to: "5.81.5",
    texts: {
      moveToActive: "6c4c6de2bece2ad8",
      moveToFinished: "11d69c87800ed307",
      moveToDelayed: "50f67b9ae294f395",
      moveToWaitingChildren: "bbb6163481b4e259",
      retryJob: "4500167f688cb8d0",
      promote: "494df440a22d9222",
    },
  },
  {
    from: "6.3.3",
    to: "6.3.4",
    texts: {
      moveToActive: "d96ca626f1ea141b",
      moveToFinished: "665f3bc3d4869f4c",
      moveToDelayed: "d38534cd0ca4d522",
      moveToWaitingChildren: "bbb6163481b4e259",
      retryJob: "812d06de3eaf0fb7",
      promote: "1d740f19fe984343",
    },
  },
  {
    from: "6.3.5",
    to: "6.7.0",
    texts: {
      moveToActive: "d96ca626f1ea141b",
      moveToFinished: "69666e69dd5621df",
      moveToDelayed: "9f83944d6edafd63",
      moveToWaitingChildren: "bbb6163481b4e259",
      retryJob: "812d06de3eaf0fb7",
      promote: "1d740f19fe984343",
    },
  },
];

/** Returns the names of scripts that are missing, of the scripts that this package builds on. */
export function missingScripts(scripts: Readonly<Record<string, BullScript>>): readonly EmbeddedScript[] {
  return embedded.filter((name) => scripts[name] === undefined);
}

export function textsOf(scripts: Readonly<Record<EmbeddedScript, BullScript>>): ScriptTexts {
  const texts = embedded.map((name) => [name, digest(scripts[name].lua)]);
  return Object.fromEntries(texts) as ScriptTexts;
}

/** Returns the fingerprint of a set, 16 hexadecimal digits: the value of the option `acceptScripts`. */
export function fingerprintOf(texts: ScriptTexts): string {
  return digest(embedded.map((name) => `${name} ${texts[name]}`).join("\n"));
}

/** Returns the known set that is nearest to `texts`, the newest of equals, and the scripts that differ from it. */
export function nearestSet(texts: ScriptTexts): {
  readonly set: ScriptSet;
  readonly differing: readonly EmbeddedScript[];
} {
  const compared = SCRIPT_SETS.map((set) => ({
    set,
    differing: embedded.filter((name) => set.texts[name] !== texts[name]),
  }));
  return compared.reduce((best, next) => (next.differing.length <= best.differing.length ? next : best));
}

/** Names the supported releases of each major version, such as "5.64.0 to 5.81.5 and 6.3.3 to 6.7.0". */
export function supportedReleases(sets: readonly ScriptSet[] = SCRIPT_SETS): string {
  const majors = new Map<string, string>();
  for (const { from, to } of sets) {
    const [major = ""] = from.split(".");
    const [oldest = from] = majors.get(major)?.split(" ") ?? [];
    majors.set(major, `${oldest} to ${to}`);
  }
  return [...majors.values()].join(" and ");
}

function digest(text: string): string {
  return createHash("sha1").update(text).digest("hex").slice(0, 16);
}
