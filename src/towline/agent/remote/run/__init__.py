"""One command, from its folder to its end."""
