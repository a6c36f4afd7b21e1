"""Real parts for the tests: sshd hosts, the real `tow`, and waiting without sleeping."""
