/** The functions that JSX is bundled to, under names that no variable has. */
export { Fragment as JsxFragment, h as jsxElement } from "preact";
