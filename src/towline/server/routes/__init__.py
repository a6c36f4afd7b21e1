"""Thin: each route asks the desk."""
