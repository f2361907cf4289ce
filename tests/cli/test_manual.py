"""Manual pages, and what shells complete."""

import re
import shutil
import subprocess
import tempfile
import unittest

from support import PROGRAM


def say(*arguments):
    return subprocess.run([PROGRAM, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def shell(name, script):
    """What the shell prints that runs the script; skips the test where there is no such shell."""
    if shutil.which(name) is None:
        raise unittest.SkipTest(f"no {name}")
    done = subprocess.run([name, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0 or done.stderr:
        raise AssertionError(f"{name}: {done.stderr}")
    return done.stdout.split()


def commands():
    text = say("help").split("\nCommands:\n")[1].split("\n\n")[0]
    return re.findall(r"^  (\S+)", text, re.MULTILINE)


class ManualPages(unittest.TestCase):
    def test_are_there_for_every_command_and_well_formed(self):
        self.assertIn("save", commands())
        for command in [None, *commands()]:
            page = say("help", "--man", *([command] if command else []))
            with self.subTest(command=command), tempfile.NamedTemporaryFile("w", suffix=".1") as file:
                self.assertTrue(page.startswith(".TH VARVE"))
                if shutil.which("mandoc") is None:
                    continue
                file.write(page)
                file.flush()
                found = subprocess.run(["mandoc", "-T", "lint", "-W", "error", file.name], stdout=subprocess.PIPE, text=True)
                self.assertEqual((found.returncode, found.stdout), (0, ""))

    def test_say_what_the_help_says(self):
        if shutil.which("mandoc") is None:
            self.skipTest("no mandoc")
        text = subprocess.run(["mandoc", "-T", "utf8"], input=say("help", "--man", "save"), check=True, stdout=subprocess.PIPE,
                              text=True).stdout
        words = re.sub(r".\x08", "", text).split()
        for option in re.findall(r"^  (?:-\w,)?(--[a-z0-9-]+)", say("help", "save"), re.MULTILINE):
            self.assertTrue(any(option in word for word in words), option)


class Completion(unittest.TestCase):
    # What is typed, and what may follow.
    TYPED = {"varve sa": ["save"], "varve --store x repa": ["repair"], "varve save --eff": ["--effort"],
             "varve help rest": ["restore"]}

    def test_of_bash(self):
        for typed, wanted in self.TYPED.items():
            words = typed.split()
            script = (f'source <("{PROGRAM}" completion bash); COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _varve; '
                      'echo "${COMPREPLY[@]}"')
            self.assertEqual(shell("bash", script), wanted, typed)

    def test_of_fish(self):
        for typed, wanted in self.TYPED.items():
            script = f'"{PROGRAM}" completion fish | source; complete -C "{typed}"'
            self.assertEqual(shell("fish", script)[:1], wanted, typed)  # and what it means

    def test_of_zsh_can_be_read(self):
        script = f'autoload -U compinit && compinit -D -u; source <("{PROGRAM}" completion zsh); print ${{_comps[varve]}}'
        self.assertEqual(shell("zsh", script), ["_varve"])

    def test_of_another_shell_is_refused(self):
        done = subprocess.run([PROGRAM, "completion", "tcsh"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("bash, zsh and fish", done.stderr)


if __name__ == "__main__":
    unittest.main()
