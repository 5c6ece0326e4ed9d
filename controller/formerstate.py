"""Frees the memory of a state that a snapshot has replaced, in slices, because freeing the state of many brokers takes long.

Invariant: no other code uses the replaced state any more. Pure."""

from __future__ import annotations

from controller.state import ReplicasState
from mqruntime.slices import yield_to_loop

BROKERS_A_TURN = 1_000


async def let_go(state: ReplicasState) -> None:
    """Empty `state`; other tasks run meanwhile."""
    brokers = 0
    while state.replicas:
        name, replicas = state.replicas.popitem()
        state.sync_states.pop(name, None)
        brokers += len(replicas.by_id) + len(replicas.forgotten)
        del replicas
        if brokers >= BROKERS_A_TURN:
            brokers = 0
            await yield_to_loop()
