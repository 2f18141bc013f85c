"""The process on a host that starts, watches and ends everything there."""
