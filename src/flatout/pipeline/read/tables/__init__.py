"""Tables as data sets: Parquet, Arrow and CSV files, read once as columns of which batches are gathered."""
