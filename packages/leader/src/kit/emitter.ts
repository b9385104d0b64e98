export { Emitter } from "@x/redlock-core/protocol";

export type Unsubscribe = () => void;
