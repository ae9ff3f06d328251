"""Draws growth over tree sizes as SVG: both axes logarithmic, one line for each peer, named at its end.

A picture carries its own background and changes it with the reader's, so that it can be read on light pages and on dark ones.
"""
import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 46, 46
# Hue by peer: the same in every picture. Light, dark.
COLOURS = {
    "chronicle": ("#0b57d0", "#7cb4ff"), "chronicle-scan": ("#5b8def", "#a9cbff"), "limit": ("#6b7280", "#9ca3af"), "walk": ("#6b7280", "#9ca3af"),
    "git": ("#c2410c", "#fb923c"), "opencode": ("#b45309", "#fbbf24"), "git-gc": ("#9a6700", "#e3b341"), "jj": ("#7c3aed", "#c4b5fd"),
    "restic": ("#15803d", "#4ade80"), "borg": ("#0f766e", "#2dd4bf"), "agent-undo": ("#be185d", "#f472b6"), "btrfs": ("#4d7c0f", "#a3e635"),
    "rsync": ("#a21caf", "#e879f9"), "unison": ("#15803d", "#4ade80"), "bindfs": ("#c2410c", "#fb923c"), "bare": ("#7c3aed", "#c4b5fd"),
}
STRONG = {"chronicle"}
DASHED = {"limit", "walk", "bare"}


def style(keys):
    lines = [".bg{fill:#ffffff}.t{fill:#1f2328}.m{fill:#59636e}.g{stroke:#d1d9e0}",
             "text{font:13px system-ui,-apple-system,'Segoe UI',sans-serif}.h{font-weight:600;font-size:15px}.s{font-size:12px}"]
    dark = [".bg{fill:#0d1117}.t{fill:#f0f6fc}.m{fill:#9198a1}.g{stroke:#3d444d}"]
    for number, key in enumerate(keys):
        light, night = COLOURS.get(key, ("#444444", "#bbbbbb"))
        lines.append(f".c{number}{{stroke:{light}}}.f{number}{{fill:{light}}}")
        dark.append(f".c{number}{{stroke:{night}}}.f{number}{{fill:{night}}}")
    return "<style>" + "".join(lines) + "@media(prefers-color-scheme:dark){" + "".join(dark) + "}</style>"


def growth(title, unit, labels, lines, across="files in the tree"):
    """`lines` is {key: {size: value}}; `labels` names the keys. Values that are not positive cannot be drawn and are left out."""
    lines = {k: {s: v for s, v in points.items() if v > 0} for k, points in lines.items()}
    lines = {k: points for k, points in lines.items() if points}
    sizes = sorted({s for points in lines.values() for s in points})
    values = [v for points in lines.values() for v in points.values()]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    span = math.log10(sizes[-1] / sizes[0]) or 1
    x = lambda size: LEFT + (WIDTH - LEFT - RIGHT) * math.log10(size / sizes[0]) / span
    y = lambda value: HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (math.log10(value) - low) / (high - low)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
           style(lines), f'<rect class="bg" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
           f'<text class="t h" x="16" y="26">{escape(title)}</text>']
    for power in range(low, high + 1):
        at = y(10 ** power)
        out.append(f'<line class="g" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        out.append(f'<text class="m s" x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{escape(tick(10.0 ** power, unit))}</text>')
    for size in sizes:
        out.append(f'<line class="g" x1="{x(size):.1f}" x2="{x(size):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        out.append(f'<text class="m s" x="{x(size):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{size:,}</text>')
    out.append(f'<text class="m s" x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 10}" text-anchor="middle">{escape(across)}</text>')
    named = spread([(key, y(points[max(points)])) for key, points in lines.items()])
    for number, (key, points) in enumerate(lines.items()):
        wide = 3.5 if key in STRONG else 1.8
        dash = ' stroke-dasharray="5 4"' if key in DASHED else ""
        corners = " ".join(f"{x(s):.1f},{y(v):.1f}" for s, v in sorted(points.items()))
        out.append(f'<polyline class="c{number}" points="{corners}" fill="none" stroke-width="{wide}" stroke-linejoin="round"{dash}/>')
        out += [f'<circle class="f{number}" cx="{x(s):.1f}" cy="{y(v):.1f}" r="{wide + 1}"/>' for s, v in points.items()]
        last = max(points)
        words = f"{labels.get(key, key)}: {tick(points[last], unit)}"
        bold = ' font-weight="600"' if key in STRONG else ""
        out.append(f'<text class="f{number} s" x="{x(last) + 10:.1f}" y="{named[key] + 4:.1f}"{bold}>{escape(words)}</text>')
    return "\n".join(out) + "\n</svg>\n"


def spread(places, apart=15):
    """Moves labels that would lie on each other; they stay in order and on the picture."""
    placed, at = {}, TOP - apart
    for key, want in sorted(places, key=lambda p: p[1]):
        at = max(want, at + apart)
        placed[key] = at
    over = at - (HEIGHT - BOTTOM)
    if over > 0:
        below = HEIGHT - BOTTOM + apart
        for key, _ in sorted(placed.items(), key=lambda p: -p[1]):
            below = min(placed[key], below - apart)
            placed[key] = below
    return placed


def tick(value, unit):
    if unit == "ms":
        if value >= 1000:
            return f"{short(value / 1000)} s"
        return f"{short(value)} ms" if value >= 0.1 else f"{short(value * 1000)} us"
    if unit == "MB" and value < 0.1:
        return f"{short(value * 1000)} kB"
    if unit == "MB" and value >= 1000:
        return f"{short(value / 1000)} GB"
    return f"{short(value)} {unit}"


def short(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
