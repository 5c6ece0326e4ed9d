"""The style and the script of a soak's page.

Invariant: style and script name no other resource. The colours of lines, --c0 to --c8, exist for light and dark pages. Pure."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --back: #fff; --fore: #1c1e21; --faint: #8883; --band: #8882;
  --good: #18794e; --bad: #c62a2f; --c0: #2a78d6; --c1: #d9730d; --c2: #2b9348; --c3: #b5367e;
  --c4: #6f56c9; --c5: #a07a00; --c6: #0f8b8d; --c7: #d1495b; --c8: #666 }
@media (prefers-color-scheme: dark) { :root { --back: #16181b; --fore: #e4e6e8;
  --good: #4cc38a; --bad: #ff7a78; --c0: #6fb1ff; --c1: #ffa057; --c2: #69d08a; --c3: #f283bf;
  --c4: #b3a0ff; --c5: #e3c14b; --c6: #4fd0d2; --c7: #ff8f9c; --c8: #aaa } }
body { font: 14px system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem;
  background: var(--back); color: var(--fore) }
h1 { font-size: 1.4rem } h2 { font-size: 1.05rem; margin: 1.8rem 0 .3rem }
table { border-collapse: collapse; width: 100% }
td { padding: .25rem .6rem; text-align: left; vertical-align: top }
tr { border-bottom: 1px solid var(--faint) } td:first-child { white-space: nowrap }
.holds { color: var(--good) } .broken { color: var(--bad); font-weight: 600 }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: 12px }
svg { width: 100%; height: auto; display: block }
text { font: 11px system-ui, sans-serif; fill: currentColor }
polyline { fill: none; stroke-width: 1.4; vector-effect: non-scaling-stroke }
.grid { stroke: var(--faint) } .band { fill: var(--band) } .band:hover { fill: var(--faint) }
.cross { stroke: var(--fore); stroke-dasharray: 2 2; visibility: hidden }
.key span { margin-right: 1rem; white-space: nowrap }
.key i { display: inline-block; width: .8rem; height: .2rem; margin-right: .3rem; vertical-align: middle }
figure { margin: 0; position: relative }
.tip { position: absolute; top: 0; pointer-events: none; visibility: hidden; z-index: 1; white-space: pre;
  background: var(--back); border: 1px solid var(--faint); padding: .3rem .5rem;
  font: 12px ui-monospace, monospace }
"""
SCRIPT = """
const page = JSON.parse(document.getElementById('data').textContent), times = page.times;
const inner = page.width - page.left - page.right;
function formatted(value, bytes) {
  if (value === null) return '-';
  if (!bytes) {
    return value >= 100 || Number.isInteger(value) ? Math.round(value).toLocaleString('en') : value.toFixed(1);
  }
  for (const [unit, size] of [['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]]) {
    if (Math.abs(value) >= size) return (value / size).toFixed(1) + ' ' + unit;
  }
  return Math.round(value) + ' B';
}
function clock(seconds) {
  const parts = [seconds / 3600, seconds / 60 % 60, seconds % 60];
  return parts.map(part => String(Math.floor(part)).padStart(2, '0')).join(':');
}
function nearest(at) {
  let low = 0, high = times.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (times[middle] < at) low = middle; else high = middle;
  }
  return Math.abs(times[low] - at) < Math.abs(times[high] - at) ? low : high;
}
document.querySelectorAll('figure').forEach((figure, place) => {
  const chart = page.charts[place], svg = figure.querySelector('svg');
  const cross = svg.querySelector('.cross'), tip = figure.querySelector('.tip');
  svg.addEventListener('mousemove', event => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width * page.width - page.left) / inner * page.span;
    const row = nearest(at);
    if (times[row] === undefined) return;
    const x = page.left + times[row] / page.span * inner, share = x / page.width * 100;
    cross.setAttribute('x1', x);
    cross.setAttribute('x2', x);
    const lines = chart.lines.map(line => line.name.padEnd(14) + formatted(line.values[row], chart.bytes));
    const marks = page.marks.filter(mark => mark.from <= at && at <= mark.to).map(mark => mark.text);
    tip.textContent = [clock(times[row]), ...lines, ...marks].join('\\n');
    tip.style.left = share > 50 ? 'auto' : share + 1 + '%';
    tip.style.right = share > 50 ? 101 - share + '%' : 'auto';
    cross.style.visibility = tip.style.visibility = 'visible';
  });
  svg.addEventListener('mouseleave', () => { cross.style.visibility = tip.style.visibility = 'hidden'; });
});
"""
