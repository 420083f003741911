"""What the project needs around the product: the bench and the servers it starts."""
