"""Access control at a broker: what each request needs, and the requests that change users and policies."""
