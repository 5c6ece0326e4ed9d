"""A broker's place in its set: its id, what the controllers grant it, and what a change of role does to the rest."""
