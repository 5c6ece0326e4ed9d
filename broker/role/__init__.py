"""A broker's role in its set: its id, grants of the controllers, and changes of role."""
