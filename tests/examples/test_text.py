"""Few lines make a program safe, and the README shows all of them."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MARK = "[varve]"
LINES_MAX = 10


def marked(path):
    """The lines of ours, without the comment that says so. What Python means depends on where a line begins."""
    lines = [line.removesuffix(MARK).rstrip(" /!#") for line in (ROOT / path).read_text().splitlines()
             if re.search(r"\S.*(//|!|#) \[varve\]$", line)]
    return lines if path.endswith(".py") else [line.strip() for line in lines]


class Heat(unittest.TestCase):
    SOURCES = {"cpp": "examples/heat/heat.cpp", "c": "examples/heat/heat.c", "fortran": "examples/heat/heat.f90",
               "python": "examples/heat/heat.py"}

    def test_needs_few_lines(self):
        for source in self.SOURCES.values():
            self.assertGreater(len(marked(source)), 0, source)
            self.assertLessEqual(len(marked(source)), LINES_MAX, source)

    def test_has_a_mark_on_every_line_of_ours(self):
        for source in self.SOURCES.values():
            for line in (ROOT / source).read_text().splitlines():
                code = line.partition({".f90": "!", ".py": "#"}.get(pathlib.Path(source).suffix, "//"))[0]
                if re.search(r"varve|session|CHECK", code):
                    self.assertTrue(line.endswith(MARK), f"{source}: {line}")

    def test_is_shown_by_the_readme(self):
        readme = (ROOT / "README.md").read_text()
        for language, source in self.SOURCES.items():
            blocks = re.findall(rf"^```{language}\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
            self.assertEqual(len(blocks), 1, language)
            self.assertEqual(blocks[0].splitlines(), marked(source))


if __name__ == "__main__":
    unittest.main()
