"""Clients that are connected: who they are, what they subscribe to, what they are told and refused."""
