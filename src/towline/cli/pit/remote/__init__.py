"""What `pit` has run on nodes: standard library only, and any Python from 3.6 on."""
