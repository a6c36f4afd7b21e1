"""`pit`: the command line of the snakepit client, on a team's server."""
