/**
 * Ends processes and removes their folder when this process has ended, even by an uncaught error or SIGKILL.
 *
 * A shell in its own session holds the read end of a pipe whose only writer is this process. The kernel closes the pipe
 * when the process ends. The shell reads EOF, kills the registered processes and removes the folder. Not covered: a
 * shell that is killed with SIGKILL, and a machine that loses power.
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
    // A dead shell receives no registrations. In this case only `stop()` ends the servers.
    shell.stdin?.on("error", () => {});
    unref(shell.stdin);
    started = { folder, shell };
  }
  return started;
}

/** Returns the temporary folder of this process, which is removed when the process ends. */
export function temporaryFolder(): string {
  return watchdog().folder;
}

/** Kills the process `pid` when this process ends. Call this function in the turn that spawned the process. */
export function watch(pid: number): void {
  watchdog().shell.stdin?.write(`add ${pid}\n`);
}

/** Forgets a process that has ended, so that a later process with the same ID is left alone. */
export function unwatch(pid: number): void {
  watchdog().shell.stdin?.write(`remove ${pid}\n`);
}

/** Lets this process end while the stream is open. */
export function unref(stream: object | null): void {
  if (stream !== null && "unref" in stream && typeof stream.unref === "function") stream.unref();
}
