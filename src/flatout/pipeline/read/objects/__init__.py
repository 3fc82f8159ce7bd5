"""Objects of stores as samples: files on a disk, in S3, GCS, behind HTTP, or wherever fsspec finds them."""
