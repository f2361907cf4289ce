"""Tests that start servers, and make levels of all kinds."""

import os
import subprocess

from support import PROGRAM, ProgramTest, default_signals

HAS_TLS = os.environ.get("VARVE_WITH_TLS", "1") == "1"

# Kinds of levels: how many servers, and over what.
KINDS = {"folder": None, "unix": ("unix", 1), "two_unix": ("unix", 2), **({"tcp": ("tcp", 1), "three_tcp": ("tcp", 3)} if HAS_TLS else {})}


class ServeTest(ProgramTest):
    """Has a folder of its own and servers, which end with the test."""

    def setUp(self):
        super().setUp()
        self.folder = self.work / "served"
        self.socket = f"unix:{self.work}/socket"
        self.key = self.work / "key"
        self.servers = []
        self.addCleanup(self.stop_all)

    def stop_all(self):
        for server in self.servers:
            if server.poll() is None:
                server.kill()
            server.communicate()

    def serve(self, *options, listen=None, folder=None):
        """Starts a server; returns it and where it listens."""
        server = subprocess.Popen([PROGRAM, "serve", "--listen", listen or self.socket, "--dir", folder or self.folder,
                                   *map(str, options)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  cwd=self.work, preexec_fn=default_signals)
        self.servers.append(server)
        line = server.stdout.readline().decode()
        self.assertIn(" at ", line, server.stderr.read().decode() if not line else "")
        return server, line.rsplit(" at ", 1)[1].strip()

    def use(self, store, key=None):
        self.environment = lambda **changes: {**{name: value for name, value in os.environ.items() if not name.startswith("VARVE_STORE")},
                                              "VARVE_STORE": str(store), **({"VARVE_KEY_FILE": str(key)} if key else {}), **changes}


class LevelsTest(ServeTest):
    """Makes levels of all kinds."""

    def setUp(self):
        super().setUp()
        self.folders = {}
        self.restarts = {}
        if HAS_TLS:
            self.varve("serve", "--new-key", self.key)
            self.use(self.store, self.key)

    def make_level(self, kind, name=None):
        """A new store of this kind; returns its location. self.folders says where its arenas lie, self.restarts how each of
        its servers is killed and started anew at the same address."""
        name = name or kind
        if KINDS[kind] is None:
            location = str(self.work / name)
            self.folders[location] = [self.work / name]
        else:
            transport, count = KINDS[kind]
            folders = [self.work / f"{name}-{number}" for number in range(count)]
            listens = [f"unix:{folder}.socket" if transport == "unix" else "tcp://127.0.0.1:0" for folder in folders]
            more = ["--place", *(["--key-file", self.key] if transport == "tcp" else [])]
            served = [self.serve(*more, listen=listen, folder=folder) for listen, folder in zip(listens, folders)]
            addresses = [address for _, address in served]
            prefix = "unix:" if transport == "unix" else "tcp://"
            location = prefix + ",".join(address.removeprefix(prefix) for address in addresses)
            self.folders[location] = folders
            self.restarts[location] = [self.restarter(server, *more, listen=address, folder=folder)
                                       for (server, address), folder in zip(served, folders)]
        self.varve("init", location)
        return location

    def restarter(self, server, *options, listen, folder):
        """What kills this server, and returns what starts it anew."""
        running = [server]

        def kill():
            running[0].kill()
            running[0].wait()
            return start

        def start():
            running[0], _ = self.serve(*options, listen=listen, folder=folder)

        return kill

    def arenas(self, location):
        return sorted(arena for folder in self.folders[location] for arena in (folder / "arenas").glob("*.arena"))

    def damage(self, location):
        """Flips a byte in the first half of each of a level's arenas."""
        for arena in self.arenas(location):
            raw = bytearray(arena.read_bytes())
            raw[len(raw) // 3] ^= 1
            arena.write_bytes(raw)
