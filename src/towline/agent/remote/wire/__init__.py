"""What is asked for while it comes about: logs, ports, large files."""
