"""Faults of a broker set under controllers. There is a module for each kind of fault: it says what the fault does, how it
continues and how it ends."""
