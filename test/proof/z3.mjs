/**
 * Z3 in a process of its own, because its threads never end. The parent sends questions as IPC messages
 * `{ id, text, timeoutMs, wantsModel }` and gets `{ id, answer, model }`: `answer` is "sat", "unsat" or "unknown", and
 * `model` the values of a "sat" as text. The low-level calls are used, because those of the high level free objects
 * while the solver runs.
 */
import { init } from "z3-solver";

const { Z3 } = await init();
Z3.global_param_set("pp.decimal", "true");
Z3.global_param_set("pp.decimal_precision", "6");
const context = Z3.mk_context(Z3.mk_config());
const ANSWERS = { [-1]: "unsat", 0: "unknown", 1: "sat" };

async function ask({ text, timeoutMs, wantsModel }) {
  Z3.global_param_set("timeout", String(timeoutMs));
  const solver = Z3.mk_solver(context);
  Z3.solver_inc_ref(context, solver);
  try {
    Z3.solver_from_string(context, solver, text);
    const answer = ANSWERS[await Z3.solver_check(context, solver)];
    return { answer, model: answer === "sat" && wantsModel ? modelOf(solver) : undefined };
  } finally {
    Z3.solver_dec_ref(context, solver);
  }
}

function modelOf(solver) {
  const model = Z3.solver_get_model(context, solver);
  Z3.model_inc_ref(context, model);
  const text = Z3.model_to_string(context, model);
  Z3.model_dec_ref(context, model);
  return text;
}

let last = Promise.resolve();
process.on("message", (question) => {
  last = last.then(async () => {
    const reply = await ask(question).catch((error) => ({ answer: String(error) }));
    process.send({ id: question.id, ...reply, cpuMs: process.cpuUsage().user / 1_000 });
  });
});
process.on("disconnect", () => process.exit());
process.send({ isReady: true });
