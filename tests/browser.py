"""Headless Chromium, spoken to over a pipe: what a page says, loads, and looks like."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
WAIT = 60.0


def find_browser():
    """Return the path of a browser of Chromium's kind, or None."""
    given = os.environ.get("BMSVM_BROWSER")
    return given or next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """A page in a browser of its own; events are kept in the order they came."""

    def __init__(self, command):
        self._number, self._rest, self.events = 0, b"", []
        to_read, self._out = os.pipe()
        self._in, to_write = os.pipe()
        # The browser reads from descriptor 3 and writes to 4.
        script = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", *command],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    _session = None

    def send(self, method, **parameters):
        """Call a method of the browser's protocol and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _next(self):
        end = time.monotonic() + WAIT
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            part = os.read(self._in, 2**20)
            assert part, "the browser has ended"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def open(self, url, *, width, height, dark=False, phone=False):
        """Load a page at a size and in a colour scheme; forget what was said before."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1}
        self.send("Emulation.setDeviceMetricsOverride", **size, mobile=phone)
        self.events = []
        self.send("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def evaluate(self, expression):
        """Return the value of a JavaScript expression."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        return found["result"].get("value")

    def complaints(self):
        """Return what the console and the log were told."""
        told = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [event for event in self.events if event.get("method") in told]

    def requests(self):
        """Return the addresses that were asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def screenshot(self, path):
        """Save a picture of the whole page."""
        found = self.send("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def close(self):
        """End the browser that was started here."""
        with contextlib.suppress(OSError):
            os.close(self._out)
        with contextlib.suppress(OSError):
            os.close(self._in)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def browser(path, profile):
    """Start a browser with an empty profile."""
    options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe")
    options += ("--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run")
    page = Page([path, *options, f"--user-data-dir={profile}"])
    try:
        yield page
    finally:
        page.close()
