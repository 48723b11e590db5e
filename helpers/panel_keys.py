"""Keys typed in a panel stay in the panel: the piece of front end that every panel holds."""

from __future__ import annotations

from pathlib import Path

import anywidget


class PanelKeys(anywidget.AnyWidget):
    """An invisible child of a panel; in its text box, Shift+Enter and Ctrl+Enter take the text.

    It keeps JupyterLab's one-letter shortcuts (x cuts the cell) from reacting to keys typed while
    a control of the panel has the focus (the attribute data-lm-suppress-shortcuts does not, seen in
    JupyterLab 4.6), and gives a new line the indentation of the one before.
    """

    _esm = Path(__file__).parent / "static" / "panel_keys.js"
