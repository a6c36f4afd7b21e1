"""What travels with functions and runs where they are called; it has cloudpickle beside it."""
