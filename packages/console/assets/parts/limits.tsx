/** The form for the limits of a key. */
import type { KeyPolicy } from "@x/workers";
import { blocked, dialog } from "../model.ts";
import { policyText, printable } from "../words.ts";

interface LimitsProps {
  readonly queue: string;
  readonly name: string;
  /** The present limits. */
  readonly policy: KeyPolicy | undefined;
}

export function Limits({ queue, name, policy }: LimitsProps) {
  const { concurrency, rate, maxWaiting, weight } = policy ?? {};
  const ask = (event: SubmitEvent & { readonly currentTarget: HTMLFormElement }): void => {
    event.preventDefault();
    if (blocked.value !== undefined) return;
    const given = new FormData(event.currentTarget);
    const numberOf = (field: string): number | undefined => {
      const text = given.get(field);
      return typeof text !== "string" || text === "" ? undefined : Number(text);
    };
    const [max, seconds, most] = [numberOf("rateMax"), numberOf("seconds"), numberOf("maxWaiting")];
    const next: KeyPolicy = {
      concurrency: numberOf("concurrency"),
      rate: max === undefined || seconds === undefined ? undefined : { max, duration: Math.round(seconds * 1_000) },
      maxWaiting: most === undefined ? undefined : { ...maxWaiting, max: most },
      weight: numberOf("weight"),
    };
    const text = policyText(next);
    if (text === "") return;
    const fields = {
      concurrency: next.concurrency,
      rateMax: next.rate?.max,
      rateMs: next.rate?.duration,
      maxWaiting: next.maxWaiting?.max,
      drop: next.maxWaiting?.drop,
      weight: next.weight,
    };
    const known = Object.entries(fields).flatMap(([field, value]) =>
      value === undefined ? [] : [[field, `${value}`]],
    );
    dialog.value = {
      kind: "confirm",
      action: {
        do: "set-policy",
        label: "Set limits",
        effect: `From now on, ${printable(name)} of ${printable(queue)}: ${text}. Jobs that run continue.`,
        parameters: { queue, key: name, ...Object.fromEntries(known) },
      },
    };
  };
  return (
    <form onSubmit={ask}>
      <p>An empty field follows the options of the workers.</p>
      <Field name="concurrency" text="Jobs at a time" value={concurrency} max={100} />
      <Field name="rateMax" text="Starts" value={rate?.max} max={10_000} />
      <Field name="seconds" text="in seconds" value={rate && rate.duration / 1_000} min={0.001} max={86_400} />
      <Field name="maxWaiting" text="Jobs that may wait" value={maxWaiting?.max} max={1_000_000} />
      <Field name="weight" text="Starts at a turn" value={weight} max={100} />
      <p class="buttons">
        <button type="submit" class="btn main" aria-disabled={blocked.value !== undefined} title={blocked.value}>
          Set limits
        </button>
      </p>
    </form>
  );
}

interface FieldProps {
  readonly name: string;
  readonly text: string;
  readonly value: number | undefined;
  readonly min?: number;
  readonly max: number;
}

/** A field keeps what somebody types while the page changes. */
const Field = ({ name, text, value, min = 1, max }: FieldProps) => (
  <label class="lbl">
    {text}
    <span class="find">
      <input name={name} type="number" min={min} max={max} step={min < 1 ? min : 1} defaultValue={value} />
    </span>
  </label>
);
