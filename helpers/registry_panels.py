"""A panel to browse torch's list of graph breaks: search, choose an entry, read its repair."""

from __future__ import annotations

import html
from typing import Any

import ipywidgets

from helpers.break_registry import Entry, entry_html, registry_view
from helpers.display import wrap
from helpers.panel_keys import PanelKeys

# Without min-width a wide program would stretch the panel past the edge.
_STYLE = (
    "<style>.tcs-controls .widget-html-content{min-width:0}"
    ".tcs-results{flex-direction:column;align-items:flex-start;width:100%;max-width:860px}"
    ".tcs-results .widget-label{width:auto;font-weight:600}"
    ".tcs-results select{width:100%;height:190px}</style>"
)


class RegistryPanel(ipywidgets.VBox):
    """A search box, a check box and a list of results; below, the chosen entry with its repair.

    The list has a fixed height, so that nothing moves while a learner types.
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
        self.entries: tuple[Entry, ...] = ()
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
        self.results.observe(self._choose, names="value")
        self._look()

    def _look(self, _: Any = None) -> None:
        """Lists what the search finds; an entry that was chosen stays chosen if it is there."""
        found = registry_view(self.search.value, self.only.value)
        before = self.chosen
        self.entries = found.shown()
        names = [_name(entry) for entry in self.entries]
        place = self.entries.index(before) if before in self.entries else 0
        said = found.sentence().partition("; the first")[0].removesuffix(".")
        self.status.value = wrap(f'<span role="status">{html.escape(said)}.</span>')
        self.results.unobserve(self._choose, names="value")  # once, when all of it is set
        self.results.options = list(zip(names, range(len(names)), strict=True))
        self.results.value = place if names else None
        self.results.observe(self._choose, names="value")
        self._choose()

    @property
    def chosen(self) -> Entry | None:
        """The entry that is shown, None if the search finds none."""
        place = self.results.value
        return None if place is None else self.entries[place]

    def _choose(self, _: Any = None) -> None:
        entry = self.chosen
        self.pane.value = "" if entry is None else entry_html(entry)


def _name(entry: Entry) -> str:
    mark = " (with our repair)" if entry.gb_id and entry.causes else ""
    return f"{entry.gb_id} {entry.title}{mark}".strip()


def registry_panel(search: str = "") -> RegistryPanel:
    """Returns a panel over the installed torch's list of graph breaks, filtered by `search`.

    It shows what `registry_view` lists for the same words, and of the chosen entry what the
    entry itself shows, so a static view loses nothing but the controls.
    """
    return RegistryPanel(search)
