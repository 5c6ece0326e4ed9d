"""Virtual time, simulated hosts, their disks and the network between them: the parts of every world."""
