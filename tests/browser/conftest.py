"""A real JupyterLab with its token, in a real headless Chromium."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "runs" / "browser"
CHROMIUM_ARGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
# No news dialog over the page; every cell is in the page, not only those in sight.
SETTINGS = {"@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"}}
PAGE_CONFIG = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
# What runs in the page: the notebook in front, its kernel's state, its contents.
FRONT = "window.jupyterapp?.shell?.currentWidget"
IDLE = f"() => {FRONT}?.sessionContext?.session?.kernel?.status === 'idle'"
RAN = (
    f"() => {FRONT}.content.widgets.every(c => c.model.type !== 'code' || c.model.executionCount"
    f" || !c.model.sharedModel.source.trim()) && ({IDLE})()"
)


@dataclass(frozen=True)
class Server:
    """A running server: its folder of notebooks, address and token."""

    folder: Path
    url: str
    token: str

    def answers(self, path: str, token: str = "") -> int:
        """Returns the HTTP status for a path, 0 while nobody answers."""
        headers = {"Authorization": f"token {token}"} if token else {}
        request = urllib.request.Request(f"{self.url}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0


def _folders(home: Path) -> dict[str, str]:
    """Returns an environment in which Jupyter reads and writes nothing outside `home`."""
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR",
             "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR")  # fmt: skip
    env = dict(os.environ)
    for name in names:
        folder = home / name.lower()
        folder.mkdir(parents=True)
        env[name] = str(folder)
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    labconfig = Path(env["JUPYTER_CONFIG_DIR"]) / "labconfig"
    labconfig.mkdir()
    (labconfig / "page_config.json").write_text(json.dumps(PAGE_CONFIG))
    for name, value in SETTINGS.items():
        file = Path(env["JUPYTERLAB_SETTINGS_DIR"]) / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value))
    return env


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Starts JupyterLab on a free loopback port; stops it, and its kernels, afterwards."""
    home = tmp_path_factory.mktemp("jupyter")
    my = home / "my"
    my.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = Server(my, f"http://127.0.0.1:{port}", secrets.token_hex(16))
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={my}",
        f"--IdentityProvider.token={found.token}", "--LabApp.expose_app_in_browser=True",
    ]  # fmt: skip
    command += ["--allow-root"] if os.geteuid() == 0 else []
    log = home / "server.log"
    with log.open("w") as stream:
        process = subprocess.Popen(command, env=_folders(home), stdout=stream, stderr=stream)
    try:
        deadline = time.monotonic() + 60
        while found.answers("/api/status", found.token) != 200:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"JupyterLab did not start:\n{log.read_text()[-3000:]}")
            time.sleep(0.2)
        yield found
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=CHROMIUM_ARGS
        )
        yield chromium
        chromium.close()


WIDTH, HEIGHT = 1366, 768  # a laptop's screen


class Notebook:
    """One notebook open in the browser; `page` is Playwright's."""

    def __init__(self, browser: Any, server: Server, name: str) -> None:
        self.page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        self.page.goto(f"{server.url}/lab/tree/{name}?token={server.token}&reset")
        # A kernel that is still starting would lose the first run of cells.
        self.page.wait_for_function(IDLE, timeout=90_000)

    def run_all(self, timeout_s: float = 400) -> None:
        """Runs all cells and waits until each has a count and the kernel is idle again."""
        self.command("notebook:run-all-cells", wait=False)
        self.page.wait_for_function(RAN, timeout=timeout_s * 1000)
        self.page.wait_for_function(IDLE)

    def command(self, name: str, wait: bool = True, **arguments: Any) -> None:
        """Executes one of JupyterLab's commands."""
        call = f"window.jupyterapp.commands.execute({name!r}, {json.dumps(arguments)})"
        self.page.evaluate(f"() => {{ {'return ' if wait else ''}{call} }}")

    def use_theme(self, dark: bool) -> None:
        """Changes JupyterLab's theme and waits until its colours are there."""
        theme = "JupyterLab Dark" if dark else "JupyterLab Light"
        self.command("apputils:change-theme", theme=theme)
        flag = "false" if dark else "true"
        self.page.wait_for_selector(f'body[data-jp-theme-light="{flag}"]', state="attached")
        self.page.wait_for_timeout(500)  # colours fade over

    def contents(self) -> dict[str, Any]:
        """Returns the notebook as JSON, outputs included."""
        found = self.page.evaluate(f"() => {FRONT}.content.model.toJSON()")
        for cell in found["cells"]:
            if cell.get("attachments", {}) is None:  # JSON.stringify would have dropped it
                del cell["attachments"]
        return found

    def errors(self) -> list[str]:
        """Returns the error outputs, as name and value."""
        outputs = [out for cell in self.contents()["cells"] for out in cell.get("outputs", [])]
        return [f"{o['ename']}: {o['evalue']}" for o in outputs if o["output_type"] == "error"]

    def assert_ran(self) -> None:
        """Insists that every cell ran, in order and without an error."""
        assert self.errors() == []
        cells = [cell for cell in self.contents()["cells"] if cell["cell_type"] == "code"]
        assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))

    def type_function(self, text: str) -> None:
        """Replaces a panel's function by keyboard alone: from the next control, back, forward.

        In one piece, as pasted: typed line by line, the panel would indent each line once more.
        """
        self.page.get_by_label("batch", exact=True).focus()
        self.page.keyboard.press("Shift+Tab")
        assert self.page.evaluate("document.activeElement.tagName") == "TEXTAREA"
        self.page.keyboard.press("Control+A")
        self.page.keyboard.insert_text(text)
        self.page.keyboard.press("Tab")

    def assert_accessible(self) -> None:
        """Insists that axe finds no serious fault in the outputs, and that it looked at some."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page, context={"include": [[".jp-OutputArea-output"]]})
        serious = [
            f"{fault['id']}: {node['target']} {node.get('failureSummary', '')}"
            for fault in found.response["violations"]
            if fault["impact"] in ("serious", "critical")
            for node in fault["nodes"]
        ]
        assert serious == []
        assert found.response["passes"], "axe looked at nothing"

    @contextlib.contextmanager
    def at_200_percent(self) -> Iterator[None]:
        """Shows the page as at twice the size, and as before afterwards."""
        self.page.set_viewport_size({"width": WIDTH // 2, "height": HEIGHT // 2})
        try:
            yield
        finally:
            self.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})

    def cut_off(self) -> list[str]:
        """Returns the beginnings of the outputs that are wider than shown and do not scroll."""
        return self.page.evaluate(
            "() => [...document.querySelectorAll('.jp-OutputArea-output')]"
            ".filter(o => o.scrollWidth > o.clientWidth + 1 && getComputedStyle(o).overflowX"
            " === 'hidden').map(o => o.textContent.slice(0, 80))"
        )

    def picture(self, name: str) -> Path:
        """Keeps a screenshot under runs/browser and returns its path."""
        KEPT.mkdir(parents=True, exist_ok=True)
        path = KEPT / f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)}.png"
        self.page.screenshot(path=path)
        return path


@pytest.fixture(scope="session")
def open_notebook(browser: Any, server: Server) -> Any:
    """Returns a function that opens a notebook of the server's folder by name."""
    return lambda name: Notebook(browser, server, name)


@pytest.fixture(scope="module")
def lesson(
    open_notebook: Any, server: Server, request: pytest.FixtureRequest
) -> Iterator[Notebook]:
    """The lesson of a file test_lesson_NN.py, opened and run once for all tests of that file.

    Built without stored outputs: what the tests see was made by their own run.
    """
    from helpers.lesson_notebook import build_notebook, to_text
    from helpers.lessons import choose_lessons

    [found] = choose_lessons([request.module.__name__[-2:]])
    name = f"{found.name}.ipynb"
    (server.folder / name).write_text(to_text(build_notebook(found)), encoding="utf-8")
    notebook = open_notebook(name)
    notebook.run_all()
    yield notebook
    notebook.page.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
    """Keeps what the browser showed when a test failed."""
    report = yield
    notebook = getattr(item, "funcargs", {}).get("lesson")
    if report.failed and isinstance(notebook, Notebook):
        print(f"screenshot: {notebook.picture('failed_' + item.name).relative_to(ROOT)}")
    return report
