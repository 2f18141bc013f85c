"""How fast a directory is shown on hosts of this machine, beside the directory itself."""
