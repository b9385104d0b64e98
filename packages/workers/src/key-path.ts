/** Types alone: the paths into a job's data at which a key may stand. */

type IsUnknown<Value> = unknown extends Value ? true : false;

/** Whether a value may be a key. With `null` and `undefined` a job has no key; with a boolean or an object it fails. */
type MayBeKey<Value> = Extract<Value, string | number | readonly (string | number)[]> extends never ? false : true;

/** `"all"` checks the fields of the fields, too; what is deeper may be any text, so that wide types stay cheap. */
type FieldsOf<Data, Depth extends "all" | "first"> = Data extends readonly unknown[]
  ? `${number}` | `${number}.${string}`
  : {
      [Name in keyof Data & string]-?:
        | (IsUnknown<Data[Name]> extends true ? Name : MayBeKey<Data[Name]> extends true ? Name : never)
        | `${Name}.${Below<Data[Name], Depth>}`;
    }[keyof Data & string];

type Below<Value, Depth extends "all" | "first"> =
  IsUnknown<Value> extends true
    ? string
    : Extract<Value, object> extends never
      ? never
      : Depth extends "first"
        ? string
        : FieldsOf<Extract<Value, object>, "first">;

/**
 * The paths into `Data` at which a key may stand. It is any text where `Data` does not say what is in it. For a path
 * that is known at run time only, cast it to this type.
 */
export type KeyPath<Data> = [Data] extends [never]
  ? string
  : IsUnknown<Data> extends true
    ? string
    : Data extends object
      ? FieldsOf<Data, "all">
      : never;
