"""A Slurm of its own on this machine: munge, slurmctld and several slurmd on the loopback, all below one folder."""

import getpass
import os
import pathlib
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel")
START_SECONDS_MAX = 60
# Slurm's own daemons are where a user's path does not lead.
SEARCH_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def missing_programs():
    return [name for name in PROGRAMS if shutil.which(name, path=SEARCH_PATH) is None]


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Cluster:
    """Nodes node1, node2, ... of this machine. `settings`: further lines of slurm.conf."""

    def __init__(self, node_count, settings=(), epilog=None):
        self.node_count = node_count
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="varve-slurm-"))
        self.nodes = [f"node{number}" for number in range(1, node_count + 1)]
        self.settings = list(settings)
        self.epilog = epilog
        self.daemons = {}

    # The daemons

    def start(self):
        for name in ("state", "spool", "run", "log"):
            (self.folder / name).mkdir()
        self.folder.chmod(0o755)
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        self.write_config()
        run = self.folder / "run"
        self.start_daemon("munged", "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={run}/munge",
                          f"--pid-file={run}/munged.pid", f"--log-file={self.folder}/log/munged.log",
                          f"--seed-file={self.folder}/munge.seed")
        self.wait_until(lambda: (run / "munge").exists(), "munge")
        self.start_daemon("slurmctld", "slurmctld", "-D", "-f", self.config)
        for node in self.nodes:
            self.start_node(node)
        self.wait_until(lambda: self.ask("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == str(self.node_count),
                        "the nodes")

    def write_config(self):
        ports = free_ports(1 + self.node_count)
        user = getpass.getuser()
        host = socket.gethostname().split(".")[0]
        processors = os.cpu_count() or 1
        lines = [
            "ClusterName=varve", f"SlurmctldHost={host}(127.0.0.1)", f"SlurmctldPort={ports[0]}",
            f"SlurmUser={user}", f"SlurmdUser={user}", "AuthType=auth/munge", "CredType=cred/munge",
            f"AuthInfo=socket={self.folder}/run/munge,cred_expire=5", f"StateSaveLocation={self.folder}/state",
            f"SlurmdSpoolDir={self.folder}/spool/%n", f"SlurmctldPidFile={self.folder}/run/slurmctld.pid",
            f"SlurmdPidFile={self.folder}/run/slurmd-%n.pid", f"SlurmctldLogFile={self.folder}/log/slurmctld.log",
            f"SlurmdLogFile={self.folder}/log/slurmd-%n.log", "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none", "SwitchType=switch/none", "MpiDefault=none", "ReturnToService=2",
            "SelectType=select/cons_tres", "SelectTypeParameters=CR_CPU", "SchedulerType=sched/backfill",
            "SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,requeue_delay=1",
            "AccountingStorageType=accounting_storage/none", "JobAcctGatherType=jobacct_gather/none",
            "SlurmctldTimeout=120", "SlurmdTimeout=10", "InactiveLimit=0", "MessageTimeout=20",
            "MinJobAge=300", "SlurmdParameters=config_overrides",
            *self.settings,
        ]
        if self.epilog:
            lines.append(f"Epilog={self.epilog}")
        for node, port in zip(self.nodes, ports[1:]):
            lines.append(f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={max(4, processors)}")
        names = ",".join(self.nodes)
        lines += [f"PartitionName=low Nodes={names} Default=YES MaxTime=INFINITE PriorityTier=1",
                  f"PartitionName=high Nodes={names} MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF"]
        self.config.write_text("\n".join(lines) + "\n")
        (self.folder / "cgroup.conf").write_text("CgroupAutomount=no\n")

    @property
    def config(self):
        return self.folder / "slurm.conf"

    def environment(self, **changes):
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "VARVE_"))}
        return {**kept, "PATH": SEARCH_PATH, "SLURM_CONF": str(self.config), **changes}

    def start_daemon(self, key, program, *arguments):
        with open(self.folder / "log" / f"{key}.out", "ab") as out:
            self.daemons[key] = subprocess.Popen(
                [shutil.which(program, path=SEARCH_PATH), *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=out,
                stderr=out, env=self.environment(), start_new_session=True)

    def start_node(self, node):
        # PMIx calls a folder by the job alone, so that each node of this machine needs one of its own for it; which
        # only mpi.conf says, which lies beside slurm.conf.
        own, temporary = self.folder / "etc" / node, self.folder / "tmp" / node
        temporary.mkdir(parents=True, exist_ok=True)
        own.mkdir(parents=True, exist_ok=True)
        for name in ("slurm.conf", "cgroup.conf"):
            shutil.copy(self.folder / name, own / name)
        (own / "mpi.conf").write_text(f"PMIxCliTmpDirBase={temporary}\n")
        self.start_daemon(node, "slurmd", "-D", "-N", node, "-f", own / "slurm.conf")

    def fail_node(self, node):
        """The node's daemon and all that it runs are gone from one moment to the next."""
        daemon = self.daemons.pop(node)
        victims = [daemon.pid, *self.processes_of(node)]
        for process in victims:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        daemon.wait()

    def processes_of(self, node):
        """What jobs run on this node, as their environments tell, and the daemons of their steps."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                environment = (entry / "environ").read_bytes().split(b"\0")
                arguments = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            is_job = f"SLURMD_NODENAME={node}".encode() in environment
            is_ours = f"SLURM_CONF={self.folder}/".encode() in b"\0".join(environment)
            is_step = b"slurmstepd" in arguments and f"{self.folder}/etc/{node}/".encode() in b"\0".join(environment)
            if (is_ours and is_job) or is_step:
                found.append(int(entry.name))
        return found

    def stop(self):
        if self.daemons:
            subprocess.run(["scancel", "--full", f"--user={getpass.getuser()}"], env=self.environment(), check=False,
                           capture_output=True, timeout=30)
            time.sleep(1)
        for key in reversed(list(self.daemons)):
            daemon = self.daemons.pop(key)
            daemon.terminate()
            try:
                daemon.wait(timeout=10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for node in self.nodes:
            for process in self.processes_of(node):
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        shutil.rmtree(self.folder, ignore_errors=True)

    # Asking it

    def ask(self, *command, check=True, **changes):
        done = subprocess.run(command, env=self.environment(**changes), capture_output=True, text=True, check=False,
                              timeout=60)
        if check and done.returncode != 0:
            return ""
        return done.stdout

    def wait_until(self, condition, what, seconds=START_SECONDS_MAX):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"waited in vain for {what}; logs in {self.folder}/log:\n{self.logs()}")
            time.sleep(0.1)

    def logs(self):
        told = []
        for path in sorted((self.folder / "log").iterdir()):
            told.append(f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-15:]))
        return "\n".join(told)

    def submit(self, script, *options, **changes):
        done = subprocess.run(["sbatch", "--parsable", *map(str, options), str(script)],
                              env=self.environment(**changes), capture_output=True, text=True, check=False, timeout=60)
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        return done.stdout.strip()

    def job(self, number):
        """What scontrol says of a job, by its fields; empty: it is forgotten."""
        return dict(re.findall(r"(\w+)=(\S*)", self.ask("scontrol", "--oneliner", "show", "job", number)))

    def state(self, number):
        return self.job(number).get("JobState", "")

    def wait_for_state(self, number, states, seconds=120):
        self.wait_until(lambda: self.state(number) in states, f"job {number} in {states}, which is "
                        f"{self.state(number)}", seconds)
        return self.state(number)
