"""``streamproof demo``: a broker, load, an engine, a fault and the sidecar on this machine, without any setup.

The pipeline declares exactly once. Its default engine, the reference engine, works at least once: it commits its
progress rarely, and a kill between two commits makes it repeat results. The sidecar must report them.

All processes are `OwnedProcess`es and die with this one, even if it is killed. Files are in one temporary folder.
"""

from __future__ import annotations

import argparse
import sys

from testbed import disk
from testbed.broker import JARS_LOCK
from testbed.checkout import version
from testbed.demo import engine
from testbed.demo.folder import DemoFolder
from testbed.demo.options import plan_of
from testbed.demo.pipeline import Demo
from testbed.demo.screen import Screen
from testbed.stop import stop_on_signals
from validator.stream.jars import SIDECAR_LOCK, resolve


def run(given: argparse.Namespace) -> int:
    """Run the demo; return the exit status of the sidecar's verdict.

    Raises DemoRefused, DemoFailed and the errors of the demo's parts. After SIGINT, SIGTERM or SIGHUP it removes
    everything, then raises KeyboardInterrupt.
    """
    plan = plan_of(given)
    screen = Screen(sys.stdout)
    screen.write(
        f"streamproof {version()}, demo with seed {plan.seed}: engine {plan.title}, {plan.faults}, "
        f"{plan.seconds} s of load{plan.further_time}\n"
        "The pipeline declares the guarantee exactly once. Ctrl-C ends the demo and removes everything that it "
        "started.\n"
    )
    with stop_on_signals() as stop:
        with stop.at_once():
            engine.require(plan)
            if plan.scenario is not None and plan.scenario.needs_disk:
                disk.enter_own_mounts()
            resolve(JARS_LOCK)
            resolve(SIDECAR_LOCK)
            if plan.is_real:
                engine.prepare(plan, screen.say)
        try:
            with DemoFolder() as folder:
                return Demo(plan, folder.path, screen, stop).run()
        except KeyboardInterrupt:
            screen.say("interrupted; everything that was started has ended and is removed")
            raise
