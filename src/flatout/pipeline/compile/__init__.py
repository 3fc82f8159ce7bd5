"""Operations of a transform done to whole batches, and how many of them become one program."""
