"""A real headless Chromium, driven over WebDriver's own HTTP: no library needed."""

import base64
import json
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
CHROMEDRIVER = shutil.which("chromedriver")

_ARGUMENTS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000", "--hide-scrollbars"]


class Browser:
    """One session; every answer's value is returned as it is."""

    def __init__(self, url: str) -> None:
        self._url = url
        options = {"binary": CHROMIUM, "args": _ARGUMENTS}
        logged = {"goog:loggingPrefs": {"browser": "ALL"}}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, **logged}
        made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{made['sessionId']}"

    def open(self, page: Path) -> None:
        """Open a file."""
        self._call("POST", f"{self._session}/url", {"url": page.as_uri()})

    def run(self, script: str, *arguments: object) -> Any:
        """Run a script's body and return what it returns."""
        return self._call("POST", f"{self._session}/execute/sync", {"script": script, "args": list(arguments)})

    def click(self, selector: str) -> None:
        """Click as a person would: at the element's place, by the mouse."""
        self._call("POST", f"{self._session}/element/{self._find(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        """Type into an element."""
        self._call("POST", f"{self._session}/element/{self._find(selector)}/value", {"text": text})

    def hover(self, selector: str) -> None:
        """Move the mouse onto an element."""
        origin = {"element-6066-11e4-a52e-4f735466cecf": self._find(selector)}
        move = {"type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": origin}
        mouse = {"type": "pointer", "id": "mouse", "actions": [move]}
        self._call("POST", f"{self._session}/actions", {"actions": [mouse]})

    def press(self, *keys: str) -> None:
        """Press keys where the focus is."""
        pressed = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._call("POST", f"{self._session}/actions", {"actions": [{"type": "key", "id": "keys", "actions": pressed}]})

    def devtools(self, command: str, **parameters: object) -> Any:
        """Send a command of the DevTools protocol."""
        return self._call("POST", f"{self._session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def complaints(self) -> list[str]:
        """Return the messages in the console."""
        return [str(entry["message"]) for entry in self._call("POST", f"{self._session}/se/log", {"type": "browser"})]

    def screenshot(self) -> bytes:
        """Return a PNG of the visible page."""
        return base64.b64decode(self._call("GET", f"{self._session}/screenshot"))

    def close(self) -> None:
        """End the session."""
        self._call("DELETE", self._session)

    def _find(self, selector: str) -> str:
        found = self._call("POST", f"{self._session}/element", {"using": "css selector", "value": selector})
        return str(next(iter(found.values())))

    def _call(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"}, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{method} {path}: {error.read().decode()[:500]}") from None


@contextmanager
def browser() -> Iterator[Browser]:
    """Start a driver and a session; end both."""
    assert CHROMEDRIVER is not None
    with subprocess.Popen(
        [CHROMEDRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as driver:
        try:
            assert driver.stdout is not None
            port = next(found[1] for line in driver.stdout if (found := re.search(r"successfully on port (\d+)", line)))
            session = Browser(f"http://127.0.0.1:{port}")
            try:
                yield session
            finally:
                session.close()
        finally:
            driver.terminate()
