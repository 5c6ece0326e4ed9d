"""Connected clients: groups, subscriptions, notifications and rejected requests."""
