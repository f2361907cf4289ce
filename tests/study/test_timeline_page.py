"""The page of `varve timeline` in a real browser: it draws, says what the log says, and takes nothing in it for markup."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import browser

PROGRAM = os.environ.get("VARVE_PROGRAM", "varve")
HOSTILE = "</script><img src=x onerror=alert(1)><script>window.hostile = 1</script>"


def events():
    """A run that is killed while a level is away, and one that goes on from it."""
    yield {"event": "open", "run": "a", "at": 1000, "levels": ["memory", "dir:/near", HOSTILE], "ranks": 4, "host": HOSTILE,
           "blocked": {"open": 0.5}}
    yield {"event": "restart", "run": "a", "at": 1001, "blocked": {"restart": 0.25}}
    for step in range(1, 11):
        at = 1000 + 5 * step
        yield {"event": "checkpoint", "run": "a", "at": at + 1, "begin": at, "step": str(step), "bytes": 1 << 20,
               "blocked": {"copy": 0.5, "room": 0.25}}
        yield {"event": "stored", "run": "a", "at": at + 4, "begin": at, "step": str(step), "work_begin": at + 1.5,
               "work_seconds": 2, "bytes": 1 << 20, "stored_bytes": 1 << 18, "encode_seconds": 1, "write_seconds": 0.5}
        yield {"event": "away", "run": "a", "at": at + 4.5, "level": HOSTILE, "step": str(step), "why": HOSTILE}
    yield {"event": "making", "run": "a", "at": 1054.5, "begin": 1054.25, "step": "11"}
    yield {"event": "open", "run": "b", "at": 2000, "levels": ["memory"], "ranks": 4, "host": "n1", "blocked": {}}
    yield {"event": "restart", "run": "b", "at": 2001, "step": "10", "from": "dir:/near", "blocked": {"restart": 1}}
    yield {"event": "end", "run": "b", "at": 2010, "blocked": {"end": 0.125}}


@unittest.skipUnless(browser.find_browser(), "no Chromium here (Debian: chromium)")
class TimelinePageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="varve-page-"))
        cls.addClassCleanup(shutil.rmtree, cls.work, ignore_errors=True)
        log, page = cls.work / "heat.timeline", cls.work / "heat.html"
        log.write_text("".join(json.dumps(event) + "\n" for event in events()) + '{"event": "torn')
        subprocess.run([PROGRAM, "timeline", "heat", "--log-file", log, "--output", page], check=True, capture_output=True)
        cls.browser = browser.Browser()
        cls.browser.__enter__()
        cls.addClassCleanup(cls.browser.__exit__)
        # A canvas gets its height when it is drawn, which is a frame later than it is there.
        cls.browser.open(page, "[...document.querySelectorAll('canvas.lanes')].filter((one) => one.style.height).length === 2")

    def text_of(self, selector):
        return self.browser.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")

    def test_says_what_the_log_says(self):
        self.assertIn("heat", self.text_of("#title"))
        self.assertIn("1 lines", self.text_of("#skipped"))
        tiles = self.text_of("#tiles").split()
        self.assertIn("10", tiles)
        self.assertIn("100.0", tiles)
        self.assertIn("went on from step 10, from dir:/near", self.text_of("#runs"))
        self.assertIn("was killed", self.text_of("#runs"))
        self.assertIn("the run was killed while it was made", self.text_of("#runs"))
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('#runs details tbody tr').length"), 11)

    def test_draws_the_lanes(self):
        colours = self.browser.evaluate(
            "(() => { const canvas = document.querySelector('canvas.lanes'), seen = new Set();"
            "const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;"
            "for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255) seen.add([data[i], data[i + 1], data[i + 2]].join());"
            "return [...seen]; })()")
        # Copying, waiting for room, encoding, writing, and a failure.
        for colour in ("0,114,178", "230,159,0", "204,121,167", "213,94,0", "208,2,27"):
            self.assertIn(colour, colours)

    def test_tells_what_is_under_the_cursor(self):
        self.browser.evaluate("document.querySelector('canvas.lanes').scrollIntoView({behavior: 'instant', block: 'center'})")
        box = self.browser.evaluate("(() => { const box = document.querySelector('canvas.lanes').getBoundingClientRect();"
                                    "return [box.left, box.top, box.width]; })()")
        # Lanes begin right of their names: a run of 54.5 seconds, whose first checkpoint is written from 6.5 on.
        x = box[0] + 132 + (box[2] - 132) * 7 / 54.5
        self.browser.move_mouse(x, box[1] + 6 + 30 + 12)
        told = self.text_of(".told")
        self.assertIn("step 1: stored", told)
        self.assertIn("encoding", told)

    def test_takes_nothing_for_markup_and_loads_nothing(self):
        self.assertIsNone(self.browser.evaluate("window.hostile ?? null"))
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('img').length"), 0)
        self.assertIn("onerror", self.text_of("#runs"))
        self.assertEqual(self.browser.complaints(), [])
        loaded = [event["params"]["request"]["url"] for event in self.browser.events
                  if event.get("method") == "Network.requestWillBeSent"]
        self.assertEqual([url for url in loaded if not url.startswith(("file:", "data:"))], [])
        self.assertLessEqual(len([url for url in loaded if url.startswith("file:")]), 1)


if __name__ == "__main__":
    unittest.main()
