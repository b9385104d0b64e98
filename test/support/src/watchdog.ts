/**
 * Ends processes and removes their folder when this process is gone, however it went: a return, an uncaught error, SIGKILL.
 *
 * A shell in a session of its own holds the read end of a pipe whose only writer is this process. The kernel closes the
 * pipe when the process ends, the shell reads EOF, kills what is still registered and removes the folder.
 * Not covered: the shell itself killed with SIGKILL, and a machine that loses power.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const script = `
trap '' HUP INT TERM
pids=' '
while read -r verb pid; do
  case $verb in
    add) pids="$pids$pid " ;;
    remove) case $pids in *" $pid "*) pids="\${pids%% "$pid" *} \${pids#* "$pid" }" ;; esac ;;
  esac
done
for pid in $pids; do kill -KILL "$pid"; done
rm -rf "$1"
`;

interface Watchdog {
  readonly folder: string;
  readonly shell: ChildProcess;
}

let started: Watchdog | undefined;

function watchdog(): Watchdog {
  if (started === undefined) {
    const folder = mkdtempSync(join(tmpdir(), "x-redis-"));
    const shell = spawn("/bin/sh", ["-c", script, "watchdog", folder], {
      cwd: "/",
      detached: true,
      stdio: ["pipe", "ignore", "ignore"],
    });
    shell.unref();
    // A shell that died cannot be told anything; the servers are then stopped by stop() only.
    shell.stdin?.on("error", () => {});
    unref(shell.stdin);
    started = { folder, shell };
  }
  return started;
}

/** The temporary folder of this process: removed when it ends. */
export function temporaryFolder(): string {
  return watchdog().folder;
}

/** Has the process `pid` killed when this process ends; call it in the turn that spawned it. */
export function watch(pid: number): void {
  watchdog().shell.stdin?.write(`add ${pid}\n`);
}

/** Forgets a process that has ended, so that a later process with the same id is left alone. */
export function unwatch(pid: number): void {
  watchdog().shell.stdin?.write(`remove ${pid}\n`);
}

/** Lets this process end while the stream is open. */
export function unref(stream: object | null): void {
  if (stream !== null && "unref" in stream && typeof stream.unref === "function") stream.unref();
}
