"""What a data set and a collate function do when they are asked, before anything relies on it."""
