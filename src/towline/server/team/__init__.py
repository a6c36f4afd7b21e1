"""A team's server: the same Engine, behind HTTPS and accounts."""
