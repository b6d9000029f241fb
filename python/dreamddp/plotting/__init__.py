"""Figures, one per file. Each function takes plain data and returns a plotly figure."""
