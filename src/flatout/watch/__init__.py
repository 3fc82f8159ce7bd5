"""The objects, files and random streams that samples are made from, and whether they are as they were."""
