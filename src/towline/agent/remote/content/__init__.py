"""Files by their content, a job's tree made of them, and what it changed in it."""
