"""What is typed: commands, options, names, and answers to questions."""
