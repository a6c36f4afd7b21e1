"""The API every command uses: HTTP on a unix socket for one user (later HTTPS for a team)."""
