"""Agents, environments, runs and logs that several tests share."""
