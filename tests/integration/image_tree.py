"""The image without a container engine: its layers are folders, and it is built and run in separate namespaces.

The steps of image/Dockerfile are done by its two scripts: image/base-layer in a Debian root file system (from
debootstrap, instead of the image debian:trixie-slim), then scripts/image-tree in that. A run mounts the layers as a
read-only overlay, as a container engine does.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed.broker import JARS_LOCK
from testbed.processes import _spawner
from validator.stream.jars import resolve, user_cache

ROOT: Final = Path(__file__).parents[2]
SUITE: Final = "trixie"
USER_ID: Final = 10001
_NEEDED: Final = ("debootstrap", "unshare", "nsenter", "chroot", "setpriv", "ip")
_CLONE_NEWNET: Final = 0x40000000
_BUILD: Final = r"""
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$BASE,upperdir=$WORK/upper,workdir=$WORK/work" "$WORK/merged"
mount -t proc proc "$WORK/merged/proc"
mount --rbind /dev "$WORK/merged/dev"
mkdir -p "$WORK/merged/source" "$WORK/merged/tree" "$WORK/merged/cache"
# The host's CAs, for pip and for Java: the registries may be behind a proxy that has a CA of its own.
for file in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/java/cacerts; do
    [ -e "$file" ] || continue
    touch "$WORK/merged$file"; mount --bind "$file" "$WORK/merged$file"
done
mount --bind "$WORK/source" "$WORK/merged/source"
mount --bind "$WORK/tree" "$WORK/merged/tree"
mount --bind "$CACHE" "$WORK/merged/cache"
export XDG_CACHE_HOME=/cache HOME=/tmp DEBIAN_FRONTEND=noninteractive
chroot "$WORK/merged" sh -ec '
    apt-get update -q; apt-get install -y -q --no-install-recommends python3-venv
    /source/scripts/image-tree /tree'
"""
_RUN: Final = r"""
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$TREE:$BASE" "$WORK/merged"
root=$WORK/merged
mount -t tmpfs -o size=1g,mode=1777,nosuid,nodev tmpfs "$root/tmp"
mount --bind "$WORK/state" "$root/var/lib/streamproof"
mount --bind "$WORK/config" "$root/etc/streamproof"; mount -o remount,bind,ro "$root/etc/streamproof"
for pair in $OVER; do mount --bind "${pair%%=*}" "$root${pair#*=}"; done
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero random urandom; do
    touch "$root/dev/$device"; mount --bind "/dev/$device" "$root/dev/$device"
done
# As every container engine makes them.
hostname streamproof
echo "127.0.0.1 localhost streamproof" >"$WORK/hosts"; mount --bind "$WORK/hosts" "$root/etc/hosts"
ln -s /proc/self/fd "$root/dev/fd"
for number in 0=stdin 1=stdout 2=stderr; do ln -s "fd/${number%=*}" "$root/dev/${number#*=}"; done
mkdir -m 1777 "$root/dev/shm"; mount -t tmpfs -o size=64m,mode=1777 tmpfs "$root/dev/shm"
mount -o remount,ro "$root/dev"
exec chroot "$root" setpriv --reuid $USER_ID --regid $USER_ID --clear-groups --no-new-privs --bounding-set=-all \
    --inh-caps=-all "$@"
"""


def missing_tools() -> str:
    """Return why the image cannot be built and run here; empty if it can."""
    if os.geteuid() != 0:
        return "mounts and namespaces need root"
    if absent := [name for name in _NEEDED if shutil.which(name) is None]:
        return f"{', '.join(absent)} not installed"
    tried = subprocess.run(["unshare", "-m", "-p", "-n", "-f", "true"], check=False, capture_output=True, text=True)
    return f"no namespaces here: {tried.stderr.strip()}" if tried.returncode else ""


def base() -> Path:
    """Return the root file system that image/base-layer makes of Debian. It is kept for later test runs."""
    layer = ROOT / "image" / "base-layer"
    kept = user_cache() / "image" / f"{SUITE}-{hashlib.sha256(layer.read_bytes()).hexdigest()[:16]}"
    if not kept.exists():
        made = kept.with_suffix(f".{os.getpid()}")
        made.mkdir(parents=True)
        subprocess.run(["debootstrap", "--variant=minbase", SUITE, made], check=True, stdout=subprocess.DEVNULL)
        prepared = 'mount --make-rprivate /; mount -t proc proc "$0/proc"; exec chroot "$0" sh -s'
        command = ["unshare", "-m", "sh", "-c", prepared, str(made)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, input=layer.read_bytes())
        made.rename(kept)
    return kept


def built(work: Path) -> Path:
    """Return the tree that scripts/image-tree makes in the base with python3-venv added, as in the Dockerfile."""
    for name in ("upper", "work", "merged", "source", "tree"):
        (work / name).mkdir(parents=True)
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], check=True, stdout=-1
    )
    left = (ROOT / ".dockerignore").read_text().splitlines()
    for name in listed.stdout.decode().split("\0"):
        if name and name.split("/")[0] not in left and (ROOT / name).exists():
            target = work / "source" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target, follow_symlinks=False)
    user_cache().mkdir(parents=True, exist_ok=True)
    environment = {
        **{name: value for name, value in os.environ.items() if name.startswith(("PIP_", "STREAMPROOF_IVY"))},
        "BASE": str(base()),
        "WORK": str(work),
        "CACHE": str(user_cache().parent),
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "SOURCE_DATE_EPOCH": "1700000000",
    }
    subprocess.run(["unshare", "-m", "-p", "-f", "sh", "-ec", _BUILD], check=True, env=environment)
    return work / "tree"


@contextmanager
def own_network() -> Iterator[None]:
    """Put this thread, and the processes that it starts in the block, into a network that has only a loopback."""
    resolve(JARS_LOCK)  # the broker's jars, which cannot be fetched from inside
    libc = ctypes.CDLL(None, use_errno=True)
    here = Path("/proc/thread-self/ns/net")

    def enter(network: int) -> None:
        # Each thread has its own network namespace, so the thread that starts brokers enters one too.
        for entered in (
            libc.setns(network, _CLONE_NEWNET),
            _spawner.submit(libc.setns, network, _CLONE_NEWNET).result(),
        ):
            assert entered == 0

    with here.open() as before:
        assert libc.unshare(_CLONE_NEWNET) == 0
        try:
            with here.open() as made:
                enter(made.fileno())
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            enter(before.fileno())


@dataclass(frozen=True)
class Container:
    """One container's folder, which holds its mounts. Its network is that of the thread that starts it."""

    tree: Path
    work: Path

    def __post_init__(self) -> None:
        for name in ("merged", "state", "config"):
            (self.work / name).mkdir(parents=True, exist_ok=True)
        os.chown(self.work / "state", USER_ID, USER_ID)

    def start(
        self, *command: str, over: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start the image's entry point with ``command`` as the first process. ``over``: FILE=PATH, mounted at that
        path."""
        settings = {
            "TREE": self.tree,
            "BASE": base(),
            "WORK": self.work,
            "USER_ID": USER_ID,
            "OVER": " ".join(over),
        }
        environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **(environment or {})}
        return subprocess.Popen(
            ["unshare", "-m", "-p", "-i", "-u", "-f", "--kill-child", "sh", "-ec", _RUN, "sh", *command],
            env={**environment, **{name: str(value) for name, value in settings.items()}},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self, *command: str, over: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        with self.start(*command, over=over, environment=environment) as process:
            said, complained = process.communicate(timeout=300)
        return subprocess.CompletedProcess(command, process.returncode, said, complained)


def first_process(unshare: subprocess.Popen[str]) -> int:
    """Return the host's process id of the container's process 1."""
    [child] = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children").read_text().split()
    return int(child)


def beside(process: int, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the namespaces of a running container, as its user, like a container engine's `exec`."""
    user = ["setpriv", "--reuid", str(USER_ID), "--regid", str(USER_ID), "--clear-groups", "--no-new-privs"]
    entered = ["nsenter", "-t", str(process), "-m", "-p", "-n", "-i", "-u", "-r", "-w", *user, *command]
    return subprocess.run(
        entered, check=False, capture_output=True, text=True, env={"PATH": "/usr/local/bin:/usr/bin:/bin"}
    )
