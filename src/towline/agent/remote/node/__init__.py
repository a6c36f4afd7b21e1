"""What a queue runs on its nodes, and how it is handed over."""
