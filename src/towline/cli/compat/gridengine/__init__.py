"""The commands of Grid Engine, on any kind of cluster."""
