"""The page of `varve study` in a real browser: it renders, says what the JSON says, and loads nothing.

VARVE_SCREENSHOTS names a folder that screenshots are to be put into (light, dark, print), for people to look at.
"""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import browser

PROGRAM = os.environ.get("VARVE_PROGRAM", "varve")
HAS_HDF5 = os.environ.get("VARVE_WITH_HDF5", "1") == "1"
HAS_CHARTS = os.environ.get("VARVE_WITH_CHARTS", "1") == "1"
SAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "sample" / "implosion"
READY = "typeof window.varveStudy === 'object'"
SECTIONS = ("contents", "dedup", "changes", "compression", "time", "advice")


def size(count):
    """As the page writes sizes."""
    if count < 1024:
        return f"{round(count)} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1024:
            break
    return f"{count:.0f} {unit}" if count >= 100 else f"{count:.1f} {unit}" if count >= 10 else f"{count:.2f} {unit}"


@unittest.skipUnless(browser.find_browser(), "no Chromium here (Debian: chromium)")
@unittest.skipUnless(HAS_CHARTS, "built without the charting library, so there are no pages")
@unittest.skipUnless(HAS_HDF5, "built without HDF5, which the sample is written in")
class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="varve-page-"))
        cls.addClassCleanup(shutil.rmtree, cls.work, ignore_errors=True)
        # A name that would end the script that holds the data, were it not escaped.
        series = cls.work / "series"
        shutil.copytree(SAMPLE, series)
        for folder in series.iterdir():
            (folder / "hostile <").mkdir()
            (folder / "hostile <" / "script><img src=x onerror=alert(1)>&amp;").write_bytes(os.urandom(70_000))
        page = cls.work / "study.html"
        out = subprocess.run([PROGRAM, "study", series, "--output", page, "--json"], check=True, stdout=subprocess.PIPE)
        cls.study = json.loads(out.stdout)
        cls.browser = browser.Browser()
        cls.browser.__enter__()
        cls.addClassCleanup(cls.browser.__exit__)
        cls.browser.open(page, READY)

    def text_of(self, selector):
        return self.browser.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")

    def test_renders_all_sections(self):
        for section in SECTIONS:
            self.assertGreater(len(self.text_of(f"#{section}")), 200, section)
        drawn = self.browser.evaluate("[...document.querySelectorAll('.chart')].map((place) => place.querySelectorAll('svg path').length)")
        self.assertGreaterEqual(len(drawn), 11)
        for paths in drawn:
            self.assertGreater(paths, 3)

    def test_has_the_data_of_the_json(self):
        self.assertEqual(self.browser.evaluate("window.varveStudy.study"), self.study)

    def test_says_the_numbers_of_the_json(self):
        study = self.study
        self.assertIn(size(study["raw_bytes"]), self.text_of("#subject"))
        contents = self.text_of("#contents table")
        for of_set in study["contents"]["sets"]:
            self.assertIn(of_set["label"], contents)
            self.assertIn(size(of_set["bytes"]), contents)
        dedup = self.text_of("#dedup table")
        for method in study["dedup"]["methods"]:
            total = method["total"]["both"]
            self.assertIn(size(total["unique_bytes"]["value"]), dedup)
            left = 100 * total["unique_bytes"]["value"] / total["bytes"]
            self.assertIn(f"{left:.1f} %", dedup)
        compression = self.text_of("#compression")
        for point in study["compression"]["methods"]:
            self.assertIn(f"{point['ratio']['value']:.2f}×", compression)
        for trial in study["advice"]["trials"]:
            self.assertIn(size(trial["stored_bytes"]["value"]), self.text_of("#advice"))
        self.assertEqual(self.text_of("#options-file").strip(), study["advice"]["options_file"].strip())
        for configuration in study["timing"]["configurations"]:
            self.assertIn(configuration["name"], self.text_of("#time table"))

    def test_draws_the_numbers_of_the_json(self):
        titles = self.browser.evaluate("window.varveStudy.charts.map((chart) => chart.title)")
        drawn = self.browser.evaluate(
            f"window.varveStudy.charts[{titles.index('Left of the bytes')}].instance.getOption().series.map((each) => each.data)")
        for series, scope in zip(drawn, ("within", "ranks", "sets", "both")):
            for value, method in zip(series, self.study["dedup"]["methods"]):
                total = method["total"][scope]
                self.assertAlmostEqual(value, total["unique_bytes"]["value"] / total["bytes"])

    def test_names_the_variable_under_the_cursor(self):
        changes = self.study["changes"]
        self.browser.evaluate("document.querySelector('#changes canvas').scrollIntoView({behavior: 'instant', block: 'center'})")
        count = len(changes["cell_changes"])
        seen = set()
        for cell in (0, count // 3, count // 2, count - 1):
            x, y = self.browser.evaluate(
                "(() => { const {canvas, side, pointOf} = window.varveStudy.heatMap, box = canvas.getBoundingClientRect();"
                f"const [x, y] = pointOf({cell}); return [box.left + (x + 0.5) / side * box.width, box.top + (y + 0.5) / side * box.height]; }})()")
            self.browser.move_mouse(x, y)
            label = changes["labels"][changes["cell_labels"][cell]]
            said = self.text_of("#changes .under")
            self.assertIn(label, said)
            self.assertIn(f"changed {changes['cell_changes'][cell]:.2f} of", said)
            seen.add(label)
        self.assertGreater(len(seen), 1)
        self.assertTrue(any("/" in label.split(": ")[-1] for label in seen), seen)

    def test_colours_the_heat_map_by_the_changes(self):
        changes = self.study["changes"]
        for wanted, colour in ((0, [0x44, 0x01, 0x54]), (changes["comparisons"], [0xfd, 0xe7, 0x25])):
            cell = changes["cell_changes"].index(wanted)
            self.assertEqual(colour, self.browser.evaluate(
                "(() => { const {canvas, pointOf} = window.varveStudy.heatMap;"
                f"return [...canvas.getContext('2d').getImageData(...pointOf({cell}), 1, 1).data].slice(0, 3); }})()"))

    def test_shows_another_choice(self):
        select = "document.querySelector('#compression select')"
        self.browser.evaluate(f"{select}.value = 'agnostic'; {select}.dispatchEvent(new Event('change'))")
        drawn = self.browser.evaluate("window.varveStudy.charts.find((chart) => chart.title.startsWith('Single')).instance.getOption().series[0].data")
        wanted = [point["ratio"]["value"] for point in self.study["compression"]["methods"]
                  if point["scheme"] == "agnostic" and point["passes"] == 1]
        self.assertEqual([round(value, 6) for value in drawn], [round(value, 6) for value in wanted])

    def test_is_drawn_in_the_dark_and_for_print(self):
        folder = os.environ.get("VARVE_SCREENSHOTS")
        background = "getComputedStyle(document.body).backgroundColor"
        axis = "window.varveStudy.charts[0].instance.getOption().xAxis[0].axisLabel.color"
        looks = {}
        for name, kind, scheme in (("light", "", "light"), ("dark", "", "dark"), ("print", "print", "dark")):
            self.browser.media(kind, scheme)
            looks[name] = self.browser.evaluate(f"new Promise((done) => setTimeout(() => done([{background}, {axis}]), 300))")
            if folder:
                self.browser.screenshot(pathlib.Path(folder) / f"{name}.png")
        self.browser.media()
        self.assertNotEqual(looks["light"], looks["dark"])
        self.assertEqual(looks["print"], ["rgb(255, 255, 255)", looks["light"][1]])

    def test_zz_complains_of_nothing_and_loads_nothing(self):
        self.assertEqual(self.browser.complaints(), [])
        self.assertEqual([url for url in self.browser.requests() if not url.startswith(("file:///", "data:", "about:"))], [])
        self.assertEqual(len([url for url in self.browser.requests() if url.startswith("file:///")]), 1)


if __name__ == "__main__":
    unittest.main()
