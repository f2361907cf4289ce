"""`varve top`: what it shows of runs, watchers and servers, and that any terminal will do."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

from support import INTERRUPTED, NOT_FOUND, PROGRAM, SUCCESS, default_signals
from test_metrics import HAS_HTTP, PORT, MetricsTest

RUN = """\
# TYPE varve_run_info gauge
varve_run_info{job="heat",run="ab",store="dir:/near",host="n1",process="4711",rank="0"} 1
varve_run_running{job="heat"} 1
varve_run_ranks{job="heat"} 4
varve_run_start_timestamp_seconds{job="heat"} 1000
varve_run_updated_timestamp_seconds{job="heat"} 1100
varve_run_newest_step{job="heat"} 60
varve_run_queue_bytes{job="heat"} 1024
varve_run_checkpoints_total{job="heat",outcome="persistent"} 5
varve_run_checkpoints_total{job="heat",outcome="failed"} 1
varve_run_blocked_seconds_total{job="heat",cause="copy"} 2
varve_run_blocked_seconds_total{job="heat",cause="room"} 3
varve_run_raw_bytes_total{job="heat"} 1000
varve_run_stored_bytes_total{job="heat"} 250
varve_run_level_newest_step{job="heat",level="dir:/far"} 40
varve_run_level_lag_seconds{job="heat",level="dir:/far"} 12.5
varve_run_level_waiting_sets{job="heat",level="dir:/far"} 2
varve_run_level_failures_total{job="heat",level="dir:/far"} 3
"""


class TopTest(MetricsTest):
    def alone(self, **changes):
        """The environment of a node on which nothing runs."""
        memory = self.work / "memory"
        memory.mkdir(exist_ok=True)
        return self.environment(VARVE_SHARED_MEMORY=str(memory), **changes)

    def top(self, *arguments):
        code, out, err = self.run_program("top", *arguments, environment=self.alone())
        self.assertEqual((code, err), (SUCCESS, ""))
        return out.decode()


class WhatItShows(TopTest):
    def test_is_what_a_run_tells(self):
        self.write("heat.prom", RUN.encode())
        run = self.told("heat.prom")["runs"][0]
        self.assertEqual((run["job"], run["run"], run["host"], run["newest"], run["state"]), ("heat", "ab", "n1", 60, "silent"))
        self.assertEqual((run["blocked_seconds"], run["bytes_per_second"]), (5, 10))
        self.assertEqual(run["checkpoints"], {"persistent": 5, "failed": 1})
        self.assertEqual(run["levels"], [{"level": "dir:/far", "newest": 40, "lag_seconds": 12.5, "waiting": 2,
                                          "failures": 3, "given_up": 0}])
        table = self.top("--once", "--from", "heat.prom")
        for text in ("heat", "dir:/far", "12.5 s", "5.00 s (5.00 %)", "(4.00x)", "1.00 KiB"):
            self.assertIn(text, table)

    def told(self, *places):
        return json.loads(self.top("--json", *(part for place in places for part in ("--from", place))))

    def test_is_of_all_files_of_a_folder(self):
        self.write("all/a.prom", RUN.encode())
        self.write("all/b.prom", RUN.replace('"heat"', '"cold"').encode())
        self.write("all/c.txt", RUN.replace('"heat"', '"no"').encode())
        self.assertEqual([run["job"] for run in self.told("all")["runs"]], ["cold", "heat"])

    def test_is_of_a_node_without_configuration(self):
        memory = self.work / "memory"
        memory.mkdir()
        with open("/proc/self/stat", encoding="utf-8") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        space = os.stat("/proc/self/ns/pid").st_ino
        for name, began in (("lives", ticks), ("died", ticks - 1)):
            text = RUN.replace('"heat"', f'"{name}"').replace("} 1100", f"}} {time.time()}")
            self.write(f"memory/varve-live-0-{name}-{os.getpid()}-{space}-{began}-0.prom", text.encode())
        self.write("memory/varve-live-0-no-such-name.prom", RUN.encode())
        self.assertEqual({run["job"]: run["state"] for run in self.told()["runs"]}, {"lives": "running", "died": "killed"})

    def test_has_watchers(self):
        watcher = self.watch("--quiet", "0.2", "--metrics", self.work / "w.prom")
        self.appear(3)
        self.expect(watcher, "saved", "run@3")
        told = self.told("w.prom")["watchers"][0]
        self.assertEqual((told["from"], told["to"], told["state"], told["saved_sets"], told["newest"]),
                         (str(self.run_folder), str(self.store), "running", 1, "run@3"))
        self.assertIn(str(self.run_folder), self.top("--from", "w.prom"))
        self.end(watcher)
        self.assertEqual(self.told("w.prom")["watchers"][0]["state"], "ended")

    @unittest.skipUnless(HAS_HTTP, "built without HTTP")
    def test_has_servers(self):
        socket = f"unix:{self.work}/sock"
        server = self.start("serve", "--listen", socket, "--dir", self.store, "--metrics", str(PORT + 2),
                            environment=self.alone())
        self.servers.append(server)
        self.assertIn(b"serving", server.stdout.readline())
        server.stdout.readline()
        for place in (str(PORT + 2), f"127.0.0.1:{PORT + 2}", f"http://127.0.0.1:{PORT + 2}/metrics"):
            self.assertEqual(len(self.told(place)["servers"]), 1, place)
        # It is seen without that, too.
        told = self.told()["servers"]
        self.assertEqual([(one["address"], one["store"], one["state"]) for one in told],
                         [(socket, str(self.store), "running")])
        server.terminate()
        server.wait(60)
        self.assertEqual(self.told()["servers"], [])

    def test_is_whatever_makes_sense(self):
        self.write("bad.prom", b"\x00\xff{{{\nvarve_run_info{job=\"\x1b[2J\"} 1\nvarve_run_newest_step{job=\"x\"} NaN\n" + b"a" * 100_000)
        table = self.top("--once", "--from", "bad.prom")
        self.assertNotIn("\x1b", table)

    def test_says_what_cannot_be_read(self):
        code, out, _ = self.run_program("top", "--once", "--from", self.work / "none.prom")
        self.assertEqual(code, NOT_FOUND)
        self.assertIn(b"cannot be read", out)
        self.write("heat.prom", RUN.encode())
        told = self.told("heat.prom", self.work / "none.prom")
        self.assertEqual((len(told["runs"]), len(told["unread"])), (1, 1))

    def test_is_nothing_where_nothing_is(self):
        self.assertEqual(self.told()["runs"], [])
        self.assertIn("no runs", self.top())


class OnATerminal(TopTest):
    def setUp(self):
        super().setUp()
        self.write("heat.prom", RUN.encode())
        self.terminal, slave = pty.openpty()
        self.resize(10, 60)

        def own_terminal():
            default_signals()
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen([PROGRAM, "top", "--from", "heat.prom", "--interval", "1h"], stdin=slave,
                                        stdout=slave, stderr=subprocess.PIPE, cwd=self.work, env=self.alone(),
                                        preexec_fn=own_terminal)
        os.close(slave)
        self.addCleanup(self.process.stderr.close)
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.kill)

    def resize(self, rows, columns):
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_until(self, *signs):
        seen = b""
        while not all(sign in seen for sign in signs):
            ready, _, _ = select.select([self.terminal], [], [], 60)
            self.assertTrue(ready, seen)
            seen += os.read(self.terminal, 65536)
        return seen

    def test_it_draws_and_ends_by_a_key(self):
        self.assertIn(b"\x1b[?1049h", self.read_until(b"heat", b"dir:/far", b"\x1b[J"))
        os.write(self.terminal, b"q")
        self.assertIn(b"\x1b[?1049l", self.read_until(b"\x1b[?1049l"))
        self.assertEqual(self.process.wait(60), SUCCESS)

    def test_it_draws_anew_when_the_window_is_resized(self):
        self.read_until(b"dir:/far", b"\x1b[J")
        self.resize(4, 9)
        frame = self.read_until(b"\x1b[J")
        lines = frame.replace(b"\x1b[H", b"").replace(b"\x1b[J", b"").replace(b"\x1b[K", b"").replace(b"\r", b"").split(b"\n")
        self.assertLessEqual(len(lines), 4)
        for line in lines:
            self.assertLessEqual(len(line.decode(errors="replace")), 9, frame)
        os.write(self.terminal, b"q")
        self.assertEqual(self.process.wait(60), SUCCESS)

    def test_it_ends_by_a_signal_and_puts_the_terminal_right(self):
        self.read_until(b"dir:/far", b"\x1b[J")
        before = termios.tcgetattr(self.terminal)[3]
        self.assertFalse(before & termios.ECHO)
        self.process.send_signal(signal.SIGTERM)
        self.read_until(b"\x1b[?1049l")
        self.assertEqual(self.process.wait(60), INTERRUPTED)
        self.assertTrue(termios.tcgetattr(self.terminal)[3] & termios.ECHO)

    def test_it_gives_the_terminal_back_while_it_is_stopped(self):
        self.read_until(b"dir:/far", b"\x1b[J")
        self.process.send_signal(signal.SIGTSTP)
        self.read_until(b"\x1b[?1049l")
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        self.assertTrue(os.WIFSTOPPED(status))
        self.assertTrue(termios.tcgetattr(self.terminal)[3] & termios.ECHO)
        self.process.send_signal(signal.SIGCONT)
        self.read_until(b"\x1b[?1049h", b"dir:/far", b"\x1b[J")
        os.write(self.terminal, b"q")
        self.assertEqual(self.process.wait(60), SUCCESS)

    def test_it_ends_with_its_terminal(self):
        self.read_until(b"dir:/far", b"\x1b[J")
        os.close(self.terminal)
        self.assertEqual(self.process.wait(60), INTERRUPTED)


del MetricsTest  # its own tests are in test_metrics

if __name__ == "__main__":
    unittest.main()
