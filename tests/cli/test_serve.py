"""A store on a server is as good as a folder, also when the server is killed."""

import json
import os
import random
import select
import signal
import socket
import threading
import time
import unittest

from serving import HAS_TLS, KINDS, LevelsTest, ServeTest
from support import FAILURE, HAS_TOML, NIGHTLY, NOT_FOUND, SAMPLE, SUCCESS, USAGE, compressible_bytes

KILLS = 60 if NIGHTLY else 4  # of each kind of level


class EverythingWorks(ServeTest):
    def do_everything(self):
        """All that works on a folder, and the folder is what it would have been."""
        first = self.varve("save", SAMPLE / "DD0005")
        self.varve("save", SAMPLE / "DD0006")
        self.assertIn("known", first)
        again = self.facts("save", SAMPLE / "DD0006", "--job", "again", "--step", "6")
        self.assertEqual(again["record"]["new_bytes"], 0, "the server knows all chunks")
        self.assertEqual(len(self.facts("list")["sets"]), 3)
        self.assert_restores("implosion@5", SAMPLE / "DD0005")
        self.assert_restores("implosion@6", SAMPLE / "DD0006")
        self.assert_whole()
        self.varve("diff", "implosion@5", "implosion@6")
        self.varve("show", "implosion@6")
        self.varve("stat")
        self.varve("drop", "implosion@5")
        self.varve("prune")
        self.assert_whole()
        self.assert_restores("again@6", SAMPLE / "DD0006")

    def check_folder(self):
        """What is left in the served folder is a store like any other."""
        self.use(self.folder)
        self.assert_whole()
        self.assert_restores("implosion@6", SAMPLE / "DD0006")
        self.assertEqual(list((self.folder / "writers").iterdir()), [])
        self.assertEqual(list((self.folder / "arenas").glob("*.part")), [])

    def test_over_a_unix_socket(self):
        server, place = self.serve()
        self.use(place)
        self.do_everything()
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(timeout=20), SUCCESS)
        self.assertFalse(os.path.exists(self.work / "socket"))
        self.check_folder()

    def test_says_what_it_does_in_the_log_that_is_asked_for(self):
        for form in ("json", "logfmt"):
            server = self.start("serve", "--listen", self.socket, "--dir", self.folder, "--metrics", self.work / "s.prom",
                                "--log", form)
            self.servers.append(server)
            is_new = form == "json"  # the first of them makes the store
            lines = [server.stderr.readline().decode() for _ in range(3 if is_new else 2)]
            if form == "json":
                told = [json.loads(line) for line in lines]
                self.assertEqual([(one["level"], one["event"]) for one in told],
                                 [("info", "serving"), ("info", "made"), ("info", "metrics")])
                self.assertEqual((told[0]["address"], told[0]["store"]), (self.socket, str(self.folder)))
                self.assertIn("time", told[0])
            else:
                self.assertRegex(lines[0], r'^time=\S+ level=info msg="serving .* at unix:.*" event=serving store=\S+ address=unix:\S+\n$')
            server.send_signal(signal.SIGTERM)
            self.assertEqual(server.wait(timeout=20), SUCCESS)
            self.assertEqual(server.stdout.read(), b"")

    @unittest.skipUnless(HAS_TLS, "a build without TLS")
    def test_over_tcp(self):
        self.varve("serve", "--new-key", self.key)
        server, place = self.serve("--key-file", self.key, listen="tcp://127.0.0.1:0")
        self.use(place, self.key)
        self.do_everything()
        server.send_signal(signal.SIGINT)
        self.assertEqual(server.wait(timeout=20), SUCCESS)
        self.check_folder()

    @unittest.skipUnless(HAS_TLS and HAS_TOML, "a build without TLS or TOML")
    def test_with_a_key_that_the_options_file_names(self):
        self.varve("serve", "--new-key", self.key)
        _, place = self.serve("--key-file", self.key, listen="tcp://127.0.0.1:0")
        self.write("varve.toml", f'store = "{place}"\nkey_file = "{self.key}"\n'.encode())
        self.use("")
        self.varve("save", SAMPLE / "DD0005")
        self.assertEqual([record["name"] for record in self.facts("list")["sets"]], ["implosion@5"])
        (self.work / "varve.toml").unlink()
        self.assertIn("key", self.fails(USAGE, "list", "--store", place))

    def test_stores_the_same_as_a_folder(self):
        _, place = self.serve()
        stored = []
        for store in (self.store, place):
            self.use(store)
            for step in (5, 6, 7):
                self.varve("save", SAMPLE / f"DD000{step}")
            stored.append([(record["name"], record["new_bytes"]) for record in self.facts("list")["sets"]])
        self.assertEqual(stored[0], stored[1])

    def test_push_and_pull_between_places(self):
        _, place = self.serve()
        self.varve("save", SAMPLE / "DD0005")
        self.varve("push", "implosion@5", "--to", place)
        self.varve("drop", "implosion@5")
        self.varve("prune")
        self.varve("pull", "implosion@5", "--from", place)
        self.assert_restores("implosion@5", SAMPLE / "DD0005")

    def test_the_server_copies_to_its_next_level(self):
        self.varve("save", SAMPLE / "DD0006")
        _, place = self.serve("--next", self.store)
        self.use(place)
        self.varve("save", SAMPLE / "DD0005")
        pushed = self.facts("push", "implosion@5", "--to", "next")["sets"][0]
        self.assertFalse(pushed["was_there"])
        self.assertGreater(pushed["sent_packs"], 0)
        self.varve("pull", "implosion@6", "--from", "next")
        self.assert_restores("implosion@6", SAMPLE / "DD0006")
        self.assertIn("is in", self.varve("push", "implosion@5", "--to", "next"))
        self.fails(NOT_FOUND, "push", "nothing@1", "--to", "next")
        self.use(self.store)
        self.assert_restores("implosion@5", SAMPLE / "DD0005")

    def test_init_makes_no_second_store(self):
        _, place = self.serve()
        self.assertIn("a store already", self.fails(5, "init", place))


class WrongUse(ServeTest):
    def test_the_folder_that_it_makes_is_for_its_user_alone(self):
        self.serve()
        self.assertEqual(os.stat(self.folder).st_mode & 0o777, 0o700)

    def test_is_told(self):
        self.fails(USAGE, "serve", "--listen", "unix:x")
        self.fails(USAGE, "serve", "--dir", "x")
        self.fails(USAGE, "serve", "--listen", "x", "--dir", "x")
        self.fails(USAGE, "serve", "--listen", "tcp://127.0.0.1:0", "--dir", self.folder)
        self.fails(USAGE, "list", "--store", "tcp://127.0.0.1:1")
        self.fails(FAILURE, "list", "--store", f"unix:{self.work}/nobody")
        self.write("plain/file")
        self.assertIn("no store here", self.fails(NOT_FOUND, "serve", "--listen", self.socket, "--dir", self.work / "plain"))

    def test_a_key_that_others_can_read_is_refused(self):
        self.varve("serve", "--new-key", self.key)
        self.key.chmod(0o644)
        self.assertIn("chmod 600", self.fails(FAILURE, "serve", "--listen", "tcp://127.0.0.1:0", "--dir", self.folder, "--key-file", self.key))

    @unittest.skipUnless(HAS_TLS, "a build without TLS")
    def test_another_key_opens_nothing(self):
        self.varve("serve", "--new-key", self.key)
        other = self.work / "other"
        self.varve("serve", "--new-key", other)
        _, place = self.serve("--key-file", self.key, listen="tcp://127.0.0.1:0")
        err = self.fails(FAILURE, "list", "--store", place, "--key-file", other)
        self.assertIn("do not share a key", err)
        self.varve("list", "--store", place, "--key-file", self.key)

    @unittest.skipUnless(HAS_TLS, "a build without TLS")
    def test_what_a_key_has_no_right_to_is_refused(self):
        keys = {rights: self.work / rights for rights in ("all", "append", "read")}
        for key in keys.values():
            self.varve("serve", "--new-key", key)
        _, place = self.serve("--key-file", keys["all"], "--append-key-file", keys["append"], "--read-key-file", keys["read"],
                              listen="tcp://127.0.0.1:0")
        def with_key(rights):
            return ("--store", place, "--key-file", keys[rights])
        self.write("run/a", b"text")
        self.varve("save", self.work / "run", "--job", "run", "--step", "1", *with_key("append"))
        self.varve("save", self.work / "run", "--job", "run", "--step", "2", *with_key("append"))
        for rights in ("append", "read"):
            self.varve("list", *with_key(rights))
            self.varve("restore", "run@2", self.work / ("back_" + rights), *with_key(rights))
            self.assertIn("right", self.fails(FAILURE, "drop", "run@1", *with_key(rights)))
        err = self.fails(FAILURE, "save", self.work / "run", "--job", "run", "--step", "3", *with_key("read"))
        self.assertIn("right to read", err)
        self.varve("drop", "run@1", *with_key("all"))


class KilledServers(LevelsTest):
    """Servers are killed and started again while a save runs: the save ends well or fails, and nothing is lost."""

    def setUp(self):
        super().setUp()
        self.write_files(0)

    def write_files(self, seed):
        for rank in range(4):
            self.write(f"large/x.cpu000{rank}", compressible_bytes(4 << 20, seed=seed + rank))

    def save(self, step):
        return ["save", self.work / "large", "--job", "large", "--step", step, "--codec", "store"]

    def test_lose_nothing(self):
        for kind in KINDS:
            if kind != "folder":
                with self.subTest(kind=kind):
                    self.kill_during_saves(self.make_level(kind))

    def kill_during_saves(self, location):
        self.use(location, self.key)
        begin = time.monotonic()
        self.varve(*self.save(0))
        seconds = time.monotonic() - begin
        for step in range(1, KILLS + 1):
            self.write_files(1000 * step)  # other data each time, so that there is something to write
            process = self.start(*self.save(step))
            time.sleep(random.uniform(0, 1.2 * seconds))
            kills = self.restarts[location]
            starts = [kill() for kill in random.sample(kills, random.randint(1, len(kills)))]
            time.sleep(random.uniform(0, 0.2))
            for start in starts:
                start()
            _, err = process.communicate(timeout=200)
            names = [record["name"] for record in self.facts("list")["sets"]]
            if process.returncode == SUCCESS:
                self.assertIn(f"large@{step}", names, err)
            else:
                self.assertNotIn(b"bug", err)
                self.assertTrue(err)
                if f"large@{step}" not in names:
                    self.varve(*self.save(step))
            self.assert_restores(f"large@{step}", self.work / "large")
        self.assert_whole()
        self.varve("prune", "--wait", "0")
        self.assert_whole()

    def test_are_waited_for_by_a_restore(self):
        server, place = self.serve()
        self.use(place)
        self.varve(*self.save(1))
        process = self.start("restore", "large@1", self.work / "back")
        time.sleep(0.02)
        server.kill()
        server.wait()
        time.sleep(0.3)
        self.serve()
        _, err = process.communicate(timeout=100)
        self.assertIn(process.returncode, (SUCCESS, FAILURE), err)
        self.assert_restores("large@1", self.work / "large")


class CuttingProxy:
    """Passes connections on to a server, and cuts each after so many bytes as `budget()` says."""

    def __init__(self, path, target, budget):
        self.target, self.budget = str(target), budget
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(64)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        left = self.budget()
        server = socket.socket(socket.AF_UNIX)
        with client, server:
            try:
                server.connect(self.target)
                while left > 0:
                    for ready in select.select([client, server], [], [])[0]:
                        data = ready.recv(min(left, 1 << 16))
                        if not data:
                            return
                        left -= len(data)
                        (server if ready is client else client).sendall(data)
            except OSError:
                return

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class CutConnections(ServeTest):
    """Connections are cut at any byte, while the server lives: what is done is done once."""

    def test_lose_nothing(self):
        seed = random.randrange(1 << 32)
        draw = random.Random(seed)
        for rank in range(4):
            self.write(f"large/x.cpu000{rank}", compressible_bytes(2 << 20, seed=rank))
        self.serve()
        proxy = CuttingProxy(self.work / "proxy", self.work / "socket", lambda: int(2 ** draw.uniform(12, 23)))
        self.addCleanup(proxy.close)
        done = 0
        for step in range(30 if NIGHTLY else 8):
            with self.subTest(seed=seed, step=step):
                self.use(f"unix:{self.work}/proxy")
                self.write("large/x.cpu0000", compressible_bytes(2 << 20, seed=100 + step))
                process = self.start("save", self.work / "large", "--job", "large", "--step", step, "--codec", "store")
                _, err = process.communicate(timeout=200)
                self.use(f"unix:{self.work}/socket")
                names = [record["name"] for record in self.facts("list")["sets"]]
                # Nothing but a file that was just being made durable is a reason to give up, as the server is there.
                self.assertEqual(process.returncode == SUCCESS, f"large@{step}" in names, err)
                self.assertTrue(process.returncode == SUCCESS or b"durable" in err, err)
                if process.returncode == SUCCESS:
                    done += 1
                    self.assert_restores(f"large@{step}", self.work / "large")
        self.assertGreater(done, 0)
        self.assert_whole()


if __name__ == "__main__":
    unittest.main()
