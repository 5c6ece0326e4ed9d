"""Reads the committed part of a RocketMQ commit log, with Spark or without it."""
