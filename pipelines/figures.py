"""Figures of the pages: places on a drawing, worked out from values. `figures.html` makes them SVG.

A drawing has its own units: `Frame.width` by `Frame.height`, y downwards.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

DASHES = ("", "7 3", "2 3", "9 3 2 3", "14 4")
MARKERS = (
    "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",  # circle
    "M-3.5,-3.5h7v7h-7z",  # square
    "M0,-4.5L4.5,3.5H-4.5z",  # triangle
    "M0,-5L5,0L0,5L-5,0z",  # diamond
    "M0,4.5L4.5,-3.5H-4.5z",  # triangle upside down
    "M-1.5,-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",  # plus
    "M-4.5,-4.5h9l-9,9h9z",  # hourglass
)
COLOURS = 6
"""`page_style.html` has as many, `--colour-0` and so on."""


@dataclass(frozen=True)
class Style:
    """How one of several lines or bars looks. The numbers of dashes, colours and markers have no
    common factor: no two of the first 30 are alike in two of the three, so that lines can be told
    apart without their colours, and bars, which have no dash."""

    number: int
    """Also what a page knows them by that lets its reader choose some."""

    @property
    def colour(self) -> int:
        return self.number % COLOURS

    @property
    def dash(self) -> str:
        return DASHES[self.number % len(DASHES)]

    @property
    def marker(self) -> str:
        """An SVG path around 0, 0."""
        return MARKERS[self.number % len(MARKERS)]


@dataclass(frozen=True)
class Frame:
    """The size of a drawing, and the margins around what the axes enclose."""

    width: float
    height: float
    left: float
    top: float
    right_margin: float
    bottom_margin: float

    @property
    def right(self) -> float:
        return self.width - self.right_margin

    @property
    def bottom(self) -> float:
        return self.height - self.bottom_margin


SMALL = Frame(460, 270, left=58, top=24, right_margin=20, bottom_margin=40)
WIDE = Frame(760, 340, left=58, top=24, right_margin=20, bottom_margin=40)


@dataclass(frozen=True)
class Axis:
    """Maps values to places between two places of the drawing."""

    low: float
    high: float
    begin: float
    end: float
    is_log: bool = False

    def place(self, value: float) -> float:
        low, high = self.low, self.high
        if self.is_log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        part = (value - low) / (high - low) if high > low else 0.5
        return round(self.begin + part * (self.end - self.begin), 1)

    def ticks(self) -> list[float]:
        """Round values inside the axis, not too many."""
        if self.is_log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for steps in ((1,), (1, 3), (1, 2, 5)):
                inside = [
                    step * 10.0**power
                    for power in powers
                    for step in steps
                    if self.low <= step * 10.0**power <= self.high
                ]
                if len(inside) > 3:
                    return inside
            return inside or [self.low]
        step = _round_step((self.high - self.low) / 5)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]


def _round_step(size: float) -> float:
    """1, 2 or 5 times a power of ten, near a size."""
    power = 10.0 ** math.floor(math.log10(size)) if size > 0 else 1.0
    return next((step * power for step in (1, 2, 5) if step * power >= size), 10 * power)


def short(value: float) -> str:
    """`32k`, `1.5M`."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def percent(value: float) -> str:
    """A share as a tick has it: `50 %`."""
    return f"{100 * value:.3g} %"


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    text: str
    """Shown when the pointer is on it."""
    label: str = ""
    """Shown beside it."""


@dataclass(frozen=True)
class Line:
    """A curve."""

    name: str
    points: Sequence[Point]
    style: Style

    @property
    def path(self) -> str:
        return " ".join(f"{point.x},{point.y}" for point in self.points)


@dataclass(frozen=True)
class Mark:
    """A vertical line with words beside it."""

    x: float
    text: str = ""
    is_left: bool = False
    """Whether the words stand left of it."""


@dataclass(frozen=True)
class Plot:
    """Lines or dots on axes."""

    id: str
    """Unlike that of any other figure of the page."""
    title: str
    text: str
    """What is drawn, in a sentence, for those who cannot see it."""
    x_title: str
    y_title: str
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    lines: Sequence[Line] = ()
    dots: Sequence[Point] = ()
    levels: Sequence[float] = ()
    """y of horizontal lines that mark something."""
    marks: Sequence[Mark] = ()
    gaps: Sequence[float] = ()
    """x where an axis ends, and what has no place on it stands beyond."""
    frame: Frame = SMALL


# ---- bars ----


@dataclass(frozen=True)
class Bar:
    length: float
    """From 0 to 1."""
    label: str
    """Shown at its end."""
    text: str
    """Shown when the pointer is on it, and read to those who cannot see it."""
    style: Style


@dataclass(frozen=True)
class Group:
    """Bars that belong together."""

    name: str
    note: str
    """Shown below its name."""
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Bars:
    """A chart of horizontal bars in groups, of HTML and no drawing, so that bars move up where
    others are hidden."""

    id: str
    title: str
    names: Sequence[tuple[str, Style]]
    """What the bars of each group stand for."""
    groups: Sequence[Group]
