"""Who works together behind one server, and by which rules."""
