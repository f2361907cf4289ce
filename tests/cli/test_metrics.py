"""What servers, watchers and stores tell to monitoring, and that Prometheus understands it."""

import os
import re
import shutil
import subprocess
import unittest
import urllib.error
import urllib.request

from mounting import wait_for
from support import NOT_FOUND, SUCCESS, USAGE
from test_watch import WatchTest

HAS_HTTP = os.environ.get("VARVE_WITH_METRICS", "1") == "1"
PROMTOOL = shutil.which("promtool")
# And the next two: below those that connections get, and not those of a run of these tests beside this one.
PORT = 20_000 + 3 * (os.getpid() % 3000)


def values(text):
    """Samples, by name with labels, but for those that say who tells."""
    told = {}
    for line in text.splitlines():
        if line[:1] == "#":
            continue
        name, value = line.rsplit(" ", 1)
        name = re.sub(r'^(varve_(?:watch|server|store)_\w+\{)(?:from|store)="[^"]*",?', r"\1", name)
        told[name.removesuffix("{}")] = float(value)
    return told


class MetricsTest(WatchTest):
    def check(self, text):
        """What Prometheus says of it, if it is installed: nothing."""
        if PROMTOOL is not None:
            checked = subprocess.run([PROMTOOL, "check", "metrics"], input=text.encode(), capture_output=True, check=False)
            self.assertEqual((checked.returncode, checked.stdout, checked.stderr), (0, b"", b""), text)
        for line in text.splitlines():
            self.assertRegex(line, r"^# (HELP|TYPE) varve_\w+ .+$|^varve_\w+(\{.*\})? \S+$")
        return values(text)

    def get(self, url, accept=None):
        request = urllib.request.Request(url, headers={"Accept": accept} if accept else {})
        with urllib.request.urlopen(request, timeout=10) as reply:
            return reply.headers["Content-Type"], reply.read().decode()


class OfAWatcher(MetricsTest):
    def test_are_in_a_file(self):
        file = self.work / "varve.prom"
        watcher = self.watch("--quiet", "0.2", "--metrics", file)
        self.appear(3)
        self.expect(watcher, "saved", "run@3")
        self.end(watcher)
        told = self.check(file.read_text())
        self.assertEqual(told["varve_watch_saved_sets_total"], 1)
        self.assertGreater(told["varve_watch_raw_bytes_total"], told["varve_watch_stored_bytes_total"])
        self.assertGreater(told["varve_watch_newest_timestamp_seconds"], 1.7e9)
        self.assertEqual(told['varve_watch_pending_sets{state="failed"}'], 0)
        self.assertEqual(told["varve_watch_running"], 0, "the file stays, and says that it is over")

    def test_tell_how_far_each_level_is(self):
        file, near, far = self.work / "varve.prom", self.work / "near", self.work / "far"
        watcher = self.watch("--quiet", "0.2", "--metrics", file, "--levels", f"dir:{near}; dir:{far} every=2")
        for step in (1, 2, 3):
            self.appear(step)
            self.expect(watcher, "saved", f"run@{step}")
        far_newest = f'varve_watch_level_newest_step{{job="run",level="dir:{far}"}}'
        self.assertTrue(wait_for(lambda: self.check(file.read_text()).get(far_newest) == 2))
        self.assertEqual(self.check(file.read_text())["varve_watch_running"], 1)
        # Another set that cannot be complete.
        with open(self.write("run/out4/data", b""), "ab") as writer:
            writer.write(bytes(1000))
            writer.flush()
            waiting = 'varve_watch_pending_sets{state="waiting"}'
            self.assertTrue(wait_for(lambda: self.check(file.read_text())[waiting] == 1))
            self.assertTrue(wait_for(lambda: self.check(file.read_text())["varve_watch_pending_bytes"] == 1000))
        self.expect(watcher, "saved", "run@4")
        self.assertTrue(wait_for(lambda: self.check(file.read_text())[f'varve_watch_level_newest_step{{job="run",level="dir:{near}"}}'] == 4))
        self.end(watcher)
        told = self.check(file.read_text())
        self.assertEqual(told[f'varve_watch_level_lag_seconds{{job="run",level="dir:{near}"}}'], 0)
        self.assertGreaterEqual(told[f'varve_watch_level_lag_seconds{{job="run",level="dir:{far}"}}'], 0)
        self.assertGreater(told[f'varve_watch_level_newest_timestamp_seconds{{job="run",level="dir:{near}"}}'], 1.7e9)
        self.assertEqual(told["varve_watch_pending_bytes"], 0)

    def test_of_several_go_into_one_folder(self):
        """node_exporter takes no two samples that are called the same."""
        collected = self.work / "collected"
        collected.mkdir()
        for name in ("a", "b"):
            (self.work / name).mkdir()
            self.varve("watch", self.work / name, "--once", "--metrics", collected / f"{name}.prom")
        lines = [line for file in collected.iterdir() for line in file.read_text().splitlines() if line[:1] != "#"]
        names = [line.rsplit(" ", 1)[0] for line in lines]
        self.assertEqual(len(names), len(set(names)))

    @unittest.skipUnless(HAS_HTTP, "built without HTTP")
    def test_are_served(self):
        watcher = self.watch("--quiet", "0.2", "--metrics", str(PORT))
        self.appear(3)
        self.expect(watcher, "saved", "run@3")
        kind, text = self.get(f"http://127.0.0.1:{PORT}/metrics")
        self.assertTrue(kind.startswith("text/plain; version=0.0.4"), kind)
        self.assertEqual(self.check(text)["varve_watch_saved_sets_total"], 1)
        self.end(watcher)

    def test_go_somewhere(self):
        self.assertIn("metrics go to", self.fails(USAGE, "watch", self.run_folder, "--metrics", "everywhere"))
        self.fails(NOT_FOUND, "watch", self.run_folder, "--metrics", self.work / "none" / "varve.prom")


class OfAServer(MetricsTest):
    @unittest.skipUnless(HAS_HTTP, "built without HTTP")
    def test_are_served_in_both_formats(self):
        server = self.serve_with("--metrics", str(PORT + 1))
        self.write("run/out7/data", os.urandom(100_000))
        self.varve("save", self.work / "run" / "out7", "--store", self.socket)
        self.wait_for_metrics()
        kind, text = self.get(f"http://127.0.0.1:{PORT + 1}/metrics")
        told = self.check(text)
        self.assertGreater(told['varve_server_requests_total{request="create",outcome="done"}'], 0)
        self.assertGreaterEqual(told["varve_server_received_bytes_total"], 0)
        self.assertGreater(told['varve_server_request_seconds_count{request="hello"}'], 0)
        kind, text = self.get(f"http://127.0.0.1:{PORT + 1}/metrics", accept="application/openmetrics-text; version=1.0.0")
        self.assertTrue(kind.startswith("application/openmetrics-text"), kind)
        self.assertTrue(text.endswith("# EOF\n"))
        self.assertIn("# TYPE varve_server_requests counter", text)
        self.assertEqual(told["varve_server_running"], 1)
        for path, data in (("/", None), ("/metrics", b"x")):
            with self.assertRaises(urllib.error.HTTPError):
                urllib.request.urlopen(f"http://127.0.0.1:{PORT + 1}" + path, data=data, timeout=10)
        server.terminate()

    def test_tell_what_its_store_has(self):
        for step in ("1", "2"):
            self.write(f"case/{step}/U", os.urandom(50_000))
            self.varve("save", self.work / "case" / step)
        self.varve("drop", "case@1")
        file = self.work / "server.prom"
        server, _ = self.serve("--metrics", file, listen=f"unix:{self.work}/sock", folder=self.store)
        told = lambda: self.check(file.read_text())
        self.assertTrue(wait_for(lambda: file.exists() and "varve_store_garbage_bytes" in told()))
        facts = told()
        self.assertEqual(facts['varve_store_sets{job="case"}'], 1)
        self.assertEqual(facts['varve_store_newest_step{job="case"}'], 2)
        self.assertGreater(facts['varve_store_newest_timestamp_seconds{job="case"}'], 1.7e9)
        self.assertGreaterEqual(facts["varve_store_arena_bytes"], 100_000)
        self.assertGreaterEqual(facts["varve_store_garbage_bytes"], 50_000)
        self.assertLess(facts["varve_store_garbage_bytes"], 60_000)
        self.assertGreater(facts["varve_store_free_bytes"], 0)
        self.assertEqual(facts["varve_server_running"], 1)
        server.terminate()
        self.assertEqual(server.wait(60), SUCCESS)
        self.assertEqual(told()["varve_server_running"], 0, "the file stays, and says that it is over")

    def serve_with(self, *options):
        self.socket = f"unix:{self.work}/sock"
        server = self.start("serve", "--listen", self.socket, "--dir", self.store, *options)
        self.servers.append(server)
        self.assertIn(b"serving", server.stdout.readline())
        self.assertIn(f"metrics are at http://127.0.0.1:{PORT + 1}/metrics".encode(), server.stdout.readline())
        return server

    def wait_for_metrics(self):
        for _ in range(100):
            text = self.get(f"http://127.0.0.1:{PORT + 1}/metrics")[1]
            if re.search(r'request="create",outcome="done"} [1-9]', text):
                return
            subprocess.run(["sleep", "0.1"], check=True)


class OfAStore(MetricsTest):
    def test_are_written(self):
        for step in ("0.5", "1.5"):
            self.write(f"case/{step}/U", os.urandom(5_000))
            self.varve("save", self.work / "case" / step)
        self.assertEqual(self.varve("stat", "--metrics", self.work / "store.prom"), "")
        told = self.check((self.work / "store.prom").read_text())
        self.assertEqual(told['varve_store_sets{job="case"}'], 2)
        self.assertEqual(told['varve_store_newest_step{job="case"}'], 1.5)
        self.assertGreaterEqual(told["varve_store_arena_bytes"], 10_000)
        self.assertEqual(told["varve_store_damaged_sets"], 0)
        self.assertEqual(told["varve_store_garbage_bytes"], 0)
        self.varve("drop", "case@0.5")
        self.varve("stat", "--metrics", self.work / "store.prom")
        told = self.check((self.work / "store.prom").read_text())
        self.assertGreaterEqual(told["varve_store_garbage_bytes"], 5_000, "what the next prune gives back")


class OfARun(MetricsTest):
    def save(self, place, **changes):
        kept = {key: value for key, value in os.environ.items() if not key.startswith("VARVE_")}
        memory = self.work / "memory"
        memory.mkdir(exist_ok=True)
        subprocess.run([os.environ["VARVE_SAVE_ARRAYS"], self.store, "2", "3"], check=True, cwd=self.work,
                       env={**kept, "VARVE_SHARED_MEMORY": str(memory), "VARVE_METRICS_FILE": str(place), **changes})

    def test_are_in_a_file_that_says_how_it_ended(self):
        file = self.work / "run.prom"
        self.save(file, VARVE_LEVELS=f"memory; dir:{self.store}; dir:{self.work}/far every=2")
        told = self.check(file.read_text())
        self.assertEqual(told['varve_run_running{job="run"}'], 0)
        self.assertEqual(told['varve_run_checkpoints_total{job="run",outcome="persistent"}'], 3)
        self.assertEqual(told['varve_run_newest_step{job="run"}'], 3)
        for level in ("memory", f"dir:{self.store}", f"dir:{self.work}/far"):
            self.assertEqual(told[f'varve_run_level_newest_step{{job="run",level="{level}"}}'], 3)
            self.assertEqual(told[f'varve_run_level_lag_seconds{{job="run",level="{level}"}}'], 0)
            self.assertEqual(told[f'varve_run_level_waiting_sets{{job="run",level="{level}"}}'], 0, level)
        self.assertGreater(told['varve_run_blocked_seconds_total{job="run",cause="store"}'], 0)
        self.assertGreater(told['varve_run_raw_bytes_total{job="run"}'], 0)

    def test_are_called_as_the_job_in_a_folder(self):
        (self.work / "collected").mkdir()
        self.save(self.work / "collected")
        self.assertEqual([file.name for file in (self.work / "collected").iterdir()], ["varve-run.prom"])
        self.check((self.work / "collected" / "varve-run.prom").read_text())

    def test_are_no_reason_to_fail(self):
        self.save(self.work / "nowhere" / "run.prom")
        self.assertEqual(self.facts("list")["sets"][-1]["step"], 3)


class OfTheExamples(unittest.TestCase):
    root = os.path.join(os.path.dirname(__file__), "..", "..")
    alerts = os.path.join(root, "examples", "site", "alerts.yml")

    def told(self):
        told = set()
        for source in ("tools/varve/serve/request_counters.cpp", "tools/varve/serve/server.cpp",
                       "tools/varve/monitor/store_facts.cpp", "tools/varve/monitor/store_monitor.cpp",
                       "tools/varve/cli/serve_command.cpp", "tools/varve/watch/watch_status.cpp",
                       "tools/varve/cli/stat_command.cpp", "src/runtime/run_metrics.cpp"):
            with open(os.path.join(self.root, source), encoding="utf-8") as file:
                told |= {name for name in re.findall(r'"(varve_[a-z_]+)"', file.read())}
        return told

    def test_are_all_told(self):
        """The dashboard and the alarms in examples/site ask for nothing that nobody tells, the guide either."""
        told = self.told()
        for file in ("examples/site/grafana.json", "examples/site/alerts.yml", "docs/GUIDE.md"):
            with open(os.path.join(self.root, file), encoding="utf-8") as text:
                asked = set(re.findall(r"\bvarve_(?:run|watch|server|store)_[a-z_]+", text.read()))
            self.assertEqual({name for name in asked if name not in told and re.sub("_(total|bucket|sum|count)$", "", name) not in told},
                             set(), file)
            self.assertGreater(len(asked), 5)

    def test_are_all_in_the_guide(self):
        with open(os.path.join(self.root, "docs", "GUIDE.md"), encoding="utf-8") as text:
            guide = text.read()
        self.assertEqual({name for name in self.told() if name not in guide}, set())

    @unittest.skipUnless(PROMTOOL, "no promtool here (Debian: prometheus)")
    def test_alarms_are_understood_by_prometheus(self):
        checked = subprocess.run([PROMTOOL, "check", "rules", self.alerts], capture_output=True, text=True, check=False)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)


if __name__ == "__main__":
    unittest.main()
