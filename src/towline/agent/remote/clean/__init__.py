"""What nobody needs any more goes."""
