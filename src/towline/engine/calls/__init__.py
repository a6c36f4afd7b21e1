"""What the API offers: whatever is public here is called for somebody."""
