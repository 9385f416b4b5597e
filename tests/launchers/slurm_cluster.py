"""A whole Slurm cluster of two nodes on this machine, which leaves nothing behind: munge, slurmctld, two slurmd.

    unshare --pid --fork --kill-child --mount-proc --net --uts --mount python slurm_cluster.py FOLDER

Started like this, it is the first process of a process namespace of its own, so that its end is the end of everything
that it started: the kernel kills the daemons and the jobs, and takes the networks, the host names and the mounts away.
It ends when its standard input is closed, thus also when the test session is killed. It writes to FOLDER alone.

Prints `ready` once both nodes are idle. Commands join it by `nsenter`, with `SLURM_CONF` set to FOLDER/slurm.conf.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

NODES = {"node0": "10.77.0.10", "node1": "10.77.0.11"}
CONTROLLER = {"ctl0": "10.77.0.1"}
CPUS = 4
GPUS = 4
START_LIMIT = 60.0  # seconds

SLURM_CONF = """\
ClusterName=pretend
SlurmctldHost=ctl0(10.77.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
SlurmdParameters=config_overrides
{nodes}
PartitionName=main Nodes=node0,node1 Default=YES MaxTime=5 State=UP
"""
NODE = "NodeName={name} NodeAddr={address} CPUs={cpus} CoresPerSocket={cpus} RealMemory=1000 Gres=gpu:{gpus}"
# The node waits for its network, then becomes slurmd.
NODE_SCRIPT = """
hostname "$1" && echo made && read -r go &&
ip link set lo up && ip addr add "$2/24" dev eth0 && ip link set eth0 up && exec slurmd -D -N "$1"
"""


def run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def configure(folder: Path) -> None:
    """Write every file that the daemons read."""
    for name in ("state", *(f"spool.{node}" for node in NODES)):
        (folder / name).mkdir()
    lines = [NODE.format(name=name, address=address, cpus=CPUS, gpus=GPUS) for name, address in NODES.items()]
    (folder / "slurm.conf").write_text(SLURM_CONF.format(folder=folder, nodes="\n".join(lines)))
    (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-{GPUS - 1}]\n")
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    hosts = {"localhost": "127.0.0.1", **CONTROLLER, **NODES}
    (folder / "hosts").write_text("".join(f"{address} {name}\n" for name, address in hosts.items()))
    # Character devices that no driver owns: Slurm counts them and never opens them.
    for number in range(GPUS):
        os.mknod(folder / f"gpu{number}", 0o20600, os.makedev(240, number))
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)


def start_controller(folder: Path) -> None:
    """Name this host, give it a network, and start munge and the controller on it."""
    run("hostname", "ctl0")
    run("mount", "--bind", str(folder / "hosts"), "/etc/hosts")
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "br0", "type", "bridge")
    run("ip", "addr", "add", f"{CONTROLLER['ctl0']}/24", "dev", "br0")
    run("ip", "link", "set", "br0", "up")
    files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    options = [f"--{option}={folder}/munge.{suffix}" for option, suffix in files.items()]
    start(folder, "munged", "--foreground", "--force", *options)
    wait_for("munge", (folder / "munge.socket").exists)
    start(folder, "slurmctld", "-D", "-c")


def start_node(folder: Path, position: int, name: str, address: str) -> None:
    """Make a host of its own network and name, joined to this one by a bridge, and start slurmd on it."""
    command = ["unshare", "--net", "--uts", "--mount", "sh", "-c", NODE_SCRIPT, "sh", name, address]
    node = start(folder, *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert node.stdin
    assert node.stdout
    node.stdout.readline()
    run("ip", "link", "add", f"v{position}", "type", "veth", "peer", "name", "eth0", "netns", str(node.pid))
    run("ip", "link", "set", f"v{position}", "master", "br0", "up")
    node.stdin.write(b"go\n")
    node.stdin.close()


def start(folder: Path, *command: str, **pipes: int) -> subprocess.Popen[bytes]:
    with (folder / "daemons.log").open("ab") as log:
        return subprocess.Popen(command, **{"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, **pipes})


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + START_LIMIT
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"{what} did not start within {START_LIMIT:.0f} seconds")
        time.sleep(0.2)


def both_idle() -> bool:
    command = ["sinfo", "--noheader", "--Node", "--states=idle", "--format=%N"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return sorted(NODES) == sorted(answer.stdout.split())


def main() -> None:
    if os.getpid() != 1:
        sys.exit(f"to be started as the first process of its own namespaces:{(__doc__ or '').splitlines()[2]}")
    folder = Path(sys.argv[1]).resolve()
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    configure(folder)
    start_controller(folder)
    for position, (name, address) in enumerate(NODES.items()):
        start_node(folder, position, name, address)
    wait_for("Slurm", both_idle)
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0.2)[0]:
        reap()


def reap() -> None:
    """Take leave of every ended process: the first one inherits the orphans, and Slurm waits until they are gone."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


if __name__ == "__main__":
    main()
