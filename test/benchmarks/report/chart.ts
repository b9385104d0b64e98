/** Pure: a bar chart as SVG text, readable on light and on dark backgrounds. */

export interface Bar {
  readonly label: string;
  readonly value: number;
  readonly isOurs: boolean;
}

const labelWidth = 230;
const barWidth = 420;
const rowHeight = 24;
const top = 40;

/** Returns the chart. `format` writes the value next to its bar. Bars start at zero. */
export function barChart(title: string, bars: readonly Bar[], format: (value: number) => string): string {
  const most = Math.max(...bars.map(({ value }) => (Number.isFinite(value) ? value : 0)), Number.MIN_VALUE);
  const height = top + bars.length * rowHeight + 10;
  const rows = bars.map(({ label, value, isOurs }, index) => {
    const y = top + index * rowHeight;
    const width = Number.isFinite(value) ? Math.max(1, (value / most) * barWidth) : 0;
    const color = isOurs ? "#2f7d32" : "#8a94a6";
    const text = Number.isFinite(value) ? format(value) : "-";
    return [
      `<text x="${labelWidth - 8}" y="${y + 13}" text-anchor="end">${escape(label)}</text>`,
      `<rect x="${labelWidth}" y="${y}" width="${width.toFixed(1)}" height="17" fill="${color}"/>`,
      `<text x="${(labelWidth + width + 6).toFixed(1)}" y="${y + 13}">${escape(text)}</text>`,
    ].join("");
  });
  const width = labelWidth + barWidth + 100;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" font-family="sans-serif" font-size="12">`,
    `<rect width="${width}" height="${height}" fill="#ffffff"/>`,
    `<text x="12" y="22" font-size="14" font-weight="bold">${escape(title)}</text>`,
    ...rows,
    "</svg>\n",
  ].join("\n");
}

function escape(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
