"""Where configurations for clusterduck look for its launchers."""
