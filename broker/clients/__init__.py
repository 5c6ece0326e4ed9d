"""Connected clients: their groups, subscriptions, notifications and rejected requests."""
