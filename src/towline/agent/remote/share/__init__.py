"""What a machine has, and what everybody's jobs were granted of it."""
