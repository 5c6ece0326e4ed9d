"""The parts that all simulated worlds share: virtual time, hosts, their disks and the network between them."""
