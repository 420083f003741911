"""One module a verb: what a user asks for, from the request to the result."""
