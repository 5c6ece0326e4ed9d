"""The parts of every world: virtual time, simulated hosts, their disks and the network between them."""
