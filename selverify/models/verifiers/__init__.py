"""Verifiers beside those that this library trains: published models, servers, judges, tools."""
