"""A replay of jobs on a cluster by discrete events: what each way to choose nodes costs in bytes and in waiting."""
