"""How programs talk to an Engine: no terminal, and nothing but the standard library."""
