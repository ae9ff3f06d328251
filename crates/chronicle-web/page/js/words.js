// Which words differ between two lines.

const TOKENS = /\w+|\s+|[^\w\s]/gu;
const MOST = 240;

/** Ranges `[from, to]` of characters in both lines that the other does not have; null if too little is the same. */
export function differing(before, after) {
  if (before.length > 1200 || after.length > 1200) return null;
  const [a, b] = [before.match(TOKENS) ?? [], after.match(TOKENS) ?? []];
  if (!a.length || !b.length || a.length > MOST || b.length > MOST) return null;
  const width = b.length + 1;
  const table = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      table[i * width + j] = a[i] === b[j] ? table[(i + 1) * width + j + 1] + 1 : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
    }
  }
  if (table[0] * 3 < Math.min(a.length, b.length)) return null;
  const ranges = [[], []];
  const places = [0, 0];
  const mark = (side, length) => {
    const list = ranges[side];
    const last = list.at(-1);
    if (last && last[1] === places[side]) last[1] += length;
    else list.push([places[side], places[side] + length]);
    places[side] += length;
  };
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      places[0] += a[i].length;
      places[1] += b[j].length;
      i += 1;
      j += 1;
    } else if (j >= b.length || (i < a.length && table[(i + 1) * width + j] >= table[i * width + j + 1])) {
      mark(0, a[i].length);
      i += 1;
    } else {
      mark(1, b[j].length);
      j += 1;
    }
  }
  return ranges;
}
