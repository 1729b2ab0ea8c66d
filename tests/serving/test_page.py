"""The page, in a real browser: it shows the model, runs it, says what is wrong, in light and dark."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fluidjax.serving.model import ServedModel
from fluidjax.serving.settings import Settings
from tests.serving.at_work import serving

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")


# It reads from 3 and writes to 4.
ON_PIPES = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for end, number in zip(ends, (3, 4)):
    os.dup2(end, number)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """A headless Chromium, spoken to through a pair of pipes."""

    def __init__(self, folder: Path):
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()

        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", ON_PIPES, str(to_browser), str(from_browser), str(BROWSER), *arguments,
              f"--user-data-dir={folder}", "--window-size=1000,1100", "about:blank"],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._number, self._rest, self._session = 0, b"", {}
        targets = self("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = {"sessionId": self("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]}

    def __call__(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters} | self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._number:
                return answer["result"]

    def _message(self):
        while b"\0" not in self._rest:
            part = os.read(self._in, 1 << 20)
            assert part, "the browser is gone"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def value(self, script):
        return self("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def until(self, script):
        deadline = time.monotonic() + 240
        while not self.value(script):
            assert time.monotonic() < deadline, (script, self.value("document.body.innerText"))
            time.sleep(0.02)

    def picture(self):
        return base64.b64decode(self("Page.captureScreenshot")["data"])

    def close(self):
        self._session = {}
        os.write(self._out, b'{"id": 0, "method": "Browser.close"}\0')
        self._process.wait(30)
        os.close(self._out)
        os.close(self._in)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


def text(browser):
    return browser.value("document.body.innerText")


def type_in(browser, index, value):
    browser.value(f"document.getElementById('input{index}').value = {json.dumps(json.dumps(value))}")


def predict(browser):
    browser.value("document.getElementById('results').replaceChildren(); document.getElementById('predict').click()")
    browser.until("!!document.querySelector('#results .card')")


def test_a_person_tries_the_model(browser, client):
    browser("Page.navigate", url=client.server.url)
    browser.until("document.querySelectorAll('#inputs textarea').length == 2")
    assert "float32 [any × 3]" in text(browser) and "int64 [any × 1], a list of sequences" in text(browser)
    type_in(browser, 0, [[1, 2, 3], [0.5, -1, 0]])
    type_in(browser, 1, [[1, 2, 3], [4]])
    predict(browser)
    shown = browser.value("[...document.querySelectorAll('#results tr')].map(row => row.innerText)")
    expected = client.predict({"x": [[1, 2, 3], [0.5, -1, 0]], "w": [[1, 2, 3], [4]]}).json["outputs"]
    numbers = [float(row.split("\t")[1]) for row in shown]
    dense, ragged = (out["data"] for out in expected.values())
    assert numbers == pytest.approx([row[0] for row in (*dense, *ragged)], rel=1e-5)
    assert "LoD [[0,3,4]]" in text(browser)
    assert [row.split("\t")[0] for row in shown[2:]] == ["sequence 0", "", "", "sequence 1"]
    type_in(browser, 1, [[1, 2, 99], [4]])
    predict(browser)
    assert "cannot take the value 99" in text(browser) and "0 <= value < 10" in text(browser)
    browser.value("document.getElementById('random').click()")
    assert browser.value("JSON.parse(document.getElementById('input1').value).map(s => s.length).join()") == "3,2"


def test_light_and_dark_differ_and_nothing_runs_over(browser, client):
    browser("Page.navigate", url=client.server.url)
    browser.until("document.querySelectorAll('#inputs textarea').length == 2")
    grounds = []
    for scheme in ("light", "dark"):
        browser("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        grounds.append(browser.value("getComputedStyle(document.body).backgroundColor"))
        assert browser.picture().startswith(b"\x89PNG")
        assert browser.value("document.documentElement.scrollWidth <= innerWidth")
    assert grounds == ["rgb(251, 251, 250)", "rgb(21, 24, 28)"]


def test_a_token_is_asked_for(browser, folder):
    with serving(ServedModel(folder), Settings(token="sesame", max_batch=1)) as client:
        browser("Page.navigate", url=client.server.url)
        browser.until("!document.getElementById('entry').hidden")
        assert browser.value("document.getElementById('try').hidden")
        browser.value("document.getElementById('token').value = 'sesame'")
        browser.value("document.querySelector('#entry button').click()")
        browser.until("!document.getElementById('try').hidden")
        predict(browser)
        assert "Outputs" in text(browser)
