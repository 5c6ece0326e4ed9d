"""A broker's role in its set: its replica id, the roles that controllers grant, and changes of role."""
