"""The data of a team: domains of files in the server's own folder."""
