"""Pages of plots in one file that needs no network: plotly.js is inlined once."""

import html
import os
from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
from plotly.io import to_html
from plotly.offline import get_plotlyjs

from dreamddp._core import write_text_file

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; }
body { max-width: 1200px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { padding: .25rem .75rem; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap; }
th { white-space: normal; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; }
"""


@dataclass(frozen=True, kw_only=True)
class Table:
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, paragraphs of plain text, and what is to be seen."""

    heading: str
    paragraphs: Sequence[str] = ()
    content: go.Figure | Table | None = None


def write_page(path: str | os.PathLike[str], title: str, sections: Sequence[Section]) -> None:
    """OSError where the file cannot be written."""
    body = "\n".join(
        _section_html(section, f"section-{number}") for number, section in enumerate(sections, 1)
    )
    scripts = f"<script>{get_plotlyjs()}</script>" if "plotly-graph-div" in body else ""
    write_text_file(
        path,
        "<!DOCTYPE html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style>{scripts}</head>\n"
        f"<body><h1>{html.escape(title)}</h1>\n{body}\n</body></html>\n",
    )


def _section_html(section: Section, name: str) -> str:
    parts = [f"<h2>{html.escape(section.heading)}</h2>"]
    parts += [f"<p>{html.escape(text)}</p>" for text in section.paragraphs]
    if isinstance(section.content, Table):
        parts.append(_table_html(section.content))
    elif section.content is not None:
        parts.append(
            to_html(
                section.content,
                include_plotlyjs=False,
                full_html=False,
                div_id=name,  # else random: the same content gives the same page
                config={"displaylogo": False, "responsive": True},
            )
        )
    return "\n".join(parts)


def _table_html(table: Table) -> str:
    head = "".join(f"<th>{html.escape(column)}</th>" for column in table.columns)
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>"
