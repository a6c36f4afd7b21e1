"""What both ends of the HTTP API agree on: the shapes of answers. Types only, nothing to run."""
