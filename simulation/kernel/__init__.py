"""Virtual time, simulated hosts, their disks and the network between them: what any world is made of."""
