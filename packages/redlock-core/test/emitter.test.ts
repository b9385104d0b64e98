import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from "vitest";
import { Channels, callQuietly, Emitter, type LogLines } from "../src/kit.ts";

interface Plain {
  said: string;
}
interface WithErrors extends Plain {
  error: unknown;
}
const PLAIN: LogLines<Plain> = { said: ["debug", "said"] };
const WITH_ERRORS: LogLines<WithErrors> = { ...PLAIN, error: ["error", "failed"] };

describe("an emitter", () => {
  const warned: unknown[] = [];
  beforeEach(() => {
    vi.spyOn(process, "emitWarning").mockImplementation((warning) => void warned.push(warning));
  });
  afterEach(() => {
    warned.length = 0;
    vi.restoreAllMocks();
  });

  function hear(channel: string): unknown[] {
    const heard: unknown[] = [];
    const listener = (message: unknown): void => void heard.push(message);
    subscribe(channel, listener);
    onTestFinished(() => void unsubscribe(channel, listener));
    return heard;
  }

  it("refuses an unknown event, and a listener that is not a function", () => {
    const emitter = new Emitter<Plain>(PLAIN);
    expect(() => emitter.on("sad" as "said", () => undefined)).toThrow('event must be "said", got "sad"');
    expect(() => emitter.on("said", 7 as never)).toThrow("listener must be a function, got 7");
  });

  it("survives a listener that throws a value without text", () => {
    const emitter = new Emitter<Plain>(PLAIN);
    emitter.on("said", () => {
      throw Object.create(null);
    });
    emitter.emit("said", "a");
    expect(warned).toEqual(["[object Object]"]);
  });

  it("calls a listener that was added twice until both are removed", () => {
    const emitter = new Emitter<Plain>(PLAIN);
    const heard: string[] = [];
    const listener = (word: string): void => void heard.push(word);
    const stops = [emitter.on("said", listener), emitter.on("said", listener)];
    emitter.emit("said", "a");
    for (const stop of stops) {
      stop();
      stop();
      emitter.emit("said", "b");
    }
    expect(heard).toEqual(["a", "a", "b"]);
  });

  it("creates a message only if there is a listener, and shares one message between listeners and channels", () => {
    const channels = new Channels<Plain>("x.test.one", PLAIN);
    const emitter = new Emitter<Plain>(PLAIN, channels);
    let made = 0;
    const message = (): string => `message ${++made}`;
    emitter.tell("said", message);
    channels.publish("said", message);
    expect([made, emitter.isHeard("said"), channels.isHeard("said")]).toEqual([0, false, false]);
    const onChannel = hear("x.test.one.said");
    expect([emitter.isHeard("said"), channels.isHeard("said")]).toEqual([true, true]);
    emitter.tell("said", message);
    const heard: string[] = [];
    emitter.on("said", (each) => heard.push(each));
    emitter.tell("said", message);
    expect([heard, onChannel]).toEqual([["message 2"], ["message 1", "message 2"]]);
  });

  it("publishes an error as the field of an object, and passes the error itself to listeners", () => {
    const emitter = new Emitter<WithErrors>(WITH_ERRORS, new Channels<WithErrors>("x.test.errors", WITH_ERRORS));
    const onChannel = hear("x.test.errors.error");
    const heard: unknown[] = [];
    emitter.on("error", (error) => heard.push(error));
    const error = new Error("broken");
    emitter.emit("error", error);
    expect([onChannel, heard]).toEqual([[{ error }], [error]]);
  });

  it("continues after a listener that throws or rejects, and warns if it has no error event", async () => {
    const emitter = new Emitter<Plain>(PLAIN);
    const heard: string[] = [];
    emitter.on("said", () => {
      throw new Error("thrown");
    });
    emitter.on("said", () => Promise.reject(new Error("rejected")));
    emitter.on("said", (word) => heard.push(word));
    emitter.emit("said", "a");
    expect(heard).toEqual(["a"]);
    await expect.poll(() => warned.map(String)).toEqual(["Error: thrown", "Error: rejected"]);
  });

  it("passes the error of a listener to the `error` listeners, and warns of errors that these throw", async () => {
    const emitter = new Emitter<WithErrors>(WITH_ERRORS);
    const errors: unknown[] = [];
    emitter.on("said", () => Promise.reject(new Error("rejected")));
    emitter.on("error", (error) => errors.push(error));
    emitter.on("error", () => {
      throw new Error("of an error's listener");
    });
    emitter.emit("said", "a");
    await expect.poll(() => errors.map(String)).toEqual(["Error: rejected"]);
    expect(warned.map(String)).toEqual(["Error: of an error's listener"]);
  });

  it("drops the error of a listener if there is no `error` listener", () => {
    const emitter = new Emitter<WithErrors>(WITH_ERRORS);
    emitter.on("said", () => {
      throw new Error("thrown");
    });
    emitter.emit("said", "a");
    expect(warned).toEqual([]);
  });

  it("passes the error of a quiet call to the given handler", () => {
    const errors: unknown[] = [];
    callQuietly(
      () => {
        throw new Error("thrown");
      },
      (error) => errors.push(error),
    );
    expect([errors.map(String), warned]).toEqual([["Error: thrown"], []]);
  });
});
