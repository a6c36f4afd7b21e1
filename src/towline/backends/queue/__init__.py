"""What any queue that runs jobs itself needs; a queue's own words and readers are its `Dialect`."""
