"""Plots, one per file, and the pages that show them. Needs plotly."""
