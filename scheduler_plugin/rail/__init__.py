"""One rail for all pods of a job: decided when its first pod is admitted, and written into each."""
