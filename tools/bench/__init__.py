"""`python -m tools.bench`: the product's commands beside what people use, measured in one run."""
