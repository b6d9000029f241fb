"""A grid of small plots with common axes."""

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

_MOST_COLUMNS = 3
_ROW_HEIGHT = 360  # pixels


def facet_grid(titles: Sequence[str]) -> go.Figure:
    """One plot per title, row by row; all share the y axis."""
    columns = min(len(titles), _MOST_COLUMNS)
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


def facet_position(index: int) -> dict[str, int]:
    """Of the plot with that index, for a grid of at least one full row."""
    return {"row": index // _MOST_COLUMNS + 1, "col": index % _MOST_COLUMNS + 1}
