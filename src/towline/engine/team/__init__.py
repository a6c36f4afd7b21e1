"""What a team's server tells everybody of everybody's jobs."""
