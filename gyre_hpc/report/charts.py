"""Charts as inline SVG text. Pure functions of numbers; colours are CSS classes that html.py defines for light and dark.

Every chart is `WIDTH` units wide and scales with the page. Marks carry <title>, which browsers show on hover.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 960
LEFT, RIGHT, BOTTOM, TOP = 72, 16, 26, 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """A stretch in one row of a timeline."""

    start: float
    end: float
    style: str
    """CSS class."""
    title: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """One line of a chart; `dots` draws marks instead of a line."""

    name: str
    points: Sequence[tuple[float, float]]
    style: str
    dots: bool = False


def svg(height: float, body: Sequence[str], label: str) -> str:
    """The frame of a chart."""
    return f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(label)}">{"".join(body)}</svg>'


def ticks(low: float, high: float, num: int) -> list[float]:
    """At most num + 1 round values in [low, high]."""
    if high <= low:
        return [low]
    raw = (high - low) / num
    power = 10.0 ** (len(str(int(raw))) - 1) if raw >= 1 else 10.0 ** -next(place for place in range(1, 12) if raw * 10**place >= 1)
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    first = -(-low // step)
    return [round((first + place) * step, 10) for place in range(int((high - first * step) // step + 1e-9) + 1)]


def scale(low: float, high: float, start: float, end: float) -> "Scale":
    return Scale(low=low, high=high if high > low else low + 1, start=start, end=end)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """From numbers to places."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def curves(lines: Sequence[Curve], *, x_label: str, y_percent: bool = False, height: float = 240, x_whole: bool = False) -> str:
    """Lines and dots over a common pair of axes; y begins at 0."""
    everything = [point for line in lines for point in line.points]
    if not everything:
        return nothing()
    xs = scale(min(x for x, _ in everything), max(x for x, _ in everything), LEFT, WIDTH - RIGHT)
    top = 1.0 if y_percent else max(y for _, y in everything) or 1.0
    ys = scale(0, top, height - BOTTOM, TOP)
    body = _axes(xs, ys, height, x_label, y_percent, x_whole)
    for line in lines:
        if not line.dots and len(line.points) > 1:
            path = " ".join(f"{xs(x):.1f},{ys(y):.1f}" for x, y in line.points)
            body.append(f'<polyline class="line {line.style}" points="{path}"/>')
        for x, y in line.points if line.dots or len(line.points) <= 60 else ():
            shown = f"{100 * y:.1f} %" if y_percent else f"{y:g}"
            title = f"<title>{escape(line.name)}: {shown} ({escape(x_label)} {x:g})</title>"
            body.append(f'<circle class="dot {line.style}" cx="{xs(x):.1f}" cy="{ys(y):.1f}" r="{5 if line.dots else 3}">{title}</circle>')
    return svg(height, body, ", ".join(line.name for line in lines))


def timeline(rows: Mapping[str, Sequence[Bar]], marks: Sequence[tuple[float, str]], *, end: float) -> str:
    """Rows of stretches over time in seconds; `marks` are thin lines through all rows."""
    if not rows:
        return nothing()
    row_height, xs = 22.0, scale(0, end, LEFT, WIDTH - RIGHT)
    height = TOP + row_height * len(rows) + BOTTOM
    body = []
    for place, (name, bars) in enumerate(rows.items()):
        y = TOP + place * row_height
        body.append(f'<text class="label" x="{LEFT - 8}" y="{y + 15:.1f}" text-anchor="end">{escape(name)}</text>')
        for bar in bars:
            width = max(xs(bar.end) - xs(bar.start), 0.6)
            title = f"<title>{escape(bar.title)}</title>"
            body.append(
                f'<rect class="{bar.style}" x="{xs(bar.start):.2f}" y="{y + 2:.1f}" width="{width:.2f}" height="{row_height - 4}">{title}</rect>'
            )
    bottom = TOP + row_height * len(rows)
    for at, text in marks:
        title = f"<title>{escape(text)}</title>"
        body.append(f'<line class="mark" x1="{xs(at):.1f}" x2="{xs(at):.1f}" y1="{TOP}" y2="{bottom + 4:.1f}">{title}</line>')
    body += _x_axis(xs, height, "s", False)
    return svg(height, body, "timeline of cells")


def stacked(bins: Sequence[Mapping[str, float]], styles: Mapping[str, str], *, end: float, height: float = 180) -> str:
    """Bars of counts by name over equal stretches of time."""
    if not bins:
        return nothing()
    top = max(sum(counts.values()) for counts in bins) or 1.0
    xs, ys = scale(0, end, LEFT, WIDTH - RIGHT), scale(0, top, height - BOTTOM, TOP)
    body = _axes(xs, ys, height, "s", False, False)
    width = (WIDTH - LEFT - RIGHT) / len(bins)
    for place, counts in enumerate(bins):
        base = 0.0
        for name, style in styles.items():
            count = counts.get(name, 0)
            if not count:
                continue
            y, tall = ys(base + count), ys(base) - ys(base + count)
            title = f"<title>{escape(name)}: {count:g}</title>"
            body.append(
                f'<rect class="{style}" x="{LEFT + place * width + 0.5:.2f}" y="{y:.1f}" width="{width - 1:.2f}" height="{tall:.1f}">{title}</rect>'
            )
            base += count
    return svg(height, body, "executions by state over time")


def shares(values: Mapping[str, float], total: float) -> str:
    """Horizontal bars of seconds by name, with their share of `total`."""
    if not values or total <= 0:
        return nothing()
    row_height, left = 24.0, 190
    xs = scale(0, max(values.values()), left, WIDTH - 170)
    body = []
    for place, (name, value) in enumerate(values.items()):
        y = place * row_height
        body.append(f'<text class="label" x="{left - 8}" y="{y + 16:.1f}" text-anchor="end">{escape(name)}</text>')
        width = max(xs(value) - left, 1)
        body.append(f'<rect class="idle" x="{left}" y="{y + 4:.1f}" width="{width:.1f}" height="{row_height - 8}"/>')
        body.append(f'<text class="value" x="{left + width + 8:.1f}" y="{y + 16:.1f}">{value:.1f} s · {100 * value / total:.1f} %</text>')
    return svg(row_height * len(values) + 4, body, "idle seconds by reason")


def nothing() -> str:
    return '<p class="nothing">Nothing to show yet.</p>'


def _axes(xs: Scale, ys: Scale, height: float, x_label: str, y_percent: bool, x_whole: bool) -> list[str]:
    body = []
    for value in ticks(ys.low, ys.high, 4):
        y = ys(value)
        shown = f"{100 * value:.0f} %" if y_percent else f"{value:g}"
        body.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        body.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{shown}</text>')
    return body + _x_axis(xs, height, x_label, x_whole)


def _x_axis(xs: Scale, height: float, label: str, whole: bool) -> list[str]:
    body = []
    for value in ticks(xs.low, xs.high, 10):
        if whole and value != int(value):
            continue
        body.append(f'<text class="tick" x="{xs(value):.1f}" y="{height - 8:.1f}" text-anchor="middle">{value:g}</text>')
    body.append(f'<text class="tick" x="{LEFT - 8}" y="{height - 8:.1f}" text-anchor="end">{escape(label)}</text>')
    return body
