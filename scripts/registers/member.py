"""One member of a group that holds registers, as a process."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dledger import DLedger, DLedgerSettings
from dledger.raft.membership import parsed_peers
from mqruntime import log, serve
from mqruntime.realruntime import real_runtime
from simulation.raft.registers import Registers, RegisterService


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--peers", "--id", "--store"):
        parser.add_argument(name, required=True)
    parser.add_argument(
        "--listens-on", help="in place of the host that the peers name: a relay listens there"
    )
    arguments = parser.parse_args()
    log.configure(as_json=False)

    def make_member() -> DLedger:
        registers = Registers()
        ledger = DLedger(
            self_id=arguments.id,
            peers=parsed_peers(arguments.peers, "--peers"),
            group="registers",
            runtime=real_runtime(Path(arguments.store)),
            state_machine=registers,
            snapshots=registers,
            listens_on=arguments.listens_on,
            settings=DLedgerSettings(snapshot_entries=500, snapshot_margin_entries=100),
        )
        RegisterService(ledger, registers).register()
        return ledger

    return serve.run(make_member)


if __name__ == "__main__":
    sys.exit(main())
