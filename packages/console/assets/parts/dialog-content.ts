/** The title of the dialog, the actions with their effects, and the commands with the same effects. */
import { shellWord } from "../../src/page/rules/words.ts";
import type { ActionView, ScheduleView } from "../../src/page/state.ts";
import { type Dialog, state } from "../model.ts";
import { printable } from "../words.ts";

interface Content {
  readonly title: string;
  readonly actions: readonly ActionView[];
  readonly commands: readonly string[];
}

export function contentOf(opened: Dialog): Content {
  switch (opened.kind) {
    case "confirm":
      return { title: `${opened.action.label}?`, actions: [opened.action], commands: [] };
    case "job": {
      const [queue, id] = [shellWord(opened.queue), shellWord(opened.id)];
      return {
        title: `Job ${printable(opened.id)}`,
        actions: jobActions(opened),
        commands: [`npx @x/console keys explain ${queue} ${id}`, `npx @x/console keys cancel ${queue} ${id}`],
      };
    }
    case "limits":
      return {
        title: `Limits of ${printable(opened.key)}`,
        actions: [],
        commands: [`npx @x/console keys policy ${shellWord(opened.queue)} ${shellWord(opened.key)}`],
      };
    case "checks":
      return { title: "What the page checks", actions: [], commands: ["npx @x/console problems"] };
    case "lock":
      return {
        title: printable(opened.name),
        actions: [releaseAction(opened.name)],
        commands: [`npx @x/console locks inspect ${shellWord(opened.name)}`],
      };
    case "election": {
      const election = state.value?.elections.find(({ name }) => name === opened.name);
      return {
        title: `Election ${printable(opened.name)}`,
        actions: election?.leader === undefined ? [] : [resignAction(opened.name)],
        commands: [`npx @x/console leader status ${shellWord(opened.name)}`],
      };
    }
    case "schedule": {
      const schedule = state.value?.schedules.value?.schedules.find(
        ({ scheduler, name }) => scheduler === opened.scheduler && name === opened.name,
      );
      const election = shellWord(schedule?.election ?? "ELECTION");
      return {
        title: `Schedule ${printable(opened.name)}`,
        actions: schedule === undefined ? [] : scheduleActions(schedule),
        commands: [`npx @x/console schedules history ${election} ${shellWord(opened.name)}`],
      };
    }
  }
}

function releaseAction(resource: string): ActionView {
  return {
    do: "release-lock",
    label: "Release by force",
    effect: `${printable(resource)} becomes free, although its holder may still work for a moment. A waiter acquires it next.`,
    parameters: { resource },
  };
}

function resignAction(election: string): ActionView {
  return {
    do: "resign",
    label: "Ask to resign",
    effect: `The leader of ${printable(election)} finishes its work and resigns. Another candidate leads then.`,
    parameters: { election },
  };
}

function scheduleActions({
  scheduler,
  name,
  paused,
}: Pick<ScheduleView, "scheduler" | "name" | "paused">): readonly ActionView[] {
  const parameters = { scheduler, name };
  const shown = printable(name);
  return [
    { do: "trigger-schedule", label: "Run now", effect: `The leader runs ${shown} once, now.`, parameters },
    paused
      ? { do: "resume-schedule", label: "Resume schedule", effect: `Ticks of ${shown} run again.`, parameters }
      : {
          do: "pause-schedule",
          label: "Pause schedule",
          effect: `No tick of ${shown} runs until somebody resumes it. Ticks that pass in the meantime are not caught up.`,
          parameters,
        },
  ];
}

/** The actions for a job that waits for its key. */
function jobActions({
  queue,
  key,
  id,
}: {
  readonly queue: string;
  readonly key: string;
  readonly id: string;
}): readonly ActionView[] {
  const parameters = { queue, key, jobId: id };
  return [
    {
      do: "cancel-job",
      label: "Cancel job",
      effect: `Job ${printable(id)} fails without a retry. If it runs by then, it fails when its processor ends.`,
      parameters,
    },
    {
      do: "remove-job",
      label: "Remove job",
      effect: `Job ${printable(id)} is deleted for good, with its children. If it runs by then, it is cancelled instead.`,
      parameters,
    },
  ];
}
