"""A panel to browse torch's list of graph breaks: search, choose an entry, read its repair."""

from __future__ import annotations

import html
from typing import Any

import ipywidgets
import torch

from helpers.break_registry import Entry, Registry, registry_view
from helpers.display import sentence_html, wrap
from helpers.panel_keys import PanelKeys
from helpers.registry_views import entry_html

# Without min-width a wide program would stretch the panel past the edge. The heights are fixed, and
# smaller in a small window: nothing below moves when the result changes.
_STYLE = (
    "<style>.tcs-controls .widget-html-content{min-width:0}"
    ".tcs-results{flex-direction:column;align-items:flex-start;width:calc(100% - 4px);"
    "max-width:860px}"
    ".tcs-results .widget-label{width:auto;font-weight:600}"
    ".tcs-controls .tcs-results select{width:100%;min-width:0;height:min(150px,40vh);"
    "margin:2px 0;box-sizing:border-box}"
    ".tcs-found>div{min-height:1.5em}"
    "@media(max-width:900px){.tcs-found>div{min-height:3em}}"
    ".tcs-chosen{height:min(350px,62vh);max-width:860px;overflow:auto;box-sizing:border-box;"
    "border:1px solid var(--jp-border-color1,#c4c9d0);border-radius:4px;padding:2px 12px}</style>"
)


class RegistryPanel(ipywidgets.VBox):
    """A search box, a check box and a list of results; below, the chosen entry with its repair.

    List and entry have fixed heights and scroll, so that nothing moves while a learner types.
    """

    def __init__(self, search: str) -> None:
        wide, auto = ipywidgets.Layout(width="420px", max_width="100%"), {"width": "auto"}
        self.search = ipywidgets.Text(
            search,
            description="Search",
            placeholder="words, or an id such as GB0059",
            layout=wide,
            style={"description_width": "initial"},
        )
        self.only = ipywidgets.Checkbox(
            False, description="only those with our repairs", indent=False, layout=auto
        )
        self.results = ipywidgets.Select(description="Kinds of graph break", options=[])
        self.results.add_class("tcs-results")
        self.status, self.pane = ipywidgets.HTML(), ipywidgets.HTML()
        self.status.add_class("tcs-found")
        self.entries: tuple[Entry, ...] = ()
        self.picked: Entry | None = None
        row = ipywidgets.HBox(
            [self.search, self.only],
            layout=ipywidgets.Layout(flex_flow="row wrap", grid_gap="2px 16px"),
        )
        super().__init__(
            [
                ipywidgets.HTML(_STYLE),
                row,
                self.status,
                self.results,
                self.pane,
                PanelKeys(),
            ]
        )
        self.add_class("tcs-controls")
        self.search.observe(self._look, names="value")
        self.only.observe(self._look, names="value")
        self.results.observe(self._pick, names="value")
        self._look()

    def _look(self, _: Any = None) -> None:
        """Lists what the search finds; an entry that the learner picked stays chosen if there."""
        found = registry_view(self.search.value, self.only.value)
        self.entries = found.shown()
        names = [_name(entry) for entry in self.entries]
        place = self.entries.index(self.picked) if self.picked in self.entries else 0
        self.status.value = wrap(f'<div role="status">{html.escape(_said(found))}</div>')
        self.results.unobserve(self._pick, names="value")  # not the learner's choice
        self.results.options = list(zip(names, range(len(names)), strict=True))
        self.results.value = place if names else None
        self.results.observe(self._pick, names="value")
        self._show()

    @property
    def chosen(self) -> Entry | None:
        """The entry that is shown, None if the search finds none."""
        place = self.results.value
        return None if place is None else self.entries[place]

    def _pick(self, _: Any = None) -> None:
        self.picked = self.chosen
        self._show()

    def _show(self) -> None:
        entry = self.chosen
        inner = sentence_html("Nothing to show.") if entry is None else entry_html(entry)
        # What scrolls must be reachable by keyboard, and then needs a name.
        self.pane.value = (
            '<div class="tcs-chosen" role="region" tabindex="0" aria-label="the chosen kind of '
            f'graph break">{inner}</div>'
        )


def _said(found: Registry) -> str:
    """Returns in a short sentence how much was found, and what to do if it is nothing."""
    shown = found.shown()
    if not shown:
        return "Nothing found: try fewer words, or other ones."
    if found.missing:
        return f"{found.missing} Our own causes with repairs: {len(shown)}."
    all_ = len(registry_view())
    repairs = sum(bool(entry.causes) for entry in shown)
    few = f"{len(shown)} of {all_}" if len(shown) < all_ else str(all_)
    return f"{few} kinds in torch {torch.__version__.split('+')[0]}; {repairs} with our repairs."


def _name(entry: Entry) -> str:
    mark = " (with our repair)" if entry.gb_id and entry.causes else ""
    return f"{entry.gb_id} {entry.title}{mark}".strip()


def registry_panel(search: str = "") -> RegistryPanel:
    """Returns a panel over the installed torch's list of graph breaks, filtered by `search`.

    It shows what `registry_view` lists for the same words, and of the chosen entry what the
    entry itself shows, so a static view loses nothing but the controls.
    """
    return RegistryPanel(search)
