"""Who sent a request, and whether they may: users, policies, and what each request needs."""
