"""A grid of small plots with common axes."""

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

_ROW_HEIGHT = 360  # pixels


def facet_grid(titles: Sequence[str]) -> go.Figure:
    """One plot per title, row by row; all share the y axis."""
    columns = _num_columns(len(titles))
    rows = -(-len(titles) // columns)
    figure = make_subplots(
        rows=rows,
        cols=columns,
        subplot_titles=titles,
        shared_yaxes="all",
        horizontal_spacing=0.03,
        vertical_spacing=0.25 / rows,
    )
    figure.update_layout(height=_ROW_HEIGHT * rows + 100)
    return figure


def facet_positions(num_plots: int) -> list[dict[str, int]]:
    """Row and column of each plot of a grid, for plotly."""
    columns = _num_columns(num_plots)
    return [{"row": index // columns + 1, "col": index % columns + 1} for index in range(num_plots)]


def _num_columns(num_plots: int) -> int:
    return 2 if num_plots == 4 else min(num_plots, 3)
