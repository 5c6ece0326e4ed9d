"""Load on a simulated world: clients, consumers, producers of transactions, and administrators."""
