/** Pure: the number format of Lua 5.1, and `string.format` for the directives that Redis scripts use. */

/** Formats with `%.14g`, like `tostring`. */
export function formatNumber(value: number): string {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (Number.isInteger(value) && Math.abs(value) < 1e14) return String(value);
  const [mantissa = "0", exponent = "0"] = value.toExponential(13).split("e");
  const power = Number(exponent);
  if (power < -4 || power >= 14) {
    const digits = String(Math.abs(power)).padStart(2, "0");
    return `${trimZeros(mantissa)}e${power < 0 ? "-" : "+"}${digits}`;
  }
  return trimZeros(value.toFixed(Math.max(0, 13 - power)));
}

function trimZeros(text: string): string {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

export function formatString(template: string, values: readonly unknown[]): string {
  let next = 0;
  return template.replace(/%(%|\d*(\.\d+)?[a-zA-Z])/g, (directive) => {
    if (directive === "%%") return "%";
    const value = values[next];
    next += 1;
    if (directive === "%s") return typeof value === "number" ? formatNumber(value) : String(value);
    const number = Number(value);
    if (Number.isNaN(number)) throw new TypeError(`string.format: ${directive} of ${String(value)}`);
    if (directive === "%d") return String(Math.trunc(number));
    const [, width = "", decimals] = /^%(0\d+)?\.(\d+)f$/.exec(directive) ?? [];
    if (decimals === undefined) throw new TypeError(`string.format: ${directive} is not implemented`);
    if (number < 0 && width !== "") throw new TypeError(`string.format: ${directive} of a negative number`);
    return number.toFixed(Number(decimals)).padStart(Number(width), "0");
  });
}
