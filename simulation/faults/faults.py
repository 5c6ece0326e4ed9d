"""The faults of one run: which kinds its seed has, and when they strike.

Invariant: everything follows from the seed. Each kind of fault decides its own effect and end."""

from __future__ import annotations

from functools import partial

from simulation.cluster.machines import Machines
from simulation.faults.adminfaults import DeathWithAnAnswer
from simulation.faults.crashes import Kill, KillAfterTruncation, PowerCut, Stop, SuddenPowerCut, TwoDeaths
from simulation.faults.damage import FlippedBit, WipedSlave
from simulation.faults.diskerrors import DiskError, DiskStall
from simulation.faults.fault import Fault, Moment, NotNow
from simulation.faults.hindrances import BurstOfLoad, ClockJump, Pause
from simulation.faults.losses import EmptiedMember, MemberWithoutLog
from simulation.faults.networkfaults import BetweenTwo, Isolate, MasterWithItsClient
from simulation.faults.replicationfaults import (
    DeposedMaster,
    ExpansionWithoutAnswer,
    HalfOpenSlave,
    MasterWithoutControllers,
)
from simulation.faults.strangers import Stranger
from simulation.kernel.features import Asked
from simulation.kernel.node import Node

KILL_MASTER = "kill master"
DELAYS_MS = (20, 200, 900)


def every_kind(on: Machines) -> tuple[Fault, ...]:
    """All kinds that a seed may draw."""
    network = on.world.network

    def delay(host: str, other: str) -> None:
        network.delay(host, other, 1, on.random.choice(DELAYS_MS))

    return (
        Kill(on, "kill", lambda now: [now.broker]),
        Kill(on, KILL_MASTER, lambda now: [now.master]),
        Kill(on, "kill all brokers", lambda now: on.brokers),
        Kill(on, "kill controller", lambda now: [now.controller]),
        Kill(on, "kill leading controller", lambda now: [now.leader]),
        PowerCut(on),
        BetweenTwo(on, "partition", network.cut),
        BetweenTwo(on, "one-way partition", partial(network.cut, both=False)),
        Isolate(on, "isolate master", lambda now: now.acting_master),
        Isolate(on, "isolate", lambda now: None),
        BetweenTwo(on, "delay", delay),
        BetweenTwo(on, "reset", network.reset),
        Pause(on),
        DiskStall(on),
        Kill(on, "power cut of a controller", lambda now: [now.controller], power_cut=True),
        Stop(on),
        BetweenTwo(on, "half-open", network.half_open),
        MasterWithoutControllers(on),
        MasterWithItsClient(on),
        Kill(on, "kill master and leading controller", lambda now: [now.master, now.leader]),
        KillAfterTruncation(on),
        ExpansionWithoutAnswer(on),
        ClockJump(on),
        DiskError(on),
        HalfOpenSlave(on),
        DeposedMaster(on),
        BurstOfLoad(on),
        WipedSlave(on),
        FlippedBit(on),
        EmptiedMember(on),
        MemberWithoutLog(on),
        Stranger(on),
        DeathWithAnAnswer(on),
        SuddenPowerCut(on),
        TwoDeaths(on),
    )


class Faults:
    """Chooses faults, performs them, and undoes them later."""

    def __init__(self, machines: Machines, asked: Asked, *besides: Fault) -> None:
        """`besides` are additional, independent faults of this seed."""
        self.machines = machines
        self.random = machines.random
        every = every_kind(machines)
        seed = machines.world.seed
        self.drawn_from = [fault.name for fault in every]
        self.drawn = {fault.name for fault in every if asked.draws(seed, fault.name, fault.chance)}
        by_name = {fault.name: fault for fault in every}
        self.kill_master = by_name[KILL_MASTER]
        self.kinds = [by_name[name] for name in sorted(self.drawn | {KILL_MASTER})]
        self.planned: list[Fault] = []
        self.all = [*every, *besides]
        self.going_on = [fault for fault in self.all if type(fault).next_step is not Fault.next_step]

    def plan(self) -> None:
        """The kinds in the order in which they strike: first the kind that every run has, then each other kind once, in any
        order."""
        self.planned = list(self.kinds)
        self.random.shuffle(self.planned)
        self.planned.insert(0, self.kill_master)

    def strike(self, fault: Fault | None = None) -> None:
        """Perform `fault`, or the next fault of the plan. A fault that is impossible at the moment is left out."""
        on = self.machines
        fault = fault or (self.planned.pop(0) if self.planned else self.random.choice(self.kinds))
        now = Moment(
            self.random.choice(on.brokers), self.random.choice(on.controllers), on.master(), on.leader()
        )
        try:
            if fault.strike(now):
                fault.count()
        except NotNow:
            return

    def next_steps(self) -> None:
        """Continue earlier faults. Raises Violation."""
        self.machines.damaged.look()
        for fault in self.going_on:
            fault.next_step()

    def due_for_restart(self, node: Node) -> bool:
        """Whether the node comes back now."""
        if not self.machines.may_be_back(node) or any(fault.holds_back(node) for fault in self.all):
            return False
        return self.machines.due_for_restart(node)

    def heal(self) -> None:
        """End all faults, and reset the network. Nodes that are down come back as soon as the fault that stopped them
        permits."""
        network = self.machines.world.network
        network.heal()
        network.usual_delays()
        self.machines.restart_at_ms.clear()
        for fault in self.all:
            fault.heal()
