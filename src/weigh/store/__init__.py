"""The record store: append-only JSON Lines shards under ``.weigh/``."""
