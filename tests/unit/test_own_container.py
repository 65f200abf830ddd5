"""A process identifies its container by Linux's files, even if its host name does not help. On a host it finds none."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.backends.own_container import OwnContainers, own_containers

OURS, OTHER, LAYER = "4f" * 32, "0a" * 32, "c7" * 32
ROOT = "/var/lib/docker/overlay2"
OVERLAY = (
    f"630 517 0:57 / / rw,relatime - overlay overlay rw,lowerdir={ROOT}/l/AB,upperdir={ROOT}/{LAYER}/diff,workdir=w"
)
HOSTS = f"653 630 254:0 /docker/containers/{OURS}/hosts /etc/hosts rw,relatime - ext4 /dev/vda rw"
PODMANS = f"653 630 0:23 /containers/storage/overlay-containers/{OURS}/userdata/hosts /etc/hosts rw - tmpfs tmpfs rw"


@pytest.mark.parametrize(
    ("mounts", "groups", "found"),
    [
        ([OVERLAY, HOSTS], ["0::/"], OwnContainers(frozenset([OURS]), f"{ROOT}/{LAYER}/diff")),
        ([PODMANS], ["0::/"], OwnContainers(frozenset([OURS]), None)),
        ([], [f"4:memory:/docker/{OURS}", "0::/"], OwnContainers(frozenset([OURS]), None)),
        ([], [f"0::/system.slice/docker-{OURS}.scope"], OwnContainers(frozenset([OURS]), None)),
        ([HOSTS], [f"0::/docker/{OTHER}"], OwnContainers(frozenset([OURS, OTHER]), None)),  # --network container:OURS
    ],
    ids=["docker", "podman", "cgroup-1", "systemd", "network-of"],
)
def test_the_own_container_is_found(tmp_path: Path, mounts: list[str], groups: list[str], found: OwnContainers) -> None:
    (tmp_path / "mountinfo").write_text("".join(f"{line}\n" for line in mounts))
    (tmp_path / "cgroup").write_text("".join(f"{line}\n" for line in groups))
    assert own_containers(tmp_path) == found


@pytest.mark.parametrize(
    "mount",
    [
        f"91 25 0:50 / /var/lib/docker/overlay2/{OURS}/merged rw - overlay overlay rw,upperdir=/u,workdir=/w",
        f"92 25 0:51 / /var/lib/docker/containers/{OURS}/mounts/shm rw - tmpfs shm rw",
        "25 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw",
        f"93 25 254:0 /tmp/containers/{OURS[:20]}/hosts /etc/hosts rw - ext4 /dev/vda rw",
    ],
)
def test_a_host_with_containers_is_not_in_one(tmp_path: Path, mount: str) -> None:
    (tmp_path / "mountinfo").write_text(f"{mount}\n")
    (tmp_path / "cgroup").write_text("0::/user.slice/user-0.slice/session-4.scope\n")
    assert own_containers(tmp_path) == OwnContainers(frozenset(), None)


def test_without_readable_files_there_is_no_container(tmp_path: Path) -> None:
    assert own_containers(tmp_path) == OwnContainers(frozenset(), None)


@pytest.mark.parametrize(
    ("container", "layer", "is_ours"),
    [(OURS, None, True), (OTHER, "/up", True), (OTHER, "/other", False), (OTHER, None, False)],
)
def test_a_container_is_ours_by_its_id_or_its_layer(container: str, layer: str | None, is_ours: bool) -> None:
    assert OwnContainers(frozenset([OURS]), "/up").has(container, layer) is is_ours
    assert not OwnContainers(frozenset(), None).has(container, None)
