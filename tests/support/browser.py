"""A headless Chromium, driven over the WebDriver protocol (W3C WebDriver, 2018) with the standard library alone."""
from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE_S = 20.0
ENTER, ESCAPE, DOWN = "\ue007", "\ue00c", "\ue015"
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the member that names an element, by the standard
MISSING = "chromium and chromedriver (Debian: apt-get install chromium chromium-driver) are not installed"


def is_installed() -> bool:
    return all(map(shutil.which, ("chromium", "chromedriver")))


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser with a profile of its own in a folder."""
    driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert driver.stdout is not None
    try:
        line = next(line for line in driver.stdout if "started successfully on port" in line)
        port = int(re.findall(r"\d+", line)[-1])
        session = Browser(f"http://127.0.0.1:{port}", folder)
        try:
            yield session
        finally:
            session.close()
    finally:
        driver.terminate()
        driver.wait()
        driver.stdout.close()


class Browser:
    """One window."""

    def __init__(self, driver: str, folder: Path) -> None:
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                     "--no-first-run", "--disable-background-networking", f"--user-data-dir={folder / 'profile'}"]
        wanted = {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": {"args": arguments},
                                  "goog:loggingPrefs": {"browser": "ALL"}}}
        self._session = driver
        self._session = f"{driver}/session/{self._ask('POST', '/session', capabilities=wanted)['sessionId']}"

    def close(self) -> None:
        self._ask("DELETE", "")

    def open(self, url: str, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        """Open a page in a window of this size."""
        self._cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 700)
        self._cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._ask("POST", "/url", url=url)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns."""
        return self._ask("POST", "/execute/sync", script=script, args=list(arguments))

    def click(self, selector: str) -> None:
        self._ask("POST", f"/element/{self._find(selector)}/click")

    def type(self, selector: str, text: str) -> None:
        """Replace the text of a field, key by key."""
        element = self._find(selector)
        self._ask("POST", f"/element/{element}/clear")
        self._ask("POST", f"/element/{element}/value", text=text)

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, where the focus is."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._ask("POST", "/actions", actions=[{"type": "key", "id": "keys", "actions": actions}])

    def attach(self, selector: str, path: Path) -> None:
        """Choose a file in a field for files."""
        self._ask("POST", f"/element/{self._find(selector)}/value", text=str(path))

    def texts(self, selector: str) -> list[str]:
        """The visible texts of all elements that fit."""
        found: list[str] = self.run("return [...document.querySelectorAll(arguments[0])].filter((each) => each.checkVisibility())"
                                    ".map((each) => each.innerText)", selector)
        return found

    def until(self, is_so: Callable[[], Any]) -> Any:
        """Ask again until it is so; returns what is_so returned."""
        deadline = time.monotonic() + PATIENCE_S
        while not (answer := is_so()):
            assert time.monotonic() < deadline, f"not so within {PATIENCE_S} s; the page shows:\n{self.run('return document.body.innerText')}"
        return answer

    def picture(self, path: Path) -> None:
        """Save what is seen as PNG."""
        path.write_bytes(base64.b64decode(self._ask("GET", "/screenshot")))

    def complaints(self) -> list[str]:
        """What the console has said since the last time: errors of scripts, what the policy of the page forbade."""
        return [entry["message"] for entry in self._ask("POST", "/se/log", type="browser")]

    def _find(self, selector: str) -> str:
        element: str = self._ask("POST", "/element", using="css selector", value=selector)[_ELEMENT]
        return element

    def _cdp(self, command: str, **parameters: Any) -> None:
        self._ask("POST", "/goog/cdp/execute", cmd=command, params=parameters)

    def _ask(self, method: str, path: str, **members: Any) -> Any:
        body = json.dumps(members).encode() if method == "POST" else None
        request = urllib.request.Request(self._session + path, body, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from None
