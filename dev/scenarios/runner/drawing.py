"""The look of the runs' pictures. Colours are of the Okabe-Ito palette, which colour-blind readers tell apart."""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")  # no display is needed, and none is looked for

from matplotlib.axes import Axes

SKY, BLUE, ORANGE, AMBER, VERMILLION = "#A9D6F0", "#0072B2", "#F3C77B", "#E69F00", "#D55E00"
GREEN = "#009E73"
GREY, INK = "#8C8C8C", "#222222"
DPI = 120
WIDTH = 11.0  # inches


def beside(axes: Axes, text: str, height: float, color: str) -> None:
    """A label right of the axes, at the height of the line it names."""
    axes.text(1.005, height, text, transform=axes.get_yaxis_transform(), va="center", color=color, fontsize=9)
